// Allows devices in cgroups. v1: a whitelist (Documentation/admin-guide/cgroup-v1/devices.rst). v2: BPF programs on the
// container's cgroup and its ancestors. An access needs the consent of each program, so a further program cannot allow
// more. Therefore a program that denies is replaced by one that also allows the devices.
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

// Returns whether a text of devices.list allows reading and writing of a character device. kAll: the cgroup allows all
// devices except a list that the kernel does not print.
enum class V1Grant { kNo, kYes, kAll };
V1Grant find_v1_grant(std::string_view devices_list, const DeviceNumber& device);

// Returns "c 231:192 rw".
std::string v1_rule(const DeviceNumber& device);

struct DeviceChange {
  bool changed = false;
  bool undone_by_systemd = false;  // systemd will undo it when it applies the unit's rules again
  std::vector<std::string> warnings;
};

// Adds the missing devices. Changes nothing in the root of the hierarchy, which restricts no device. Errors: a parent
// cgroup does not allow the device.
Result<DeviceChange> allow_devices_v1(const Cgroup& cgroup, std::span<const DeviceNumber> devices);

// Replaces denying programs (replace_device_program()) in the container's own cgroup, and in the scope above it if
// systemd made the scope for this container. A program that allows the devices stays; a cgroup without a program needs
// no change. Errors: a parent cgroup (a slice) denies; the kernel hides a program; EPERM, the caller may not query
// programs.
Result<DeviceChange> allow_devices_v2(const Cgroup& cgroup, std::span<const DeviceNumber> devices);

// The commands of bpf(2) for device programs of a cgroup; libbpf would be larger.
//
// Each call passes a full, zeroed union bpf_attr: Linux 6.17 to 7.1 write query.revision even behind the end of a
// shorter one.

struct AttachedPrograms {
  std::vector<std::uint32_t> ids;  // in the order of execution
  std::uint32_t attach_flags = 0;  // BPF_F_ALLOW_MULTI, BPF_F_ALLOW_OVERRIDE or 0
};

// Returns the device programs attached to a cgroup itself. Errors: EINVAL, a kernel without CONFIG_CGROUP_BPF. Requires
// CAP_NET_ADMIN or CAP_SYS_ADMIN.
Result<AttachedPrograms> query_device_programs(int cgroup);

// Opens a program by its id. Errors: ENOENT, it is gone. Requires CAP_SYS_ADMIN.
Result<fabric::UniqueFd> open_program(std::uint32_t id);

// Returns the instructions as the verifier left them; possibly none or zeros (is_readable()).
Result<BpfProgram> read_program(int program);

// Loads a program. Kernels before 5.11 charge it to RLIMIT_MEMLOCK.
Result<fabric::UniqueFd> load_device_program(const BpfProgram& program);

// Replaces a program: atomically since Linux 5.6; before, both are attached for a moment, which allows no more than
// either. attach_flags: as queried. Errors: ENOENT, the old program is gone.
Result<void> replace_device_program(int cgroup, int program, int old_program, std::uint32_t attach_flags);

// Attaches a further program, which makes the cgroup stricter, never laxer.
Result<void> attach_device_program(int cgroup, int program);

}  // namespace hook
