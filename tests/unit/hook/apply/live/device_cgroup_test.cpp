// Device programs as data; then real cgroups, made below this process's own: with device programs and lists that deny,
// a child in them that tries to open nodes, and a process that outlives the init of its container.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/process/cgroup.hpp"
#include "hook/apply/live/bpf_program.hpp"
#include "hook/apply/live/device_cgroup.hpp"
#include "hook/apply/live/own_cgroup.hpp"
#include "hook/apply/live/run_steps.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

using base::UniqueFd;
using namespace test_support;

const bpf_insn kExit = instruction(BPF_JMP | BPF_EXIT);
bpf_insn answer(int value) {
  return instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, value);
}
bpf_insn load(int dst, int offset, int size = BPF_W) {
  return instruction(BPF_LDX | BPF_MEM | size, dst, 1, offset);
}

const BpfProgram kDenyAll = {answer(0), kExit};
const BpfProgram kAllowAll = {answer(1), kExit};

// Programs in the form of runc: the head, a block that allows c 1:3 rwm, a block that allows mknod of all character
// devices, then deny.
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

// Programs in the form of systemd: one exit, the access compared under a mask.
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
    {"register 12", {instruction(BPF_ALU64 | BPF_MOV | BPF_K, 12, 0, 0, 1), kExit}, {}, Verdict::kUnknown}};

TEST(BpfProgram, EvaluatesPrograms) {
  for (const EvaluateRow& row : kEvaluateRows)
    EXPECT_EQ(evaluate(row.program, row.access), row.expected) << row.name;
}

TEST(BpfProgram, PrologueAllowsOnlyItsDevices) {
  const DeviceNumber devices[] = {{231, 192}, {10, 57}};
  for (const BpfProgram& old : {kDenyAll, kRunc, kSystemd}) {
    const BpfProgram program = with_allowed(old, devices);
    for (const DeviceNumber& device : devices) {
      EXPECT_EQ(evaluate(program, {2, 6, device.major, device.minor}), Verdict::kAllow);
      EXPECT_EQ(evaluate(program, {2, 2, device.major, device.minor}), Verdict::kAllow);
    }
    // mknod, block devices and other devices are decided by the old program.
    const DeviceAccess others[] = {{2, 1, 231, 192}, {2, 7, 231, 192}, {1, 6, 231, 192}, {2, 6, 231, 193},
                                   {2, 6, 10, 192},  {2, 6, 1, 3},     {2, 6, 136, 1}};
    for (const DeviceAccess& other : others)
      EXPECT_EQ(evaluate(program, other), evaluate(old, other));
  }
}

bool equal(const BpfProgram& left, const BpfProgram& right) {
  return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size() * sizeof(bpf_insn)) == 0;
}

TEST(BpfProgram, FindsAndReplacesOnlyItsOwnPrologue) {
  const DeviceNumber first[] = {{231, 192}};
  const DeviceNumber second[] = {{10, 57}, {231, 192}};
  const DeviceNumber both[] = {{231, 192}, {10, 57}};
  const BpfProgram once = with_allowed(kRunc, first);
  EXPECT_TRUE(equal(with_allowed(once, first), once));
  EXPECT_TRUE(equal(with_allowed(once, second), with_allowed(kRunc, both)));
  const DeviceNumber devices[] = {{231, 192}, {10, 57}};
  const BpfProgram program = with_allowed(kDenyAll, devices);
  const auto found = must(find_prologue(program));
  EXPECT_EQ(found.devices, std::vector<DeviceNumber>(std::begin(devices), std::end(devices)));
  EXPECT_EQ(found.length, program.size() - kDenyAll.size());
  EXPECT_FALSE(find_prologue(kRunc));
  EXPECT_FALSE(find_prologue({}));
  // Every instruction counts, except the numbers of the devices.
  for (std::size_t i = 0; i < found.length; ++i) {
    BpfProgram changed = program;
    changed[i].code ^= 0x08;
    EXPECT_FALSE(find_prologue(changed)) << i;
  }
  const BpfProgram cut(program.begin(), program.begin() + 9);
  EXPECT_FALSE(find_prologue(cut));
  EXPECT_FALSE(is_readable({}));
  EXPECT_FALSE(is_readable(BpfProgram(64)));
  EXPECT_TRUE(is_readable(kDenyAll));
}

const DeviceNumber kNull{1, 3};
const DeviceNumber kZero{1, 5};
constexpr std::uint32_t kMulti = BPF_F_ALLOW_MULTI;

BpfProgram constant(int answer) {
  return {instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, answer), instruction(BPF_JMP | BPF_EXIT)};
}

// Has a cgroup below this process's cgroup, and removes all cgroups below it.
class CgroupTest : public testing::Test {
 protected:
  void make_base(CgroupKind kind) {
    const auto groups = device_cgroups(getpid());
    if (!groups) GTEST_SKIP() << groups.error().message;
    const auto own =
        std::find_if(groups->begin(), groups->end(), [&](const Cgroup& cgroup) { return cgroup.kind == kind; });
    if (own == groups->end()) GTEST_SKIP() << "no such cgroup hierarchy is mounted here";
    const auto made = make_group(*own, name_);
    if (!made) GTEST_SKIP() << "cannot make a cgroup";
    base_ = *made;
  }
  ~CgroupTest() override {
    for (auto cgroup = made_.rbegin(); cgroup != made_.rend(); ++cgroup)
      rmdir(cgroup->directory().c_str());
  }
  std::optional<Cgroup> make_group(Cgroup cgroup, const std::string& name) {
    cgroup.path = (cgroup.path == "/" ? "" : cgroup.path) + "/" + name;
    if (mkdir(cgroup.directory().c_str(), 0755) != 0) return std::nullopt;
    made_.push_back(cgroup);
    return cgroup;
  }
  Cgroup make(const Cgroup& parent, const std::string& name) { return must(make_group(parent, name)); }

  const std::string name_ = fmt::format("rdma-hook-test-{}", getpid());
  Cgroup base_;
  std::vector<Cgroup> made_;
};

class DeviceCgroupTest : public CgroupTest {
 protected:
  // Skips tests that this machine cannot run, with the reason.
  void set_up(CgroupKind kind) {
    make_base(kind);
    if (IsSkipped()) return;
    if (mknod((nodes_ / "null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0 ||
        mknod((nodes_ / "zero").c_str(), S_IFCHR | 0600, makedev(1, 5)) != 0) {
      GTEST_SKIP() << "mknod(2) of device nodes is not allowed here";
    }
    if (open_in(base_, "null") != 0) GTEST_SKIP() << "device nodes cannot be opened here";
  }

  // Returns the errno of a function that a process runs in a cgroup.
  template <typename Action>
  static int errno_in(const Cgroup& cgroup, const Action& succeeds) {
    return in_child([&] {
      const UniqueFd fd(open((cgroup.directory() + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
      return write(fd.get(), "0", 1) != 1 ? 255 : succeeds() ? 0 : errno;
    });
  }
  // Opens a device node for reading and writing.
  int open_in(const Cgroup& cgroup, const std::string& node) const {
    const std::string path = nodes_ / node;
    return errno_in(cgroup, [&] { return open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0; });
  }
  // Makes another device node of `null`.
  int make_null_in(const Cgroup& cgroup) const {
    const std::string path = nodes_ / "another";
    return errno_in(cgroup, [&] { return mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0; });
  }

  TempDir nodes_;
};

class DeviceCgroupV2Test : public DeviceCgroupTest {
 protected:
  void SetUp() override {
    set_up(CgroupKind::kV2);
    if (IsSkipped()) return;
    if (!load_device_program(constant(0))) GTEST_SKIP() << "bpf(2) is not allowed here";
  }
  static UniqueFd directory(const Cgroup& cgroup) { return open_cgroup(cgroup).value(); }
  static void attach(const Cgroup& cgroup, int answer, std::uint32_t flags = kMulti) {
    const UniqueFd program = load_device_program(constant(answer)).value();
    const UniqueFd fd = directory(cgroup);
    ASSERT_OK(flags == kMulti ? attach_device_program(fd.get(), program.get())
                              : replace_device_program(fd.get(), program.get(), -1, flags));
  }
  static std::vector<std::uint32_t> ids(const Cgroup& cgroup) {
    return query_device_programs(directory(cgroup).get()).value().ids;
  }
  static bool allow(const Cgroup& cgroup, std::vector<DeviceNumber> devices) {
    const auto change = allow_devices_v2(cgroup, must(open_cgroup(cgroup)).get(), devices);
    EXPECT_OK(change);
    return change && change->changed;
  }
};

TEST_F(DeviceCgroupV2Test, ReplacesOnlyDenyingProgram) {
  EXPECT_FALSE(allow(base_, {kNull}));
  EXPECT_TRUE(ids(base_).empty());
  attach(base_, 0);
  EXPECT_EQ(open_in(base_, "null"), EPERM);
  EXPECT_TRUE(allow(base_, {kNull}));
  EXPECT_EQ(open_in(base_, "null"), 0);
  EXPECT_EQ(make_null_in(base_), EPERM);
  EXPECT_EQ(open_in(base_, "zero"), EPERM);

  const auto once = ids(base_);
  EXPECT_EQ(once.size(), 1U);
  EXPECT_FALSE(allow(base_, {kNull}));
  EXPECT_EQ(ids(base_), once);

  EXPECT_TRUE(allow(base_, {kZero}));
  EXPECT_EQ(open_in(base_, "null"), 0);
  EXPECT_EQ(open_in(base_, "zero"), 0);
  // One prologue for both, although the kernel's verifier has rewritten it in between.
  const BpfProgram program = read_program(open_bpf_program(ids(base_).at(0)).value().get()).value();
  const auto prologue = must(find_prologue(program));
  EXPECT_EQ(prologue.devices, (std::vector<DeviceNumber>{kNull, kZero}));
  EXPECT_EQ(program.size(), prologue.length + 2);
}

TEST_F(DeviceCgroupV2Test, KeepsAllowingProgram) {
  attach(base_, 1);
  const auto before = ids(base_);
  EXPECT_FALSE(allow(base_, {kNull}));
  EXPECT_EQ(ids(base_), before);
}

TEST_F(DeviceCgroupV2Test, ReplacesEveryDenyingProgram) {
  attach(base_, 0);
  attach(base_, 1);
  attach(base_, 0);
  const auto before = ids(base_);
  EXPECT_TRUE(allow(base_, {kNull}));
  const auto after = ids(base_);
  ASSERT_EQ(after.size(), 3U);
  EXPECT_EQ(after[1], before[1]);
  EXPECT_EQ(open_in(base_, "null"), 0);
  EXPECT_EQ(open_in(base_, "zero"), EPERM);
}

TEST_F(DeviceCgroupV2Test, ReplacesProgramWithoutAllowMulti) {
  for (const std::uint32_t flags : {std::uint32_t{BPF_F_ALLOW_OVERRIDE}, std::uint32_t{0}}) {
    const Cgroup cgroup = make(base_, fmt::format("flags-{}", flags));
    attach(cgroup, 0, flags);
    EXPECT_TRUE(allow(cgroup, {kNull}));
    EXPECT_EQ(ids(cgroup).size(), 1U);
    EXPECT_EQ(open_in(cgroup, "null"), 0);
    EXPECT_EQ(open_in(cgroup, "zero"), EPERM);
  }
}

TEST_F(DeviceCgroupV2Test, RefusesIfParentCgroupDenies) {
  const Cgroup slice = make(base_, "some.slice");
  const Cgroup own = make(slice, "container");
  attach(slice, 0);
  attach(own, 0);
  const auto before = ids(own);
  const auto change = allow_devices_v2(own, must(open_cgroup(own)).get(), std::vector{kNull});
  ASSERT_FALSE(change);
  EXPECT_EQ(error_message(change),
            fmt::format("cannot allow c 1:3 rw: the BPF device program of the parent cgroup `{}` denies it",
                        slice.directory()));
  EXPECT_EQ(error_hint(change), "run `systemctl set-property some.slice \"DeviceAllow=/dev/char/1:3 rw\"`");
  EXPECT_EQ(ids(own), before);
}

TEST_F(DeviceCgroupV2Test, ReplacesProgramOfScopeOfContainer) {
  const Cgroup scope = make(base_, "libpod-1.scope");
  const Cgroup own = make(scope, "container");
  attach(scope, 0);
  attach(own, 0);
  EXPECT_TRUE(allow(own, {kNull}));
  EXPECT_EQ(open_in(own, "null"), 0);
  EXPECT_EQ(open_in(own, "zero"), EPERM);
}

TEST_F(DeviceCgroupV2Test, ReplacingDetachedProgramReturnsENOENT) {
  attach(base_, 0);
  const UniqueFd fresh = load_device_program(constant(1)).value();
  EXPECT_EQ(error_code(replace_device_program(directory(base_).get(), fresh.get(), fresh.get(), kMulti)), ENOENT);
}

class DeviceCgroupV1Test : public DeviceCgroupTest {
 protected:
  void SetUp() override { set_up(CgroupKind::kV1Devices); }
  static void deny_all(const Cgroup& cgroup) {
    const UniqueFd fd(open((cgroup.directory() + "/devices.deny").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(write(fd.get(), "a", 1), 1);
  }
};

TEST_F(DeviceCgroupV1Test, AddsRulesOnce) {
  deny_all(base_);
  EXPECT_EQ(open_in(base_, "null"), EPERM);
  EXPECT_TRUE(must(allow_devices_v1(base_, must(open_cgroup(base_)).get(), std::vector{kNull})).changed);
  EXPECT_EQ(open_in(base_, "null"), 0);
  EXPECT_EQ(make_null_in(base_), EPERM);
  EXPECT_EQ(open_in(base_, "zero"), EPERM);
  EXPECT_EQ(read_file(base_.directory() + "/devices.list"), "c 1:3 rw\n");
  EXPECT_FALSE(must(allow_devices_v1(base_, must(open_cgroup(base_)).get(), std::vector{kNull})).changed);
}

TEST_F(DeviceCgroupV1Test, RemovesExceptionFromAllowAll) {
  const UniqueFd fd(open((base_.directory() + "/devices.deny").c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(write(fd.get(), "c 1:3 rwm", 9), 9);
  EXPECT_EQ(open_in(base_, "null"), EPERM);
  ASSERT_TRUE(allow_devices_v1(base_, must(open_cgroup(base_)).get(), std::vector{kNull}));
  EXPECT_EQ(open_in(base_, "null"), 0);
}

TEST_F(DeviceCgroupV1Test, RefusesIfParentCgroupDenies) {
  deny_all(base_);
  const Cgroup own = make(base_, "container");
  const auto change = allow_devices_v1(own, must(open_cgroup(own)).get(), std::vector{kNull});
  EXPECT_EQ(error_message(change),
            fmt::format("cannot write `c 1:3 rw` to `{}/devices.allow`: Operation not permitted", own.directory()));
  EXPECT_NE(error_hint(change), "");
}

TEST(Memlock, RaisesSoftLimitToHardLimit) {
  Child process([] {
    const rlimit low{4096, 8192};
    setrlimit(RLIMIT_MEMLOCK, &low);
  });
  const pid_t child = process.identity().pid;
  const auto limits = [&] {
    rlimit now{};
    prlimit(child, RLIMIT_MEMLOCK, nullptr, &now);
    return std::pair(now.rlim_cur, now.rlim_max);
  };
  EXPECT_EQ(raise_memlock(child, 2048, Engine::kCrio).value(), std::nullopt);
  EXPECT_EQ(limits(), std::pair(rlim_t{4096}, rlim_t{8192}));
  EXPECT_EQ(raise_memlock(child, 6000, Engine::kCrio).value(), std::nullopt);
  EXPECT_EQ(limits(), std::pair(rlim_t{6000}, rlim_t{8192}));
  // CAP_SYS_RESOURCE allows both limits; without it only the soft limit can be raised.
  const auto warning = raise_memlock(child, UINT64_MAX, Engine::kCrio).value();
  if (warning) {
    EXPECT_EQ(*warning,
              "cannot raise RLIMIT_MEMLOCK of the container to unlimited without CAP_SYS_RESOURCE, it is 8192 bytes: "
              "set LimitMEMLOCK=infinity for the engine's service or raise the limit (default_ulimits = "
              "[\"memlock=-1:-1\"] in crio.conf)");
    EXPECT_EQ(limits(), std::pair(rlim_t{8192}, rlim_t{8192}));
  } else {
    EXPECT_EQ(limits(), std::pair(rlim_t{RLIM_INFINITY}, rlim_t{RLIM_INFINITY}));
  }
  process.kill();
  EXPECT_EQ(raise_memlock(child, 1, Engine::kCrio).error().code, ESRCH);
}

TEST(IsNamedBy, MatchesCgroupsOfRuntimes) {
  const std::tuple<const char*, const char*, bool> cases[] = {
      {"/docker/4f2c", "/docker/4f2c", true},
      {"/docker/4f2c", "/system.slice/engine/docker/4f2c", true},
      {"4f2c/", "/user.slice/4f2c", true},
      {"system.slice:docker:4f2c", "/system.slice/docker-4f2c.scope", true},
      {"user.slice:libpod:4f2c", "/user.slice/libpod-4f2c.scope/container", true},
      {"::4f2c", "/system.slice/4f2c.scope", true},
      {"system.slice::a.slice", "/system.slice/a.slice", true},
      {"/docker/4f2c", "/docker/4f2c/below", false},
      {"/4f2c", "/docker/x4f2c", false},
      {"system.slice:docker:4f2c", "/system.slice/docker.service", false},
      {"::", "/.scope", false},
      {"/", "/", false},
      {"", "/docker", false}};
  for (const auto& [cgroups_path, cgroup, expected] : cases)
    EXPECT_EQ(is_named_by(cgroups_path, cgroup), expected) << cgroups_path << " " << cgroup;
}

class OwnCgroupTest : public CgroupTest, public testing::WithParamInterface<CgroupKind> {
 protected:
  void SetUp() override { make_base(GetParam()); }
  // Starts a process in that cgroup.
  pid_t start_in(const std::string& directory) {
    running_.push_back(std::make_unique<Child>([&] {
      const UniqueFd procs(::open((directory + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
      (void)!::write(procs.get(), "0", 1);
    }));
    const pid_t pid = running_.back()->identity().pid;
    EXPECT_TRUE(has_text(read_file(directory + "/cgroup.procs"), std::to_string(pid)));
    return pid;
  }
  void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    // A zombie has left its cgroup.
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  }
  CgroupIdentity identified() const { return identify_cgroup(base_.mount_point, base_.path).value(); }

  std::vector<std::unique_ptr<Child>> running_;
};

TEST_P(OwnCgroupTest, IsRecordedWithoutOwnPidNamespace) {
  const pid_t init = start_in(base_.directory());
  ContainerSpec spec;
  EXPECT_EQ(own_cgroup(spec, init).value(), identified()) << "the cgroup is not this process's";
  spec.cgroups_path = "/" + name_;
  EXPECT_EQ(own_cgroup(spec, init).value(), identified());
  spec.has_own_pidns = true;
  EXPECT_FALSE(own_cgroup(spec, init).value());
  spec.has_own_pidns = false;
  spec.cgroups_path.clear();
  EXPECT_FALSE(own_cgroup(spec, ::getpid()).value())
      << "with podman --cgroups=disabled the container shares the engine's cgroup";
}

TEST_P(OwnCgroupTest, IsPresentWhileProcessIsInIt) {
  const CgroupIdentity cgroup = identified();
  EXPECT_EQ(read_presence(cgroup).value(), Presence::kAbsent) << "no process is in it";
  const pid_t init = start_in(base_.directory());
  EXPECT_EQ(read_presence(cgroup).value(), Presence::kPresent);
  const pid_t below = start_in(make(base_, "inner").directory());
  end(init);
  EXPECT_EQ(read_presence(cgroup).value(), Presence::kPresent) << "a process is in a cgroup below it";
  end(below);
  EXPECT_EQ(read_presence(cgroup).value(), Presence::kAbsent);
}

TEST_P(OwnCgroupTest, IsAbsentOnlyInRecordedHierarchy) {
  start_in(base_.directory());
  CgroupIdentity other = identified();
  ++other.ino;
  EXPECT_EQ(read_presence(other).value(), Presence::kAbsent) << "another cgroup of the same name";
  other = identified();
  other.path += "-none";
  EXPECT_EQ(read_presence(other).value(), Presence::kAbsent);
  ++other.root_ino;
  EXPECT_FALSE(read_presence(other)) << "another hierarchy proves nothing";
  other.root += "/none";
  EXPECT_FALSE(read_presence(other));
}

// The init has ended, and a child of it still has the HCA open.
TEST_P(OwnCgroupTest, ProcessThatOutlivesInitKeepsGrant) {
  const TempDir directory;
  const auto ledger = Ledger::open(directory / "ledger").value();
  const pid_t init = start_in(base_.directory());
  const pid_t child = start_in(base_.directory());
  const Owner web = container_owner("web-1", "/b");
  const GrantUser user{web.key, "web-1", identify(init).value(), "", own_cgroup({}, init).value()};
  ASSERT_TRUE(test_support::book(ledger, web, {kAlone}, user));
  ASSERT_TRUE(ledger.leave(web, web.key)) << "a start can be rolled back while init lives";
  ASSERT_TRUE(test_support::book(ledger, web, {kAlone}, user));
  ASSERT_TRUE(ledger.settle(web.key));

  end(init);
  const Owner db = container_owner("db", "/b");
  const auto second = [&] {
    return test_support::book(ledger, db, {kAlone}, {db.key, "db", identify(::getpid()).value()});
  };
  EXPECT_FALSE(second());
  EXPECT_FALSE(ledger.find(web.key).value()->stale);
  EXPECT_EQ(ledger.find(web.key).value()->users.at(0), user) << "the record is unchanged";
  EXPECT_EQ(error_message(ledger.leave(web, web.key)),
            fmt::format("cannot release the grant of container web-1: processes of its cgroup `{}` still run",
                        base_.directory()));
  end(child);
  EXPECT_TRUE(second());
}

INSTANTIATE_TEST_SUITE_P(Kinds, OwnCgroupTest, testing::Values(CgroupKind::kV1Devices, CgroupKind::kV2));

}  // namespace
}  // namespace hook
