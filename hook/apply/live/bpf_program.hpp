// Programs of type BPF_PROG_TYPE_CGROUP_DEVICE as values: what one answers, and one that allows more than another.
//
// The kernel (Linux 4.15, include/uapi/linux/bpf.h) runs every program of a cgroup and its ancestors when a device node
// is opened or made; the context is struct bpf_cgroup_dev_ctx, the answer 1 (allow) or 0 (EPERM), and all must allow.
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
// code: BPF_... of linux/bpf.h; the rest is cut to its width.
bpf_insn instruction(int code, int dst = 0, int src = 0, int off = 0, std::int64_t imm = 0);

struct DeviceAccess {
  std::uint32_t type = BPF_DEVCG_DEV_CHAR;
  std::uint32_t access = BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE;  // all of them in one open(2)
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
};

enum class Verdict { kAllow, kDeny, kUnknown };

// What a program answers. It is interpreted: loads from the context, arithmetic, forward jumps, exit, which is all that
// runc 1.1 to 1.5, crun 1.8 to 1.29 and systemd 232 to 257 emit. kUnknown: it does something else (a call, a map).
Verdict evaluate(std::span<const bpf_insn> program, const DeviceAccess& access);

// The program with instructions in front that allow these character devices for reading and writing, not for mknod, and
// leave every other question to it. A prologue that is there already is replaced by one for the devices of both.
BpfProgram with_allowed(std::span<const bpf_insn> program, std::span<const DeviceNumber> devices);

// The prologue of with_allowed(), recognised by its instructions.
struct Prologue {
  std::vector<DeviceNumber> devices;
  std::size_t length = 0;  // instructions
};
std::optional<Prologue> find_prologue(std::span<const bpf_insn> program);

// Whether the kernel gave the instructions: with net.core.bpf_jit_harden=2 it gives none, or zeros.
bool is_readable(std::span<const bpf_insn> program);

}  // namespace hook
