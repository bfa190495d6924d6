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

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "shim/nri/wire/dispatcher.hpp"
#include "shim/ttrpc/connection.hpp"

namespace shim {

struct PluginIdentity {
  std::string name;   // letters, digits, "_", ".", "+", "-"
  std::string index;  // two digits: plugins are asked in this order
};

// Refuses a name or index for which the runtime would close the connection.
fabric::Result<void> check_identity(const PluginIdentity& identity);

class NriSession {
 public:
  // The handler must outlive it.
  static fabric::Result<std::unique_ptr<NriSession>> open(fabric::UniqueFd socket, NriHandler& handler);

  // RegisterPlugin. The runtime's requests are served from here on: it may configure the plugin before it answers. The
  // runtime waits 5 s, from its accept, unless configured otherwise. Errors: as Connection::call().
  fabric::Result<void> register_as(const PluginIdentity& identity,
                                   std::chrono::milliseconds timeout = std::chrono::seconds(5));

  // UpdateContainers: asks the runtime to evict a container. The runtime takes it once it has been synchronized with.
  // Errors: as Connection::call().
  fabric::Result<void> evict(const std::string& container_id, const std::string& reason,
                             std::chrono::milliseconds timeout = std::chrono::seconds(5));

  // As Connection::serve().
  fabric::Result<Connection::Ended> serve(int stop_fd = -1,
                                          std::optional<Connection::Clock::time_point> until = std::nullopt) {
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
