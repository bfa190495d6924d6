// Main loop of rdma-device-plugin: announces resources, registers them, and registers again after a restart of the
// kubelet.
#pragma once

#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "hook/grant/node.hpp"

namespace shim {

inline constexpr const char* kProgram = "rdma-device-plugin";

struct DevicePluginSettings {
  bool help = false;
  bool version = false;
  bool probe = false;
  std::string directory = "/var/lib/kubelet/device-plugins";  // directory of the sockets of kubelet and plugin
  hook::NodeSettings node;
};

// Runs until SIGTERM or SIGINT. Waits while the kubelet is not running, while the configuration is invalid, while the
// disk is full, and while another instance has locked the kubelet's directory. Errors: failures that waiting cannot
// resolve.
Result<void> run_device_plugin(const DevicePluginSettings& settings, const base::Log& log);

}  // namespace shim
