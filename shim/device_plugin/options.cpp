#include "shim/device_plugin/options.hpp"

#include <sys/un.h>

#include <cerrno>

#include "fabric/text.hpp"
#include "hook/grant/node_options.hpp"

namespace shim {
namespace {

using fabric::Result;

constexpr std::size_t kLongestSocketName = 64;  // socket_name()

Result<void> set_directory(DevicePluginSettings& settings, std::string_view value) {
  if (!value.starts_with('/') || value.size() + kLongestSocketName >= sizeof(sockaddr_un::sun_path))
    return fabric::make_error("--plugins `{}`: expected an absolute path that a socket's name has room behind",
                              fabric::printable(value));
  settings.directory = value;
  return {};
}

constexpr fabric::Option<DevicePluginSettings> kOptions[] = {
    {"plugins", "DIR", "where the kubelet's socket is (/var/lib/kubelet/device-plugins)", set_directory},
    hook::kConfigOption<DevicePluginSettings>,
    hook::kRootOption<DevicePluginSettings>,
    hook::kLedgerOption<DevicePluginSettings>,
    hook::kHelpOption<DevicePluginSettings>,
    hook::kVersionOption<DevicePluginSettings>};

}  // namespace

std::string device_plugin_help() {
  return fabric::wrapped(
             "rdma-device-plugin: has the kubelet count HCAs as a resource, as a device plugin of Kubernetes.") +
         "\n" +
         fabric::help_lines("  rdma-device-plugin [options]",
                            "registers with the kubelet, and again when that restarts", 33) +
         "\nOptions (in brackets the default):\n" +
         fabric::option_help(std::span<const fabric::Option<DevicePluginSettings>>(kOptions)) +
         "\nExit codes: 0 ended by SIGTERM or SIGINT; 1 failed; 2 usage.\n";
}

Result<DevicePluginSettings> parse_device_plugin_options(std::span<char* const> arguments) {
  DevicePluginSettings settings;
  TRY_VOID(hook::apply_options<DevicePluginSettings>(kOptions, arguments, "rdma-device-plugin", settings));
  return settings;
}

}  // namespace shim
