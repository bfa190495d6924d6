// Evaluates and extends device programs (BPF_PROG_TYPE_CGROUP_DEVICE) as values; attaches none.
//
// The kernel (Linux 4.15, include/uapi/linux/bpf.h) runs every device program of a cgroup and its ancestors when a
// process of the cgroup opens or makes a device node. The program gets a struct bpf_cgroup_dev_ctx, and returns 1
// (allow) or 0 (EPERM). The access needs a 1 from all programs.
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
// Returns an instruction. code: BPF_... in linux/bpf.h; all arguments are truncated to their fields.
bpf_insn instruction(int code, int dst = 0, int src = 0, int off = 0, std::int64_t imm = 0);

struct DeviceAccess {
  std::uint32_t type = BPF_DEVCG_DEV_CHAR;
  std::uint32_t access = BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE;  // flags of one open(2)
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
};

enum class Verdict { kAllow, kDeny, kUnknown };

// Returns the verdict of a program. The interpreter supports loads from the context, arithmetic, forward jumps and
// exit: all instructions that device programs of runc 1.1 to 1.5, crun 1.8 to 1.29 and systemd 232 to 257 have.
// kUnknown: the program has another instruction, such as a call or a map access, or its result depends on an unknown
// value.
Verdict evaluate(std::span<const bpf_insn> program, const DeviceAccess& access);

// Returns a program that begins with a prologue and continues with `program`. The prologue allows processes to read and
// write these character devices, but not to make them (mknod). `program` decides about all other accesses. If `program`
// already begins with a prologue, the devices of that prologue are added to the new one.
BpfProgram with_allowed(std::span<const bpf_insn> program, std::span<const DeviceNumber> devices);

// The prologue that with_allowed() puts before a program.
struct Prologue {
  std::vector<DeviceNumber> devices;
  std::size_t length = 0;  // number of instructions
};
std::optional<Prologue> find_prologue(std::span<const bpf_insn> program);

// Returns false if the kernel has hidden the instructions: with net.core.bpf_jit_harden=2 it returns none, or only
// zeros.
bool is_readable(std::span<const bpf_insn> program);

}  // namespace hook
