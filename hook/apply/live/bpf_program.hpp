// Evaluates and extends programs of type BPF_PROG_TYPE_CGROUP_DEVICE as values.
//
// The kernel (Linux 4.15, include/uapi/linux/bpf.h) runs every program of a cgroup and its ancestors when a device node
// is opened or made. The context is struct bpf_cgroup_dev_ctx, the result 1 (allow) or 0 (EPERM). All programs must
// allow.
#pragma once

#include <linux/bpf.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hook/apply/live/steps.hpp"

namespace hook {

// access_type of struct bpf_cgroup_dev_ctx is (access << 16) | type.
inline constexpr int kAccessShift = 16;

using BpfProgram = std::vector<bpf_insn>;
// Returns an instruction. code: BPF_... of linux/bpf.h; all arguments are truncated to their fields.
bpf_insn instruction(int code, int dst = 0, int src = 0, int off = 0, std::int64_t imm = 0);

struct DeviceAccess {
  std::uint32_t type = BPF_DEVCG_DEV_CHAR;
  std::uint32_t access = BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE;  // flags of one open(2)
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
};

enum class Verdict { kAllow, kDeny, kUnknown };

// Returns the verdict of a program. The interpreter supports loads from the context, arithmetic, forward jumps and
// exit: all instructions that runc 1.1 to 1.5, crun 1.8 to 1.29 and systemd 232 to 257 emit. kUnknown: another
// instruction, such as a call or a map access, or a result that depends on an unknown value.
Verdict evaluate(std::span<const bpf_insn> program, const DeviceAccess& access);

// Returns a program that begins with a prologue and continues with `program`. The prologue allows reading and writing
// of these character devices, not mknod. `program` decides each other access. If `program` already begins with a
// prologue, its devices are added to the new one.
BpfProgram with_allowed(std::span<const bpf_insn> program, std::span<const DeviceNumber> devices);

// The prologue of with_allowed(), recognized by its instructions.
struct Prologue {
  std::vector<DeviceNumber> devices;
  std::size_t length = 0;  // instructions
};
std::optional<Prologue> find_prologue(std::span<const bpf_insn> program);

// Returns whether the kernel returned the instructions: with net.core.bpf_jit_harden=2 it returns none or zeros.
bool is_readable(std::span<const bpf_insn> program);

}  // namespace hook
