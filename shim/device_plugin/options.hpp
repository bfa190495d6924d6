// The command line of rdma-device-plugin.
#pragma once

#include <span>
#include <string>

#include "fabric/result.hpp"
#include "hook/grant/node.hpp"

namespace shim {

struct DevicePluginSettings {
  bool help = false;
  bool version = false;
  std::string directory = "/var/lib/kubelet/device-plugins";  // of the kubelet's socket and ours
  hook::NodeSettings node;
};

// Errors: an unknown option, a value that is missing or of no use.
fabric::Result<DevicePluginSettings> parse_device_plugin_options(std::span<char* const> arguments);

std::string device_plugin_help();

}  // namespace shim
