#include "hook/apply/live/bpf_program.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace hook {
namespace {

const bpf_insn kExit = instruction(BPF_JMP | BPF_EXIT);
bpf_insn answer(int value) {
  return instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, value);
}
bpf_insn load(int dst, int offset, int size = BPF_W) {
  return instruction(BPF_LDX | BPF_MEM | size, dst, 1, offset);
}

const BpfProgram kDenyAll = {answer(0), kExit};
const BpfProgram kAllowAll = {answer(1), kExit};

// In the shape that runc gives them: the head, a block that allows c 1:3 rwm, a block that
// allows mknod of all character devices, then deny.
const BpfProgram kRunc = {
    load(2, 0),
    instruction(BPF_ALU | BPF_AND | BPF_K, 2, 0, 0, 0xffff),
    load(3, 0),
    instruction(BPF_ALU | BPF_RSH | BPF_K, 3, 0, 0, 16),
    load(4, 4),
    load(5, 8),
    instruction(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 5, 2),
    instruction(BPF_JMP | BPF_JNE | BPF_K, 4, 0, 4, 1),
    instruction(BPF_JMP | BPF_JNE | BPF_K, 5, 0, 3, 3),
    answer(1),
    kExit,
    instruction(BPF_JMP | BPF_JA, 0, 0, 0),
    instruction(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 5, 2),
    instruction(BPF_ALU | BPF_MOV | BPF_X, 1, 3),
    instruction(BPF_ALU | BPF_AND | BPF_K, 1, 0, 0, 1),
    instruction(BPF_JMP | BPF_JNE | BPF_X, 1, 3, 2),
    answer(1),
    kExit,
    answer(0),
    kExit,
};

// In the shape that systemd gives them: one exit, the access compared under a mask.
const BpfProgram kSystemd = {
    load(2, 0),
    instruction(BPF_ALU | BPF_AND | BPF_K, 2, 0, 0, 0xffff),
    load(3, 0),
    instruction(BPF_ALU | BPF_RSH | BPF_K, 3, 0, 0, 16),
    load(4, 4),
    load(5, 8),
    instruction(BPF_ALU | BPF_MOV | BPF_X, 1, 3),
    instruction(BPF_ALU | BPF_AND | BPF_K, 1, 0, 0, 6),
    instruction(BPF_JMP | BPF_JNE | BPF_X, 1, 3, 3),
    instruction(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 2, 2),
    instruction(BPF_JMP | BPF_JNE | BPF_K, 4, 0, 1, 136),
    instruction(BPF_JMP | BPF_JA, 0, 0, 2),
    answer(0),
    instruction(BPF_JMP | BPF_JA, 0, 0, 1),
    answer(1),
    kExit,
};

struct EvaluateRow {
  const char* name;
  BpfProgram program;
  DeviceAccess access;
  Verdict expected;
};

const EvaluateRow kEvaluateRows[] = {
    {"deny all", kDenyAll, {2, 6, 1, 3}, Verdict::kDeny},
    {"allow all", kAllowAll, {2, 6, 1, 3}, Verdict::kAllow},
    {"runc, listed", kRunc, {2, 6, 1, 3}, Verdict::kAllow},
    {"runc, other minor", kRunc, {2, 6, 1, 4}, Verdict::kDeny},
    {"runc, block", kRunc, {1, 6, 1, 3}, Verdict::kDeny},
    {"runc, mknod only", kRunc, {2, 1, 231, 192}, Verdict::kAllow},
    {"runc, mknod and read", kRunc, {2, 3, 231, 192}, Verdict::kDeny},
    {"systemd, listed major", kSystemd, {2, 6, 136, 7}, Verdict::kAllow},
    {"systemd, more access", kSystemd, {2, 7, 136, 7}, Verdict::kDeny},
    {"systemd, other major", kSystemd, {2, 6, 231, 192}, Verdict::kDeny},
    {"narrow load", {load(0, 4, BPF_H), kExit}, {2, 6, 231, 192}, Verdict::kAllow},
    {"narrow load, even", {load(0, 4, BPF_B), kExit}, {2, 6, 10, 192}, Verdict::kDeny},
    {"32-bit jump",
     {load(2, 4), instruction(BPF_JMP32 | BPF_JEQ | BPF_K, 2, 0, 2, 231), answer(0), kExit, answer(1), kExit},
     {2, 6, 231, 0},
     Verdict::kAllow},
    {"-1 is all bits",
     {instruction(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, -1), answer(1),
      instruction(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 1, -1), answer(0), kExit},
     {},
     Verdict::kAllow},
    {"32-bit result is cut",
     {instruction(BPF_ALU | BPF_MOV | BPF_K, 2, 0, 0, -1), answer(1),
      instruction(BPF_JMP | BPF_JNE | BPF_K, 2, 0, 1, -1), answer(0), kExit},
     {},
     Verdict::kAllow},
    {"empty", {}, {}, Verdict::kUnknown},
    {"no exit", {answer(1)}, {}, Verdict::kUnknown},
    {"no answer", {kExit}, {}, Verdict::kUnknown},
    {"call", {instruction(BPF_JMP | BPF_CALL, 0, 0, 0, 7), kExit}, {}, Verdict::kUnknown},
    {"map load", {instruction(BPF_LD | BPF_IMM | BPF_DW, 2), instruction(0), answer(1), kExit}, {}, Verdict::kUnknown},
    {"backward jump", {answer(1), instruction(BPF_JMP | BPF_JA, 0, 0, -2), kExit}, {}, Verdict::kUnknown},
    {"jump out", {answer(1), instruction(BPF_JMP | BPF_JA, 0, 0, 5), kExit}, {}, Verdict::kUnknown},
    {"load beyond the context", {load(0, 12), kExit}, {}, Verdict::kUnknown},
    {"unwritten register", {instruction(BPF_ALU64 | BPF_MOV | BPF_X, 0, 3), kExit}, {}, Verdict::kUnknown},
    {"register 12", {instruction(BPF_ALU64 | BPF_MOV | BPF_K, 12, 0, 0, 1), kExit}, {}, Verdict::kUnknown},
};

TEST(BpfProgram, Evaluate) {
  for (const EvaluateRow& row : kEvaluateRows) {
    EXPECT_EQ(evaluate(row.program, row.access), row.expected) << row.name;
  }
}

TEST(BpfProgram, PrologueAllowsItsDevicesAndLeavesTheRest) {
  const DeviceNumber devices[] = {{231, 192}, {10, 57}};
  for (const BpfProgram& old : {kDenyAll, kRunc, kSystemd}) {
    const BpfProgram program = with_allowed(old, devices);
    for (const DeviceNumber& device : devices) {
      EXPECT_EQ(evaluate(program, {2, 6, device.major, device.minor}), Verdict::kAllow);
      EXPECT_EQ(evaluate(program, {2, 2, device.major, device.minor}), Verdict::kAllow);
    }
    // Not mknod, no block devices, no others: as the old one says.
    const DeviceAccess others[] = {{2, 1, 231, 192}, {2, 7, 231, 192}, {1, 6, 231, 192}, {2, 6, 231, 193},
                                   {2, 6, 10, 192},  {2, 6, 1, 3},     {2, 6, 136, 1}};
    for (const DeviceAccess& other : others)
      EXPECT_EQ(evaluate(program, other), evaluate(old, other));
  }
}

bool equal(const BpfProgram& left, const BpfProgram& right) {
  return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size() * sizeof(bpf_insn)) == 0;
}

TEST(BpfProgram, SecondPrologueReplacesTheFirst) {
  const DeviceNumber first[] = {{231, 192}};
  const DeviceNumber second[] = {{10, 57}, {231, 192}};
  const DeviceNumber both[] = {{231, 192}, {10, 57}};
  const BpfProgram once = with_allowed(kRunc, first);
  EXPECT_TRUE(equal(with_allowed(once, first), once));
  EXPECT_TRUE(equal(with_allowed(once, second), with_allowed(kRunc, both)));
}

TEST(BpfProgram, FindsOnlyItsOwnPrologue) {
  const DeviceNumber devices[] = {{231, 192}, {10, 57}};
  const BpfProgram program = with_allowed(kDenyAll, devices);
  const auto found = find_prologue(program);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices, std::vector<DeviceNumber>(std::begin(devices), std::end(devices)));
  EXPECT_EQ(found->length, program.size() - kDenyAll.size());
  EXPECT_FALSE(find_prologue(kRunc));
  EXPECT_FALSE(find_prologue({}));
  // Every instruction of it counts, but the numbers of the devices.
  for (std::size_t i = 0; i < found->length; ++i) {
    BpfProgram changed = program;
    changed[i].code ^= 0x08;
    EXPECT_FALSE(find_prologue(changed)) << i;
  }
  const BpfProgram cut(program.begin(), program.begin() + 9);
  EXPECT_FALSE(find_prologue(cut));
}

TEST(BpfProgram, ZerosAreNotReadable) {
  EXPECT_FALSE(is_readable({}));
  EXPECT_FALSE(is_readable(BpfProgram(64)));
  EXPECT_TRUE(is_readable(kDenyAll));
}

}  // namespace
}  // namespace hook
