// The command line of rdma-nri, and what a runtime that starts it says in the environment.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "hook/base/log.hpp"
#include "hook/grant/node.hpp"
#include "hook/oci/engine.hpp"
#include "shim/nri/wire/session.hpp"
#include "shim/result.hpp"

namespace shim {

inline constexpr const char* kNriSocket = "/var/run/nri/nri.sock";

struct NriPluginOptions {
  bool help = false;
  bool version = false;
  std::string socket = kNriSocket;
  PluginIdentity identity{"rdma", "10"};
  std::optional<hook::Engine> engine;  // nullopt: told by the runtime's name
  hook::NodeSettings node;             // but for its engine
  // NRI_PLUGIN_SOCKET: the runtime has started this program and handed it its socket; nullopt: connect to `socket`.
  std::optional<std::string> launched_socket;
  bool to_syslog = false;  // then: it has no stderr
};

inline hook::Log plugin_log(const NriPluginOptions& options) {
  return options.to_syslog ? hook::Log::to_syslog("rdma-nri") : hook::Log::to_stderr("rdma-nri");
}

// variable: a variable of the environment, nullptr if it is not set. Errors: an unknown option, a malformed value.
Result<NriPluginOptions> parse_nri_options(std::span<char* const> arguments,
                                           const std::function<const char*(const char*)>& variable);

std::string nri_help();

}  // namespace shim
