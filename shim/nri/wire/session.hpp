// The plugin's side of one connection to a runtime (containerd/nri 0.6.1 to 0.12): registers, then passes the runtime's
// requests to a handler.
//
//   auto plugin = TRY(NriSession::open(TRY(connect_socket(path)), handler));
//   TRY_VOID(plugin->register_as({.name = "rdma", .index = "10"}));
//   TRY(plugin->serve(signals));    // Ended::kPeer: the runtime restarts: reconnect with growing pauses
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "shim/nri/wire/messages.hpp"
#include "shim/ttrpc/connection.hpp"
#include "shim/ttrpc/rpc.hpp"

namespace shim {

// Handles the runtime's requests, one at a time, in one thread.
//
// The runtime waits 2 s for an answer, unless configured otherwise. Then the runtime closes the connection and
// continues without the plugin, so that a container gets no HCAs. An error, in contrast, fails the creation of the
// container or the start of the pod; its message and hint reach the user.
class NriHandler {
 public:
  virtual ~NriHandler() = default;

  // Answers the first request of a connection; the runtime may repeat it. Returns the events to subscribe to, at least
  // one; Synchronize needs no subscription. An error ends the registration.
  virtual Result<std::vector<Event>> configure(const RuntimeInfo& runtime) = 0;

  // The session calls these functions after configure(): they list the existing pods and containers in any number of
  // parts, then the end. The session itself stores no pods and containers, because a large node has thousands. A second
  // synchronize_begin() discards the first list.
  virtual void synchronize_begin() {}
  virtual void found(const NriPod& /*pod*/) {}
  virtual void found(const NriContainer& /*container*/) {}
  virtual Result<void> synchronize_end() { return {}; }

  // Returns the bytes of the answer: the result of create_response() for kCreateContainer, otherwise none.
  virtual Result<std::string> answer(NriRequest request) = 0;

  // Called after all plugins have adjusted a container, if configure() has subscribed to it. Returns the reason for
  // which the runtime must refuse the container; empty: none.
  virtual std::string refusal(const NriValidation& /*validation*/) { return {}; }
};

inline constexpr std::string_view kPluginService = "nri.pkg.api.v1alpha1.Plugin";
inline constexpr std::string_view kRuntimeService = "nri.pkg.api.v1alpha1.Runtime";

// The Plugin service of NRI: maps a method and its request bytes to a call of the handler, and returns the response
// bytes. Does not use the socket.
class NriDispatcher {
 public:
  // The handler must outlive this object.
  explicit NriDispatcher(NriHandler& handler) : handler_(handler) {}

  // Errors: those of the handler; ENOSYS for an unknown service or method (NRI 0.12 then uses StateChange); EINVAL for
  // bytes that are not the method's message; EAGAIN for a request before Configure; EMSGSIZE for a pod and container of
  // more than 4 MiB, which no kernel can start.
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
  bool synchronizing_ = false;  // true between two parts of a Synchronize
};

struct PluginIdentity {
  std::string name;   // letters, digits, "_", ".", "+", "-"
  std::string index;  // two digits: runtimes call plugins in the order of their index
};

// Errors: a malformed name or index, which would make the runtime close the connection.
Result<void> check_identity(const PluginIdentity& identity);

class NriSession {
 public:
  // The handler must outlive this object.
  static Result<std::unique_ptr<NriSession>> open(base::UniqueFd socket, NriHandler& handler);

  // Calls RegisterPlugin. Serves requests meanwhile, because the runtime may send Configure before its answer. The
  // runtime waits 5 s from its accept, unless configured otherwise. Errors: those of Connection::call().
  Result<void> register_as(const PluginIdentity& identity, std::chrono::milliseconds timeout = std::chrono::seconds(5));

  // Calls UpdateContainers to evict a container. The runtime accepts it only after Synchronize. Errors: those of
  // Connection::call().
  Result<void> evict(const std::string& container_id, const std::string& reason);

  // Calls Connection::serve().
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
