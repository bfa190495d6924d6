// Allows devices in cgroups. v1: a list of allowed devices (Documentation/admin-guide/cgroup-v1/devices.rst). v2: BPF
// programs on the container's cgroup and its ancestors. An access needs the consent of every program, so one more
// program cannot allow more. Therefore a program that denies a device is replaced by one that also allows it.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/cgroup.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/apply/live/bpf_program.hpp"
#include "hook/apply/live/steps.hpp"

namespace hook {

// Returns whether a text of devices.list allows processes to read and write a character device. kAll: the cgroup allows
// all devices, except a list that the kernel does not print.
enum class V1Grant { kNo, kYes, kAll };
V1Grant find_v1_grant(std::string_view devices_list, const DeviceNumber& device);

// Returns "c 231:192 rw".
std::string v1_rule(const DeviceNumber& device);

struct DeviceChange {
  bool changed = false;
  bool is_reset_by_systemd = false;  // systemd will reset the change when it writes the unit's rules again
  std::vector<std::string> warnings;
};

// directory, here and below: the open directory of the cgroup (open_cgroup()).
//
// Adds the missing devices to the cgroup's list. Does nothing in the root of the hierarchy, which restricts no device.
// Errors: a parent cgroup does not allow the device.
Result<DeviceChange> allow_devices_v1(const Cgroup& cgroup, int directory, std::span<const DeviceNumber> devices);

// Replaces programs that deny the devices (replace_device_program()) in the container's own cgroup, and in the scope
// above it if systemd made the scope for this container. A program that allows the devices stays; a cgroup without a
// program needs no change. Errors: the program of a parent cgroup (a slice) denies a device; the kernel hides a
// program; EPERM, the caller may not query programs.
Result<DeviceChange> allow_devices_v2(const Cgroup& cgroup, int directory, std::span<const DeviceNumber> devices);

// The commands of bpf(2) for device programs of a cgroup. libbpf has them too, but would make the hook larger.
//
// Each call passes a whole, zeroed union bpf_attr. A shorter one would be unsafe: Linux 6.17 to 7.1 write
// query.revision even if it lies behind the end of the caller's union.

struct AttachedPrograms {
  std::vector<std::uint32_t> ids;  // ids of the programs in the order of execution
  std::uint32_t attach_flags = 0;  // BPF_F_ALLOW_MULTI, BPF_F_ALLOW_OVERRIDE or 0
};

// Returns the device programs that are attached to this cgroup, not those of its ancestors. Errors: EINVAL, a kernel
// without CONFIG_CGROUP_BPF. Requires CAP_NET_ADMIN or CAP_SYS_ADMIN.
Result<AttachedPrograms> query_device_programs(int cgroup);

// Opens a program by its id. Errors: ENOENT, it is gone. Requires CAP_SYS_ADMIN.
Result<base::UniqueFd> open_bpf_program(std::uint32_t id);

// Returns the instructions of a loaded program, as the kernel's verifier has changed them. The result may be empty or
// zeros (is_readable()).
Result<BpfProgram> read_program(int program);

// Loads a program. Kernels before 5.11 charge it to RLIMIT_MEMLOCK.
Result<base::UniqueFd> load_device_program(const BpfProgram& program);

// Replaces an attached program by another. Since Linux 5.6 this is atomic. Before, both programs are attached for a
// moment, and an access needs the consent of both. attach_flags: the result of the query. Errors: ENOENT, the old
// program is gone.
Result<void> replace_device_program(int cgroup, int program, int old_program, std::uint32_t attach_flags);

// Attaches one more program. The cgroup then allows the same devices as before or fewer.
Result<void> attach_device_program(int cgroup, int program);

}  // namespace hook
