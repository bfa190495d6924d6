// Device access in real cgroups: groups made below this process's own, with device programs and lists that deny, and a
// child in them that tries to open nodes.
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

#include "hook/apply/live/device_cgroup.hpp"
#include "hook/apply/live/run_steps.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using fabric::UniqueFd;

const DeviceNumber kNull{1, 3};
const DeviceNumber kZero{1, 5};
constexpr std::uint32_t kMulti = BPF_F_ALLOW_MULTI;

BpfProgram constant(int answer) {
  return {instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, answer), instruction(BPF_JMP | BPF_EXIT)};
}

std::optional<Cgroup> my_cgroup(CgroupKind kind) {
  const auto groups = device_cgroups(getpid());
  if (!groups) return std::nullopt;
  const auto found =
      std::find_if(groups->begin(), groups->end(), [&](const Cgroup& cgroup) { return cgroup.kind == kind; });
  return found == groups->end() ? std::nullopt : std::optional(*found);
}

class DeviceCgroupTest : public testing::Test {
 protected:
  // Skips, with the reason, what this machine cannot do.
  void set_up(CgroupKind kind) {
    const auto own = my_cgroup(kind);
    if (!own) GTEST_SKIP() << "no such cgroup hierarchy is mounted here";
    base_ = *own;
    if (!make(base_, fmt::format("rdma-hook-test-{}", getpid()))) GTEST_SKIP() << "cannot make a cgroup";
    base_ = made_.back();
    if (mknod((nodes_ / "null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0 ||
        mknod((nodes_ / "zero").c_str(), S_IFCHR | 0600, makedev(1, 5)) != 0) {
      GTEST_SKIP() << "mknod(2) of device nodes is not allowed here";
    }
    if (open_in(base_, "null") != 0) GTEST_SKIP() << "device nodes cannot be opened here";
  }
  ~DeviceCgroupTest() override {
    for (auto cgroup = made_.rbegin(); cgroup != made_.rend(); ++cgroup)
      rmdir(cgroup->directory().c_str());
  }

  bool make(const Cgroup& parent, const std::string& name) {
    Cgroup cgroup = parent;
    cgroup.path = (parent.path == "/" ? "" : parent.path) + "/" + name;
    if (mkdir(cgroup.directory().c_str(), 0755) != 0) return false;
    made_.push_back(cgroup);
    return true;
  }

  // The errno of what a process does in a group.
  template <typename Action>
  static int errno_in(const Cgroup& cgroup, const Action& succeeds) {
    const std::string procs = cgroup.directory() + "/cgroup.procs";
    const pid_t child = fork();
    if (child == 0) {
      const UniqueFd fd(open(procs.c_str(), O_WRONLY | O_CLOEXEC));
      if (write(fd.get(), "0", 1) != 1) _exit(255);
      _exit(succeeds() ? 0 : errno);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // Opening a node for reading and writing.
  int open_in(const Cgroup& cgroup, const std::string& node) const {
    const std::string path = nodes_ / node;
    return errno_in(cgroup, [&] { return open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0; });
  }
  // Making another node of `null`.
  int make_null_in(const Cgroup& cgroup) const {
    const std::string path = nodes_ / "another";
    return errno_in(cgroup, [&] { return mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0; });
  }

  Cgroup base_;
  std::vector<Cgroup> made_;
  test_support::TempDir nodes_;
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
    const auto attached = flags == kMulti ? attach_device_program(fd.get(), program.get())
                                          : replace_device_program(fd.get(), program.get(), -1, flags);
    ASSERT_TRUE(attached) << attached.error().message;
  }
  static std::vector<std::uint32_t> ids(const Cgroup& cgroup) {
    return query_device_programs(directory(cgroup).get()).value().ids;
  }
  static bool allow(const Cgroup& cgroup, std::vector<DeviceNumber> devices) {
    const auto change = allow_devices_v2(cgroup, devices);
    EXPECT_TRUE(change) << change.error().message;
    return change && change->changed;
  }
};

TEST_F(DeviceCgroupV2Test, WithoutAProgramNothingIsNeeded) {
  EXPECT_FALSE(allow(base_, {kNull}));
  EXPECT_TRUE(ids(base_).empty());
}

TEST_F(DeviceCgroupV2Test, ADenyingProgramIsReplaced) {
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
  // One prologue for both, though the kernel's verifier has had it in between.
  const BpfProgram program = read_program(open_program(ids(base_).at(0)).value().get()).value();
  const auto prologue = find_prologue(program);
  ASSERT_TRUE(prologue);
  EXPECT_EQ(prologue->devices, (std::vector<DeviceNumber>{kNull, kZero}));
  EXPECT_EQ(program.size(), prologue->length + 2);
}

TEST_F(DeviceCgroupV2Test, AnAllowingProgramIsLeftAlone) {
  attach(base_, 1);
  const auto before = ids(base_);
  EXPECT_FALSE(allow(base_, {kNull}));
  EXPECT_EQ(ids(base_), before);
}

TEST_F(DeviceCgroupV2Test, EveryDenyingProgramIsReplaced) {
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

TEST_F(DeviceCgroupV2Test, GroupsWithOneProgramOnly) {
  for (const std::uint32_t flags : {std::uint32_t{BPF_F_ALLOW_OVERRIDE}, std::uint32_t{0}}) {
    ASSERT_TRUE(make(base_, fmt::format("flags-{}", flags)));
    const Cgroup cgroup = made_.back();
    attach(cgroup, 0, flags);
    EXPECT_TRUE(allow(cgroup, {kNull}));
    EXPECT_EQ(ids(cgroup).size(), 1U);
    EXPECT_EQ(open_in(cgroup, "null"), 0);
    EXPECT_EQ(open_in(cgroup, "zero"), EPERM);
  }
}

TEST_F(DeviceCgroupV2Test, AGroupAboveThatDeniesIsAnError) {
  ASSERT_TRUE(make(base_, "some.slice"));
  const Cgroup slice = made_.back();
  ASSERT_TRUE(make(slice, "container"));
  const Cgroup own = made_.back();
  attach(slice, 0);
  attach(own, 0);
  const auto before = ids(own);
  const auto change = allow_devices_v2(own, std::vector{kNull});
  ASSERT_FALSE(change);
  EXPECT_EQ(
      change.error().message,
      fmt::format("cannot allow c 1:3 rw: the device program of the cgroup `{}`, above the container's, denies it",
                  slice.directory()));
  EXPECT_EQ(change.error().hint, "allow it there: systemctl set-property some.slice \"DeviceAllow=/dev/char/1:3 rw\"");
  EXPECT_EQ(ids(own), before);
}

TEST_F(DeviceCgroupV2Test, TheScopeAroundAContainerIsItsOwn) {
  ASSERT_TRUE(make(base_, "libpod-1.scope"));
  const Cgroup scope = made_.back();
  ASSERT_TRUE(make(scope, "container"));
  const Cgroup own = made_.back();
  attach(scope, 0);
  attach(own, 0);
  EXPECT_TRUE(allow(own, {kNull}));
  EXPECT_EQ(open_in(own, "null"), 0);
  EXPECT_EQ(open_in(own, "zero"), EPERM);
}

TEST_F(DeviceCgroupV2Test, ReplacingWhatIsGoneIsENOENT) {
  attach(base_, 0);
  const UniqueFd fresh = load_device_program(constant(1)).value();
  const auto replaced = replace_device_program(directory(base_).get(), fresh.get(), fresh.get(), kMulti);
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().code, ENOENT);
}

class DeviceCgroupV1Test : public DeviceCgroupTest {
 protected:
  void SetUp() override { set_up(CgroupKind::kV1Devices); }
  static void deny_all(const Cgroup& cgroup) {
    const UniqueFd fd(open((cgroup.directory() + "/devices.deny").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(write(fd.get(), "a", 1), 1);
  }
};

TEST_F(DeviceCgroupV1Test, RulesAreAddedOnce) {
  deny_all(base_);
  EXPECT_EQ(open_in(base_, "null"), EPERM);
  const auto first = allow_devices_v1(base_, std::vector{kNull});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->changed);
  EXPECT_EQ(open_in(base_, "null"), 0);
  EXPECT_EQ(make_null_in(base_), EPERM);
  EXPECT_EQ(open_in(base_, "zero"), EPERM);
  EXPECT_EQ(test_support::read_file(base_.directory() + "/devices.list"), "c 1:3 rw\n");
  const auto second = allow_devices_v1(base_, std::vector{kNull});
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->changed);
}

TEST_F(DeviceCgroupV1Test, AnExceptionFromEverythingIsTakenAway) {
  const UniqueFd fd(open((base_.directory() + "/devices.deny").c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(write(fd.get(), "c 1:3 rwm", 9), 9);
  EXPECT_EQ(open_in(base_, "null"), EPERM);
  ASSERT_TRUE(allow_devices_v1(base_, std::vector{kNull}));
  EXPECT_EQ(open_in(base_, "null"), 0);
}

TEST_F(DeviceCgroupV1Test, AGroupAboveThatDeniesIsAnError) {
  deny_all(base_);
  ASSERT_TRUE(make(base_, "container"));
  const Cgroup own = made_.back();
  const auto change = allow_devices_v1(own, std::vector{kNull});
  ASSERT_FALSE(change);
  EXPECT_EQ(change.error().message,
            fmt::format("cannot write `c 1:3 rw` to `{}/devices.allow`: Operation not permitted", own.directory()));
  EXPECT_NE(change.error().hint, "");
}

TEST(Memlock, IsRaisedToWhatTheHardLimitAllows) {
  int hold[2];
  ASSERT_EQ(pipe2(hold, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit low{4096, 8192};
    setrlimit(RLIMIT_MEMLOCK, &low);
    (void)!write(hold[1], "x", 1);
    for (;;)
      pause();
  }
  char byte = 0;
  ASSERT_EQ(read(hold[0], &byte, 1), 1);
  const auto limits = [&] {
    rlimit now{};
    prlimit(child, RLIMIT_MEMLOCK, nullptr, &now);
    return std::pair(now.rlim_cur, now.rlim_max);
  };
  EXPECT_EQ(raise_memlock(child, 2048, Engine::kCrio).value(), std::nullopt);
  EXPECT_EQ(limits(), std::pair(rlim_t{4096}, rlim_t{8192}));
  EXPECT_EQ(raise_memlock(child, 6000, Engine::kCrio).value(), std::nullopt);
  EXPECT_EQ(limits(), std::pair(rlim_t{6000}, rlim_t{8192}));
  // With CAP_SYS_RESOURCE all of it is possible, without it the soft limit alone.
  const auto warning = raise_memlock(child, UINT64_MAX, Engine::kCrio).value();
  if (warning) {
    EXPECT_EQ(
        *warning,
        "cannot raise RLIMIT_MEMLOCK of the container to unlimited without CAP_SYS_RESOURCE, it is 8192 bytes: set "
        "LimitMEMLOCK=infinity for the engine's service, or raise the limit (default_ulimits = "
        "[\"memlock=-1:-1\"] in crio.conf)");
    EXPECT_EQ(limits(), std::pair(rlim_t{8192}, rlim_t{8192}));
  } else {
    EXPECT_EQ(limits(), std::pair(rlim_t{RLIM_INFINITY}, rlim_t{RLIM_INFINITY}));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(raise_memlock(child, 1, Engine::kCrio).error().code, ESRCH);
}

}  // namespace
}  // namespace hook
