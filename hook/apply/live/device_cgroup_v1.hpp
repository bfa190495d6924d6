// The device whitelist of cgroup v1 (Documentation/admin-guide/cgroup-v1/devices.rst).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/apply/live/cgroup.hpp"
#include "hook/apply/live/live_steps.hpp"

namespace hook {

// Whether the text of devices.list grants reading and writing of a character device by itself. kAll: the group allows
// everything but a list of exceptions that the kernel does not show.
enum class V1Grant { kNo, kYes, kAll };
V1Grant find_v1_grant(std::string_view devices_list, const DeviceNumber& device);

// "c 231:192 rw".
std::string v1_rule(const DeviceNumber& device);

struct DeviceChange {
  bool changed = false;
  bool undone_by_systemd = false;  // when it applies the unit's own rules again
  std::vector<std::string> warnings;
};

// Adds what is missing. Does nothing in the hierarchy's root, which restricts nobody. Errors: a group above does not
// allow the device.
fabric::Result<DeviceChange> allow_devices_v1(const Cgroup& cgroup, std::span<const DeviceNumber> devices);

}  // namespace hook
