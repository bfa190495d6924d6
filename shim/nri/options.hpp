// Command line of rdma-nri, and the environment that a runtime sets when it starts the program.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "hook/grant/node.hpp"
#include "hook/oci/engine.hpp"
#include "shim/nri/wire/session.hpp"

namespace shim {

inline constexpr const char* kNriProgram = "rdma-nri";
inline constexpr const char* kNriSocket = "/var/run/nri/nri.sock";

struct NriPluginOptions {
  bool help = false;
  bool version = false;
  bool probe = false;
  std::string socket = kNriSocket;
  PluginIdentity identity{"rdma", "10"};
  std::optional<hook::Engine> engine;  // nullopt: derived from the runtime's name
  hook::NodeSettings node;             // the member `engine` is not used
  // Value of NRI_PLUGIN_SOCKET, which a runtime sets if it starts this program and passes it a socket. nullopt: the
  // program connects to `socket`.
  std::optional<std::string> launched_socket;
  bool to_syslog = false;  // set with launched_socket: the runtime provides no stderr
};

inline base::Log plugin_log(const NriPluginOptions& options) {
  return options.to_syslog ? base::Log::to_syslog("rdma-nri") : base::Log::to_stderr("rdma-nri");
}

// Parses arguments and environment. variable: returns a variable of the environment, nullptr if it is not set. Errors:
// an unknown option, a malformed value.
Result<NriPluginOptions> parse_nri_options(std::span<char* const> arguments,
                                           const std::function<const char*(const char*)>& variable);

std::string nri_help();

}  // namespace shim
