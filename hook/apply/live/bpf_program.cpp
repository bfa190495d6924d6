#include "hook/apply/live/bpf_program.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace hook {

bpf_insn instruction(int code, int dst, int src, int off, std::int64_t imm) {
  bpf_insn insn{};
  insn.code = static_cast<__u8>(code);
  insn.dst_reg = static_cast<__u8>(dst & 0xf);
  insn.src_reg = static_cast<__u8>(src & 0xf);
  insn.off = static_cast<__s16>(off);
  insn.imm = static_cast<__s32>(imm);
  return insn;
}

namespace {

// Of struct bpf_cgroup_dev_ctx.
constexpr std::int16_t kAccessTypeOffset = 0;
constexpr std::int16_t kMajorOffset = 4;
constexpr std::int16_t kMinorOffset = 8;

bool same(const bpf_insn& left, const bpf_insn& right) {
  return std::memcmp(&left, &right, sizeof left) == 0;
}

// r1 is the context and stays; r0 and r2 to r5 are free, because a program may not read them before it writes them.
constexpr std::size_t kHeadLength = 7;
constexpr std::size_t kRuleLength = 4;

std::array<bpf_insn, kHeadLength> head(std::size_t rules) {
  const int rest = static_cast<int>(rules * kRuleLength);
  return {
      instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, kAccessTypeOffset, 0),
      instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_3, BPF_REG_1, kMajorOffset, 0),
      instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_4, BPF_REG_1, kMinorOffset, 0),
      // Without effect ("RDMA"): together with the rest of the head it is a mark that nobody else's program has.
      instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_5, 0, 0, 0x52444d41),
      instruction(BPF_JMP | BPF_JSET | BPF_K, BPF_REG_2, 0, rest + 2, BPF_DEVCG_ACC_MKNOD << kAccessShift),
      instruction(BPF_ALU | BPF_AND | BPF_K, BPF_REG_2, 0, 0, 0xffff),
      instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_2, 0, rest, BPF_DEVCG_DEV_CHAR),
  };
}

std::array<bpf_insn, kRuleLength> rule(const DeviceNumber& device) {
  return {
      instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_3, 0, 3, device.major),
      instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_4, 0, 2, device.minor),
      instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1),
      instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
  };
}
}  // namespace

BpfProgram with_allowed(std::span<const bpf_insn> program, std::span<const DeviceNumber> devices) {
  std::vector<DeviceNumber> all;
  if (auto old = find_prologue(program)) {
    all = std::move(old->devices);
    program = program.subspan(old->length);
  }
  for (const DeviceNumber& device : devices) {
    if (std::find(all.begin(), all.end(), device) == all.end()) all.push_back(device);
  }
  BpfProgram result;
  result.reserve(kHeadLength + kRuleLength * all.size() + program.size());
  for (const bpf_insn& insn : head(all.size()))
    result.push_back(insn);
  for (const DeviceNumber& device : all) {
    for (const bpf_insn& insn : rule(device))
      result.push_back(insn);
  }
  result.insert(result.end(), program.begin(), program.end());
  return result;
}

std::optional<Prologue> find_prologue(std::span<const bpf_insn> program) {
  if (program.size() < kHeadLength) return std::nullopt;
  const int rest = program[kHeadLength - 1].off;  // the instructions of the rules
  if (rest < 0 || static_cast<std::size_t>(rest) % kRuleLength != 0) return std::nullopt;
  const std::size_t rules = static_cast<std::size_t>(rest) / kRuleLength;
  const std::size_t length = kHeadLength + rules * kRuleLength;
  const auto expected = head(rules);
  if (program.size() < length || !std::equal(expected.begin(), expected.end(), program.begin(), same)) {
    return std::nullopt;
  }
  Prologue prologue{{}, length};
  for (std::size_t at = kHeadLength; at < length; at += kRuleLength) {
    const DeviceNumber device{static_cast<std::uint32_t>(program[at].imm),
                              static_cast<std::uint32_t>(program[at + 1].imm)};
    const auto wanted = rule(device);
    if (!std::equal(wanted.begin(), wanted.end(), program.begin() + static_cast<std::ptrdiff_t>(at), same)) {
      return std::nullopt;
    }
    prologue.devices.push_back(device);
  }
  return prologue;
}

bool is_readable(std::span<const bpf_insn> program) {
  const bpf_insn zero{};
  return std::any_of(program.begin(), program.end(), [&](const bpf_insn& insn) { return !same(insn, zero); });
}

}  // namespace hook
