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

// Offsets in struct bpf_cgroup_dev_ctx.
constexpr std::int16_t kAccessTypeOffset = 0;
constexpr std::int16_t kMajorOffset = 4;
constexpr std::int16_t kMinorOffset = 8;

bool same(const bpf_insn& left, const bpf_insn& right) {
  return std::memcmp(&left, &right, sizeof left) == 0;
}

// The prologue keeps register r1, which points to the context (struct bpf_cgroup_dev_ctx). The prologue may overwrite
// r0 and r2 to r5: the verifier accepts no program that reads them before it writes them.
constexpr std::size_t kHeadLength = 7;
constexpr std::size_t kRuleLength = 4;

// Returns the head of the prologue. The head loads the fields of the access, and jumps over the rules unless a process
// opens a character device.
std::array<bpf_insn, kHeadLength> head(std::size_t rules) {
  // Number of instructions to jump over, from the end of the head to the program behind the rules.
  const int rest = static_cast<int>(rules * kRuleLength);
  return {
      instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, kAccessTypeOffset, 0),
      instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_3, BPF_REG_1, kMajorOffset, 0),
      instruction(BPF_LDX | BPF_MEM | BPF_W, BPF_REG_4, BPF_REG_1, kMinorOffset, 0),
      // This instruction has no effect. The constant "RDMA" and the rest of the head are a mark that no other program
      // has.
      instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_5, 0, 0, 0x52444d41),
      instruction(BPF_JMP | BPF_JSET | BPF_K, BPF_REG_2, 0, rest + 2, BPF_DEVCG_ACC_MKNOD << kAccessShift),
      instruction(BPF_ALU | BPF_AND | BPF_K, BPF_REG_2, 0, 0, 0xffff),
      instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_2, 0, rest, BPF_DEVCG_DEV_CHAR),
  };
}

// Returns a rule: allow if major and minor are equal, otherwise continue with the next rule.
std::array<bpf_insn, kRuleLength> rule(const DeviceNumber& device) {
  return {
      instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_3, 0, 3, device.major),
      instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_4, 0, 2, device.minor),
      instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1),
      instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
  };
}

constexpr std::size_t kContextSize = 12;  // struct bpf_cgroup_dev_ctx: access_type, major, minor

struct Register {
  bool known = false;
  bool context = false;  // true: the register points to the context
  std::uint64_t value = 0;
};

// Interprets a device program for one access. An unknown value or instruction makes the verdict unknown.
class Machine {
 public:
  Machine(std::span<const bpf_insn> program, const DeviceAccess& access) : program_(program) {
    const std::uint32_t fields[] = {(access.access << kAccessShift) | access.type, access.major, access.minor};
    std::memcpy(context_.data(), fields, sizeof fields);
    registers_[BPF_REG_1].context = true;
  }

  Verdict run() {
    // Jumps only go forward, so the loop ends.
    for (std::size_t at = 0; at < program_.size();) {
      const bpf_insn& insn = program_[at];
      if (insn.code == (BPF_JMP | BPF_EXIT)) return verdict();
      std::size_t skip = 0;
      if (!step(insn, skip)) return Verdict::kUnknown;
      at += 1 + skip;
    }
    return Verdict::kUnknown;
  }

 private:
  Verdict verdict() const {
    const Register& result = registers_[BPF_REG_0];
    if (!result.known) return Verdict::kUnknown;
    // The kernel tests only the lowest bit of a program's result (__cgroup_bpf_check_dev_permission(),
    // BPF_PROG_RUN_ARRAY).
    return (result.value & 1) != 0 ? Verdict::kAllow : Verdict::kDeny;
  }

  // Executes one instruction. Returns false if it is not supported. skip: number of instructions to jump over.
  bool step(const bpf_insn& insn, std::size_t& skip) {
    // A register field has 4 bits, so it can name a register that does not exist.
    if (insn.dst_reg > BPF_REG_10 || insn.src_reg > BPF_REG_10) return false;
    switch (BPF_CLASS(insn.code)) {
      case BPF_LDX:
        return load(insn);
      case BPF_ALU:
        return arithmetic(insn, true);
      case BPF_ALU64:
        return arithmetic(insn, false);
      case BPF_JMP:
        return jump(insn, false, skip);
      case BPF_JMP32:
        return jump(insn, true, skip);
      default:
        return false;
    }
  }

  bool load(const bpf_insn& insn) {
    if (BPF_MODE(insn.code) != BPF_MEM || !registers_[insn.src_reg].context || insn.off < 0) return false;
    std::size_t size = 0;
    switch (BPF_SIZE(insn.code)) {
      case BPF_W:
        size = 4;
        break;
      case BPF_H:
        size = 2;
        break;
      case BPF_B:
        size = 1;
        break;
      default:
        return false;
    }
    const auto offset = static_cast<std::size_t>(insn.off);
    if (offset + size > kContextSize) return false;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t byte = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? size - 1 - i : i;
      // A load of 1 or 2 bytes reads a part of the field, in host byte order.
      value = (value << 8) | context_[offset + byte];
    }
    registers_[insn.dst_reg] = {true, false, value};
    return true;
  }

  // Returns the second operand; nullopt: unknown.
  std::optional<std::uint64_t> operand(const bpf_insn& insn) const {
    if (BPF_SRC(insn.code) == BPF_K) return static_cast<std::uint64_t>(std::int64_t{insn.imm});
    const Register& source = registers_[insn.src_reg];
    if (!source.known) return std::nullopt;
    return source.value;
  }

  bool arithmetic(const bpf_insn& insn, bool narrow) {
    Register& target = registers_[insn.dst_reg];
    // Newer kernels have signed moves and signed divisions, which set `off`. The interpreter does not support them.
    if (insn.off != 0) return false;
    // A 64-bit move may copy the pointer to the context, which has no known value.
    if (BPF_OP(insn.code) == BPF_MOV && BPF_SRC(insn.code) == BPF_X && !narrow) {
      target = registers_[insn.src_reg];
      return true;
    }
    const auto right = operand(insn);
    if (!right) return false;
    if (BPF_OP(insn.code) != BPF_MOV && !target.known) return false;
    const auto value = compute(BPF_OP(insn.code), target.value, *right, narrow);
    if (!value) return false;
    target = {true, false, narrow ? *value & UINT32_MAX : *value};
    return true;
  }

  static std::optional<std::uint64_t> compute(int operation, std::uint64_t left, std::uint64_t right, bool narrow) {
    if (narrow) {
      left &= UINT32_MAX;
      right &= UINT32_MAX;
    }
    // The kernel masks shifts (Documentation/bpf/standardization/instruction-set.rst).
    const std::uint64_t shift = right & (narrow ? 31U : 63U);
    switch (operation) {
      case BPF_MOV:
        return right;
      case BPF_ADD:
        return left + right;
      case BPF_SUB:
        return left - right;
      case BPF_AND:
        return left & right;
      case BPF_OR:
        return left | right;
      case BPF_XOR:
        return left ^ right;
      case BPF_LSH:
        return left << shift;
      case BPF_RSH:
        return left >> shift;
      default:
        return std::nullopt;
    }
  }

  bool jump(const bpf_insn& insn, bool narrow, std::size_t& skip) const {
    bool taken = true;
    if (insn.code != (BPF_JMP | BPF_JA)) {
      const Register& left = registers_[insn.dst_reg];
      const auto right = operand(insn);
      if (!left.known || !right) return false;
      const std::uint64_t mask = narrow ? UINT32_MAX : UINT64_MAX;
      const auto answer = compare(BPF_OP(insn.code), left.value & mask, *right & mask);
      if (!answer) return false;
      taken = *answer;
    }
    if (!taken) return true;
    if (insn.off < 0) return false;
    skip = static_cast<std::size_t>(insn.off);
    return true;
  }

  static std::optional<bool> compare(int operation, std::uint64_t left, std::uint64_t right) {
    switch (operation) {
      case BPF_JEQ:
        return left == right;
      case BPF_JNE:
        return left != right;
      case BPF_JGT:
        return left > right;
      case BPF_JGE:
        return left >= right;
      case BPF_JLT:
        return left < right;
      case BPF_JLE:
        return left <= right;
      case BPF_JSET:
        return (left & right) != 0;
      default:
        return std::nullopt;
    }
  }

  std::span<const bpf_insn> program_;
  std::array<unsigned char, kContextSize> context_{};
  std::array<Register, BPF_REG_10 + 1> registers_{};
};

}  // namespace

BpfProgram with_allowed(std::span<const bpf_insn> program, std::span<const DeviceNumber> devices) {
  std::vector<DeviceNumber> all;
  if (auto old = find_prologue(program)) {
    all = std::move(old->devices);
    program = program.subspan(old->length);
  }
  for (const DeviceNumber& device : devices)
    if (std::ranges::find(all, device) == all.end()) all.push_back(device);
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
  const int rest = program[kHeadLength - 1].off;  // number of instructions of the rules
  if (rest < 0 || static_cast<std::size_t>(rest) % kRuleLength != 0) return std::nullopt;
  // The last instruction of the prologue's head jumps over all rules, so the length of the jump gives the number of
  // rules.
  const std::size_t rules = static_cast<std::size_t>(rest) / kRuleLength;
  const std::size_t length = kHeadLength + rules * kRuleLength;
  const auto expected = head(rules);
  if (program.size() < length || !std::equal(expected.begin(), expected.end(), program.begin(), same))
    return std::nullopt;
  Prologue prologue{{}, length};
  for (std::size_t at = kHeadLength; at < length; at += kRuleLength) {
    const DeviceNumber device{static_cast<std::uint32_t>(program[at].imm),
                              static_cast<std::uint32_t>(program[at + 1].imm)};
    const auto wanted = rule(device);
    if (!std::equal(wanted.begin(), wanted.end(), program.begin() + static_cast<std::ptrdiff_t>(at), same))
      return std::nullopt;
    prologue.devices.push_back(device);
  }
  return prologue;
}

bool is_readable(std::span<const bpf_insn> program) {
  const bpf_insn zero{};
  return std::ranges::any_of(program, [&](const bpf_insn& insn) { return !same(insn, zero); });
}

Verdict evaluate(std::span<const bpf_insn> program, const DeviceAccess& access) {
  return Machine(program, access).run();
}

}  // namespace hook
