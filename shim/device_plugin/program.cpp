#include "shim/device_plugin/program.hpp"

#include <span>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "base/unix_socket.hpp"
#include "hook/grant/node_options.hpp"
#include "shim/device_plugin/run.hpp"
#include "shim/kubelet/wire/grpc_parts.hpp"

namespace {

using base::Result;
using shim::kProgram;

constexpr std::size_t kLongestSocketName = 64;  // upper limit of socket_name()

Result<void> set_directory(shim::DevicePluginSettings& settings, std::string_view value) {
  if (!value.starts_with('/') || value.size() + kLongestSocketName > base::kLongestSocketPath)
    return base::make_error("--plugins `{}`: expected an absolute path of at most {} bytes", base::printable(value),
                            base::kLongestSocketPath - kLongestSocketName);
  settings.directory = value;
  return {};
}

constexpr base::Option<shim::DevicePluginSettings> kOptions[] = {
    {"plugins", "DIR", "directory of the kubelet's socket (/var/lib/kubelet/device-plugins)", set_directory},
    hook::kConfigOption<shim::DevicePluginSettings>,
    hook::kRootOption<shim::DevicePluginSettings>,
    hook::kLedgerOption<shim::DevicePluginSettings>,
    hook::kProbeOption<shim::DevicePluginSettings>,
    hook::kHelpOption<shim::DevicePluginSettings>,
    hook::kVersionOption<shim::DevicePluginSettings>};

std::string help_text() {
  return base::wrapped(
             "rdma-device-plugin: announces HCAs to the kubelet as a resource, as a device plugin of Kubernetes.") +
         "\n" +
         base::help_lines("  rdma-device-plugin [options]", "registers with the kubelet, and again after it restarts",
                          33) +
         base::help_lines("  rdma-device-plugin --probe", "prints whether its resources are registered", 33) +
         "\nOptions (in brackets the default):\n" +
         base::option_help(std::span<const base::Option<shim::DevicePluginSettings>>(kOptions)) +
         "\nExit codes: 0 ended by SIGTERM or SIGINT; 1 failed, or not ready; 2 usage.\n";
}

// Errors: an unknown option, a missing or invalid value.
Result<shim::DevicePluginSettings> parse_options(std::span<char* const> arguments) {
  shim::DevicePluginSettings settings;
  TRY_VOID(hook::apply_options<shim::DevicePluginSettings>(kOptions, arguments, "rdma-device-plugin", settings));
  return settings;
}

bool work(const shim::DevicePluginSettings& settings) {
  const base::Log log = base::Log::to_stderr(kProgram);
  // silence_grpc() comes before any other call of gRPC, because gRPC would write to stderr.
  shim::silence_grpc();
  const auto done = shim::run_device_plugin(settings, log);
  if (!done) log.error(done.error());
  return done.has_value();
}

}  // namespace

int shim::device_plugin_program(std::span<char* const> arguments) {
  return hook::run_daemon(kProgram, parse_options(arguments), help_text, work);
}
