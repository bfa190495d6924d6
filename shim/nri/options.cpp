#include "shim/nri/options.hpp"

#include <cerrno>
#include <string_view>

#include "hook/grant/node_options.hpp"

namespace shim {
namespace {

Result<void> set_socket(NriPluginOptions& options, std::string_view value) {
  options.socket = value;
  return {};
}

template <std::string PluginIdentity::*member>
Result<void> set_identity(NriPluginOptions& options, std::string_view value) {
  options.identity.*member = value;
  return {};
}

std::vector<std::string_view> engine_words() {
  return {hook::to_string(hook::Engine::kContainerd), hook::to_string(hook::Engine::kCrio)};
}

Result<void> set_engine(NriPluginOptions& options, std::string_view value) {
  TRY_VOID(base::check_word("engine", value, engine_words()));
  options.engine = hook::parse_engine(value);
  return {};
}

constexpr base::Option<NriPluginOptions> kOptions[] = {
    {"socket", "PATH", "the runtime's socket (/var/run/nri/nri.sock)", set_socket},
    {"index", "NN", "two digits: runtimes call plugins in this order (10)", set_identity<&PluginIdentity::index>},
    {"name", "NAME", "the plugin's name (rdma)", set_identity<&PluginIdentity::name>},
    {"engine", "NAME", "containerd or crio, if the runtime has another name", set_engine},
    hook::kConfigOption<NriPluginOptions>,
    hook::kRootOption<NriPluginOptions>,
    hook::kLedgerOption<NriPluginOptions>,
    hook::kProbeOption<NriPluginOptions>,
    hook::kHelpOption<NriPluginOptions>,
    hook::kVersionOption<NriPluginOptions>};

// Reads the environment. A runtime that starts the program passes three variables instead of arguments.
void take_environment(NriPluginOptions& options, const std::function<const char*(const char*)>& variable) {
  const char* const socket = variable("NRI_PLUGIN_SOCKET");
  if (!socket) return;
  options.launched_socket = socket;
  // stderr is of no use: NRI connects it to /dev/null if the runtime starts the plugin.
  options.to_syslog = true;
  if (const char* const name = variable("NRI_PLUGIN_NAME")) options.identity.name = name;
  if (const char* const index = variable("NRI_PLUGIN_IDX")) options.identity.index = index;
}

}  // namespace

std::string nri_help() {
  constexpr std::size_t kText = 34;
  return base::wrapped(
             "rdma-nri: adds RDMA devices to containers of containerd and CRI-O, as a plugin of the Node Resource "
             "Interface.") +
         "\n" +
         base::help_lines("  rdma-nri [options]", "connects to the runtime, and again after it restarts", kText) +
         base::help_lines("  rdma-nri --probe", "prints whether it is connected to the runtime", kText) +
         base::help_lines("  /opt/nri/plugins/10-rdma", "the same program, started by the runtime", kText) +
         "\nOptions (in brackets the default):\n" +
         base::option_help(std::span<const base::Option<NriPluginOptions>>(kOptions)) + "\n" +
         base::wrapped(
             "Exit codes: 0 ended by SIGTERM or SIGINT, or by the runtime that started it; 1 failed, or not ready; 2 "
             "usage.");
}

Result<NriPluginOptions> parse_nri_options(std::span<char* const> arguments,
                                           const std::function<const char*(const char*)>& variable) {
  NriPluginOptions options;
  TRY_VOID(hook::apply_options<NriPluginOptions>(kOptions, arguments, "rdma-nri", options));
  if (options.help || options.version || options.probe) return options;
  take_environment(options, variable);
  if (auto identity = check_identity(options.identity); !identity)
    return Error{identity.error().message, EINVAL, "`rdma-nri --help` lists the options"};
  return options;
}

}  // namespace shim
