#include <array>
#include <cstring>

#include "hook/apply/live/bpf_program.hpp"

namespace hook {
namespace {

constexpr std::size_t kContextSize = 12;  // struct bpf_cgroup_dev_ctx: access_type, major, minor

struct Register {
  bool known = false;
  bool context = false;  // points to the context
  std::uint64_t value = 0;
};

class Machine {
 public:
  Machine(std::span<const bpf_insn> program, const DeviceAccess& access) : program_(program) {
    const std::uint32_t fields[] = {(access.access << kAccessShift) | access.type, access.major, access.minor};
    std::memcpy(context_.data(), fields, sizeof fields);
    registers_[BPF_REG_1].context = true;
  }

  Verdict run() {
    // Jumps go forward only, so this ends.
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
    // The kernel looks at the lowest bit (cgroup_bpf_check_dev_permission, BPF_PROG_RUN_ARRAY).
    return (result.value & 1) != 0 ? Verdict::kAllow : Verdict::kDeny;
  }

  // False: not understood. skip: instructions to leave out.
  bool step(const bpf_insn& insn, std::size_t& skip) {
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
      value = (value << 8) | context_[offset + byte];
    }
    registers_[insn.dst_reg] = {true, false, value};
    return true;
  }

  // The second operand; nullopt: not known.
  std::optional<std::uint64_t> operand(const bpf_insn& insn) const {
    if (BPF_SRC(insn.code) == BPF_K) return static_cast<std::uint64_t>(std::int64_t{insn.imm});
    const Register& source = registers_[insn.src_reg];
    if (!source.known) return std::nullopt;
    return source.value;
  }

  bool arithmetic(const bpf_insn& insn, bool narrow) {
    Register& target = registers_[insn.dst_reg];
    if (insn.off != 0) return false;
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

Verdict evaluate(std::span<const bpf_insn> program, const DeviceAccess& access) {
  return Machine(program, access).run();
}

}  // namespace hook
