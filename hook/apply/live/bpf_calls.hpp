// The five commands of bpf(2) that the device programs of a cgroup need; no libbpf for that.
//
// Every call passes a full, zeroed union bpf_attr: Linux 6.17 to 7.1 write query.revision behind a shorter one.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <span>
#include <vector>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/apply/live/bpf_program.hpp"

namespace hook {

struct AttachedPrograms {
  std::vector<std::uint32_t> ids;  // in the order in which they run
  std::uint32_t attach_flags = 0;  // BPF_F_ALLOW_MULTI, BPF_F_ALLOW_OVERRIDE or 0
};

// The device programs attached to a cgroup itself. EINVAL: a kernel without CONFIG_CGROUP_BPF. Needs CAP_NET_ADMIN or
// CAP_SYS_ADMIN.
fabric::Result<AttachedPrograms> query_device_programs(int cgroup);

// ENOENT: it is gone. Needs CAP_SYS_ADMIN.
fabric::Result<fabric::UniqueFd> open_program(std::uint32_t id);

// Its instructions as the verifier left them; maybe none, or zeros (is_readable()).
fabric::Result<BpfProgram> read_program(int program);

// On kernels before 5.11 it is charged to RLIMIT_MEMLOCK.
fabric::Result<fabric::UniqueFd> load_device_program(const BpfProgram& program);

// Puts a program into the place of another one, at once. ENOENT: the other one is gone. attach_flags: as queried.
fabric::Result<void> replace_device_program(int cgroup, int program, int old_program, std::uint32_t attach_flags);

// Attaches one more; a new one beside others makes the cgroup stricter, never laxer.
fabric::Result<void> attach_device_program(int cgroup, int program);

}  // namespace hook
