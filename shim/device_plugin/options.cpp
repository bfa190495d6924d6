#include "shim/device_plugin/options.hpp"

#include <sys/un.h>

#include <cerrno>
#include <utility>

#include "hook/base/take_option.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::Result;

Error device_plugin_usage(std::string message) {
  return {std::move(message), EINVAL, "`rdma-device-plugin --help` lists the options"};
}

}  // namespace

const char* const kDevicePluginHelp =
    R"(rdma-device-plugin: has the kubelet count HCAs as a resource, as a device plugin of Kubernetes.

  rdma-device-plugin [options]            registers with the kubelet, and again when that restarts

Options:
  --plugins DIR    where the kubelet's socket is. Default: /var/lib/kubelet/device-plugins
  --config FILE    in place of /etc/rdma-init: cluster/config.json, config.json and conf.d/*.json
  --root DIR       the node's /sys is below DIR
  --ledger DIR     in place of /run/rdma-hook
  --help, --version

Exit codes: 0 ended by SIGTERM or SIGINT; 1 failed; 2 usage.
)";

Result<DevicePluginSettings> parse_device_plugin_options(std::span<char* const> arguments) {
  constexpr std::size_t kLongestSocketName = 64;  // socket_name()
  DevicePluginSettings settings;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      settings.help = true;
      return settings;
    }
    if (argument == "--version") {
      settings.version = true;
      return settings;
    }
    auto option = TRY(hook::take_option(arguments, i, device_plugin_usage));
    if (hook::set_node_option(settings.node, option.name, option.value)) continue;
    if (option.name != "--plugins")
      return device_plugin_usage(fmt::format("unknown option `{}`", fabric::printable(option.name)));
    if (!option.value.starts_with('/') || option.value.size() + kLongestSocketName >= sizeof(sockaddr_un::sun_path))
      return device_plugin_usage(
          fmt::format("--plugins `{}`: expected an absolute path that a socket's name has room behind",
                      fabric::printable(option.value)));
    settings.directory = std::move(option.value);
  }
  return settings;
}

}  // namespace shim
