// Device access in cgroups. v1: a whitelist (Documentation/admin-guide/cgroup-v1/devices.rst). v2: BPF programs on the
// container's group and on the groups above it, which must all allow: one more program never helps, so those that deny
// are replaced by ones that also allow our devices.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/apply/live/steps.hpp"
#include "hook/base/process/cgroup.hpp"

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

// Adds what is missing. Does nothing in the hierarchy's root, which restricts nothing. Errors: a group above does not
// allow the device.
fabric::Result<DeviceChange> allow_devices_v1(const Cgroup& cgroup, std::span<const DeviceNumber> devices);

// Replaces, atomically, in the container's own group, and in the scope around it where that was made for it too; a
// program that allows the devices already is left alone, and where there is none nothing is needed. Errors: a group
// above (a slice) denies, which is not ours to change; a program that the kernel does not show; no right to ask
// (EPERM).
fabric::Result<DeviceChange> allow_devices_v2(const Cgroup& cgroup, std::span<const DeviceNumber> devices);

}  // namespace hook
