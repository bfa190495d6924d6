#include "shim/nri/options.hpp"

#include <cerrno>
#include <string_view>
#include <utility>

#include "fabric/text.hpp"
#include "hook/base/take_option.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::printable;
using fabric::Result;

Error usage_error(std::string message) {
  return {std::move(message), EINVAL, "`rdma-nri --help` lists the options"};
}

Result<void> set_value(NriPluginOptions& options, std::string_view name, std::string value) {
  if (hook::set_node_option(options.node, name, value)) return {};
  if (name == "--socket") {
    options.socket = std::move(value);
  } else if (name == "--name") {
    options.identity.name = std::move(value);
  } else if (name == "--index") {
    options.identity.index = std::move(value);
  } else if (name == "--engine") {
    options.engine = hook::parse_engine(value);
    if (options.engine != hook::Engine::kContainerd && options.engine != hook::Engine::kCrio)
      return usage_error(fmt::format("--engine `{}`: expected containerd or crio", printable(value)));
  } else {
    return usage_error(fmt::format("unknown option `{}`", printable(name)));
  }
  return {};
}

// A runtime that starts the program gives it no arguments and three variables.
void take_environment(NriPluginOptions& options, const std::function<const char*(const char*)>& variable) {
  const char* const socket = variable("NRI_PLUGIN_SOCKET");
  if (!socket) return;
  options.launched_socket = socket;
  options.to_syslog = true;
  if (const char* const name = variable("NRI_PLUGIN_NAME")) options.identity.name = name;
  if (const char* const index = variable("NRI_PLUGIN_IDX")) options.identity.index = index;
}

}  // namespace

const char* const kNriHelp =
    R"(rdma-nri: gives containers of containerd and CRI-O their RDMA devices, as a plugin of the Node Resource Interface.

  rdma-nri [options]                      connects to the runtime, and again when it restarts
  /opt/nri/plugins/10-rdma                the same program, started by the runtime

Options:
  --socket PATH    the runtime's socket. Default: /var/run/nri/nri.sock
  --index NN       two digits: plugins are asked in this order. Default: 10
  --name NAME      Default: rdma
  --engine NAME    containerd or crio, of a runtime that calls itself otherwise
  --config FILE    in place of /etc/rdma-init: cluster/config.json, config.json and conf.d/*.json
  --root DIR       the node's /sys, /dev and /proc are below DIR
  --ledger DIR     in place of /run/rdma-hook
  --help, --version

Exit codes: 0 ended by SIGTERM or SIGINT, or by the runtime that started it; 1 failed; 2 usage.
)";

Result<NriPluginOptions> parse_nri_options(std::span<char* const> arguments,
                                           const std::function<const char*(const char*)>& variable) {
  NriPluginOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      return options;
    }
    if (argument == "--version") {
      options.version = true;
      return options;
    }
    auto option = TRY(hook::take_option(arguments, i, usage_error));
    TRY_VOID(set_value(options, option.name, std::move(option.value)));
  }
  take_environment(options, variable);
  if (auto identity = check_identity(options.identity); !identity) return usage_error(identity.error().message);
  return options;
}

}  // namespace shim
