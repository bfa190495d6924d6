#include "hook/apply/live/bpf_calls.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace hook {
namespace {

using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

static_assert(sizeof(bpf_attr) >= 64, "query.revision of Linux 6.17 lies at offset 56");

constexpr std::size_t kMostPrograms = 64;            // BPF_CGROUP_MAX_PROGS
constexpr std::size_t kMostInstructions = 1U << 20;  // BPF_COMPLEXITY_LIMIT_INSNS
constexpr char kLicense[] = "GPL";
constexpr char kName[] = "rdma_allow";

bpf_attr zeroed() {
  bpf_attr attr;
  std::memset(&attr, 0, sizeof attr);  // padding and unnamed members too
  return attr;
}

int call_bpf(int command, bpf_attr& attr) {
  long result = 0;
  do {
    result = syscall(SYS_bpf, command, &attr, sizeof attr);
  } while (result < 0 && errno == EAGAIN);  // the verifier was interrupted by a signal
  return static_cast<int>(result);
}

std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

Result<void> read_info(int program, bpf_prog_info& info) {
  bpf_attr attr = zeroed();
  attr.info.bpf_fd = static_cast<std::uint32_t>(program);
  attr.info.info_len = sizeof info;
  attr.info.info = address_of(&info);
  if (call_bpf(BPF_OBJ_GET_INFO_BY_FD, attr) < 0) return sys_error(errno, "cannot read a device program");
  return {};
}

Result<void> attach(int cgroup, int program, std::uint32_t flags, int old_program) {
  bpf_attr attr = zeroed();
  attr.target_fd = static_cast<std::uint32_t>(cgroup);
  attr.attach_bpf_fd = static_cast<std::uint32_t>(program);
  attr.attach_type = BPF_CGROUP_DEVICE;
  attr.attach_flags = flags;
  if ((flags & BPF_F_REPLACE) != 0) attr.replace_bpf_fd = static_cast<std::uint32_t>(old_program);
  if (call_bpf(BPF_PROG_ATTACH, attr) < 0) return sys_error(errno, "cannot attach a device program");
  return {};
}

Result<void> detach(int cgroup, int program) {
  bpf_attr attr = zeroed();
  attr.target_fd = static_cast<std::uint32_t>(cgroup);
  attr.attach_bpf_fd = static_cast<std::uint32_t>(program);
  attr.attach_type = BPF_CGROUP_DEVICE;
  if (call_bpf(BPF_PROG_DETACH, attr) < 0 && errno != ENOENT) {
    return sys_error(errno, "cannot detach a device program");
  }
  return {};
}

}  // namespace

Result<AttachedPrograms> query_device_programs(int cgroup) {
  std::array<std::uint32_t, kMostPrograms> ids{};
  bpf_attr attr = zeroed();
  attr.query.target_fd = static_cast<std::uint32_t>(cgroup);
  attr.query.attach_type = BPF_CGROUP_DEVICE;
  attr.query.prog_ids = address_of(ids.data());
  attr.query.prog_cnt = ids.size();
  if (call_bpf(BPF_PROG_QUERY, attr) < 0) return sys_error(errno, "cannot ask for the device programs of a cgroup");
  const std::size_t count = std::min<std::size_t>(attr.query.prog_cnt, ids.size());
  return AttachedPrograms{{ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)}, attr.query.attach_flags};
}

Result<UniqueFd> open_program(std::uint32_t id) {
  bpf_attr attr = zeroed();
  attr.prog_id = id;
  UniqueFd fd(call_bpf(BPF_PROG_GET_FD_BY_ID, attr));  // always close-on-exec
  if (!fd.ok()) return sys_error(errno, "cannot open the BPF program `{}`", id);
  return fd;
}

Result<BpfProgram> read_program(int program) {
  bpf_prog_info info{};
  TRY_VOID(read_info(program, info));
  const std::size_t count = info.xlated_prog_len / sizeof(bpf_insn);
  if (count > kMostInstructions) return sys_error(E2BIG, "cannot read a device program");
  BpfProgram instructions(count);
  if (count == 0) return instructions;
  info = {};
  info.xlated_prog_len = static_cast<std::uint32_t>(count * sizeof(bpf_insn));
  info.xlated_prog_insns = address_of(instructions.data());
  TRY_VOID(read_info(program, info));
  // The kernel clears the address where it may not show the instructions (bpf_dump_raw_ok()).
  if (info.xlated_prog_insns == 0) instructions.clear();
  return instructions;
}

Result<UniqueFd> load_device_program(const BpfProgram& program) {
  bpf_attr attr = zeroed();
  attr.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  attr.insns = address_of(program.data());
  attr.insn_cnt = static_cast<std::uint32_t>(program.size());
  attr.license = address_of(kLicense);
  std::memcpy(attr.prog_name, kName, sizeof kName);
  UniqueFd fd(call_bpf(BPF_PROG_LOAD, attr));
  if (!fd.ok()) return sys_error(errno, "cannot load a device program of {} instructions", program.size());
  return fd;
}

Result<void> replace_device_program(int cgroup, int program, int old_program, std::uint32_t attach_flags) {
  // Without ALLOW_MULTI a cgroup has one program, and attaching another one replaces it.
  if ((attach_flags & BPF_F_ALLOW_MULTI) == 0) return attach(cgroup, program, attach_flags, -1);
  auto replaced = attach(cgroup, program, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, old_program);
  if (replaced || replaced.error().code != EINVAL) return replaced;
  // Before Linux 5.6: both for a moment, which is stricter than either; never none.
  TRY_VOID(attach_device_program(cgroup, program));
  return detach(cgroup, old_program);
}

Result<void> attach_device_program(int cgroup, int program) {
  return attach(cgroup, program, BPF_F_ALLOW_MULTI, -1);
}

}  // namespace hook
