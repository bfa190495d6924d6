// rdma-device-plugin's life: announce, register, and register again.
#pragma once

#include <string>

#include "hook/base/log.hpp"
#include "hook/grant/node.hpp"
#include "shim/result.hpp"

namespace shim {

struct DevicePluginSettings {
  bool help = false;
  bool version = false;
  std::string directory = "/var/lib/kubelet/device-plugins";  // of the kubelet's socket and ours
  hook::NodeSettings node;
};

// Until SIGTERM or SIGINT. A kubelet that is not there, or goes away, is waited for; so are a configuration that is
// right, room on a full disk, and another instance that has the kubelet's directory. Errors: what no waiting mends.
Result<void> run_device_plugin(const DevicePluginSettings& settings, const hook::Log& log);

}  // namespace shim
