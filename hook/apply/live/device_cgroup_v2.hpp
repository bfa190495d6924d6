// Device access in cgroup v2: BPF programs on the container's group and on the groups above it, which must all allow.
// One more program therefore never helps; those that deny are replaced by ones that also allow our devices.
#pragma once

#include <span>

#include "fabric/result.hpp"
#include "hook/apply/live/cgroup.hpp"
#include "hook/apply/live/device_cgroup_v1.hpp"
#include "hook/apply/live/live_steps.hpp"

namespace hook {

// Replaces, atomically, in the container's own group, and in the scope around it where that was made for it too; a
// program that allows the devices already is left alone, and where there is none nothing is needed. Errors: a group
// above (a slice) denies, which is not ours to change; a program that the kernel does not show; no right to ask
// (EPERM).
fabric::Result<DeviceChange> allow_devices_v2(const Cgroup& cgroup, std::span<const DeviceNumber> devices);

}  // namespace hook
