// A plugin's side of one connection to a runtime (containerd/nri, 0.6.1 to 0.12): who it is, then the runtime's
// requests to a handler.
//
//   auto plugin = TRY(NriSession::open(TRY(connect_socket(path)), handler));
//   TRY_VOID(plugin->register_as({.name = "rdma", .index = "10"}));
//   TRY(plugin->serve(signals));    // Ended::kPeer: the runtime restarts: connect again, waiting longer each time
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "shim/nri/wire/messages.hpp"
#include "shim/result.hpp"
#include "shim/ttrpc/connection.hpp"
#include "shim/ttrpc/rpc.hpp"

namespace shim {

// What a plugin does at each of the runtime's requests. One at a time, in one thread.
//
// The runtime waits 2 s for an answer (unless configured otherwise). Then it closes the connection and goes on without
// the plugin: a container gets nothing then. An error, in contrast, fails what was asked for: the creation of a
// container or the start of a pod; its message and hint reach the user.
class NriHandler {
 public:
  virtual ~NriHandler() = default;

  // First of all; again if the runtime wishes so. The events to be told, at least one. Synchronize needs none. Errors
  // end the registration.
  virtual Result<std::vector<Event>> configure(const RuntimeInfo& runtime) = 0;

  // After configure: what runs already, in any number of parts, then the end. Nothing is kept here: a large node has
  // thousands. A second synchronize_begin() drops what the first had found.
  virtual void synchronize_begin() {}
  virtual void found(const NriPod& /*pod*/) {}
  virtual void found(const NriContainer& /*container*/) {}
  virtual Result<void> synchronize_end() { return {}; }

  // The answer's bytes: to kCreateContainer create_response()'s, to all other events none.
  virtual Result<std::string> answer(const NriRequest& request) = 0;

  // Once all plugins have been asked about a container's creation, if configure() has subscribed to it. The reason why
  // the runtime is to refuse the container; empty: none.
  virtual std::string refusal(const NriValidation& /*validation*/) { return {}; }
};

inline constexpr std::string_view kPluginService = "nri.pkg.api.v1alpha1.Plugin";
inline constexpr std::string_view kRuntimeService = "nri.pkg.api.v1alpha1.Runtime";

// The Plugin service of NRI: from a method's name and the bytes of its request to a call of the handler and the bytes
// of the response. Knows no socket.
class NriDispatcher {
 public:
  // The handler must outlive it.
  explicit NriDispatcher(NriHandler& handler) : handler_(handler) {}

  // Errors: those of the handler; ENOSYS for a service or method that is not here (NRI 0.12 then uses StateChange);
  // EINVAL for bytes that are not such a message; EAGAIN before Configure; EMSGSIZE for a pod and container
  // beyond 4 MiB, which no kernel could start.
  Result<std::string> dispatch(const Request& request);

 private:
  struct Method;
  static const Method kMethods[];

  Result<std::string> configure(const Request& request);
  Result<std::string> synchronize(const Request& request);
  Result<std::string> shutdown(const Request& request);
  Result<std::string> validate(const Request& request);
  Result<bool> take_found(std::string_view payload);
  Result<std::string> answer(Event method, std::string_view payload);

  NriHandler& handler_;
  bool configured_ = false;
  bool synchronizing_ = false;  // between the parts
};

struct PluginIdentity {
  std::string name;   // letters, digits, "_", ".", "+", "-"
  std::string index;  // two digits: plugins are asked in this order
};

// Refuses a name or index for which the runtime would close the connection.
Result<void> check_identity(const PluginIdentity& identity);

class NriSession {
 public:
  // The handler must outlive it.
  static Result<std::unique_ptr<NriSession>> open(fabric::UniqueFd socket, NriHandler& handler);

  // RegisterPlugin. The runtime's requests are served from here on: it may configure the plugin before it answers. The
  // runtime waits 5 s, from its accept, unless configured otherwise. Errors: as Connection::call().
  Result<void> register_as(const PluginIdentity& identity, std::chrono::milliseconds timeout = std::chrono::seconds(5));

  // UpdateContainers: asks the runtime to evict a container. The runtime takes it once it has been synchronized with.
  // Errors: as Connection::call().
  Result<void> evict(const std::string& container_id, const std::string& reason);

  // As Connection::serve().
  Result<Connection::Ended> serve(int stop_fd = -1, std::optional<Connection::Clock::time_point> until = std::nullopt) {
    return connection_->serve(stop_fd, until);
  }

  NriSession(const NriSession&) = delete;
  NriSession& operator=(const NriSession&) = delete;

 private:
  explicit NriSession(NriHandler& handler) : dispatcher_(handler) {}

  NriDispatcher dispatcher_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace shim
