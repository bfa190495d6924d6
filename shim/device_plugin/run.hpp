// rdma-device-plugin's life: announce, register, and register again.
#pragma once

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "shim/device_plugin/options.hpp"

namespace shim {

// Until SIGTERM or SIGINT. A kubelet that is not there, or goes away, is waited for; so are a configuration that is
// right, room on a full disk, and another instance that has the kubelet's directory. Errors: what no waiting mends.
fabric::Result<void> run_device_plugin(const DevicePluginSettings& settings, const hook::Log& log);

}  // namespace shim
