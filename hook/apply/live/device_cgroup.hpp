// Device access in cgroups. v1: a whitelist (Documentation/admin-guide/cgroup-v1/devices.rst). v2: BPF programs on the
// container's group and on the groups above it, which must all allow: one more program never helps, so those that deny
// are replaced by ones that also allow our devices.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/apply/live/bpf_program.hpp"
#include "hook/apply/live/steps.hpp"
#include "hook/base/process/cgroup.hpp"
#include "hook/base/result.hpp"

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
Result<DeviceChange> allow_devices_v1(const Cgroup& cgroup, std::span<const DeviceNumber> devices);

// Replaces, atomically, in the container's own group, and in the scope around it where that was made for it too; a
// program that allows the devices already is left alone, and where there is none nothing is needed. Errors: a group
// above (a slice) denies, which is not ours to change; a program that the kernel does not show; no right to ask
// (EPERM).
Result<DeviceChange> allow_devices_v2(const Cgroup& cgroup, std::span<const DeviceNumber> devices);

// The five commands of bpf(2) that the device programs of a cgroup need; no libbpf for that.
//
// Every call passes a full, zeroed union bpf_attr: Linux 6.17 to 7.1 write query.revision behind a shorter one.

struct AttachedPrograms {
  std::vector<std::uint32_t> ids;  // in the order in which they run
  std::uint32_t attach_flags = 0;  // BPF_F_ALLOW_MULTI, BPF_F_ALLOW_OVERRIDE or 0
};

// The device programs attached to a cgroup itself. EINVAL: a kernel without CONFIG_CGROUP_BPF. Needs CAP_NET_ADMIN or
// CAP_SYS_ADMIN.
Result<AttachedPrograms> query_device_programs(int cgroup);

// ENOENT: it is gone. Needs CAP_SYS_ADMIN.
Result<fabric::UniqueFd> open_program(std::uint32_t id);

// Its instructions as the verifier left them; maybe none, or zeros (is_readable()).
Result<BpfProgram> read_program(int program);

// On kernels before 5.11 it is charged to RLIMIT_MEMLOCK.
Result<fabric::UniqueFd> load_device_program(const BpfProgram& program);

// Puts a program into the place of another one, at once. ENOENT: the other one is gone. attach_flags: as queried.
Result<void> replace_device_program(int cgroup, int program, int old_program, std::uint32_t attach_flags);

// Attaches one more; a new one beside others makes the cgroup stricter, never laxer.
Result<void> attach_device_program(int cgroup, int program);

}  // namespace hook
