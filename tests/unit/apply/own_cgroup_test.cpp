// Whose cgroup a container's is, and the grant of a container in whose cgroup a process has outlived its init: with
// real groups, made below this process's own.
#include "hook/apply/live/own_cgroup.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/base/process/cgroup.hpp"
#include "support/temp_dir.hpp"
#include "unit/ledger/scene.hpp"

namespace hook {
namespace {

TEST(IsNamedBy, WhatTheRuntimesMakeOfCgroupsPath) {
  EXPECT_TRUE(is_named_by("/docker/4f2c", "/docker/4f2c"));
  EXPECT_TRUE(is_named_by("/docker/4f2c", "/system.slice/engine/docker/4f2c"));
  EXPECT_TRUE(is_named_by("4f2c/", "/user.slice/4f2c"));
  EXPECT_TRUE(is_named_by("system.slice:docker:4f2c", "/system.slice/docker-4f2c.scope"));
  EXPECT_TRUE(is_named_by("user.slice:libpod:4f2c", "/user.slice/libpod-4f2c.scope/container"));
  EXPECT_TRUE(is_named_by("::4f2c", "/system.slice/4f2c.scope"));
  EXPECT_TRUE(is_named_by("system.slice::a.slice", "/system.slice/a.slice"));
  EXPECT_FALSE(is_named_by("/docker/4f2c", "/docker/4f2c/below"));
  EXPECT_FALSE(is_named_by("/4f2c", "/docker/x4f2c"));
  EXPECT_FALSE(is_named_by("system.slice:docker:4f2c", "/system.slice/docker.service"));
  EXPECT_FALSE(is_named_by("::", "/.scope"));
  EXPECT_FALSE(is_named_by("/", "/"));
  EXPECT_FALSE(is_named_by("", "/docker"));
}

class OwnCgroupTest : public testing::TestWithParam<CgroupKind> {
 protected:
  void SetUp() override {
    const auto groups = device_cgroups(::getpid());
    if (!groups) GTEST_SKIP() << groups.error().message;
    for (const Cgroup& group : *groups) {
      if (group.kind != GetParam()) continue;
      group_ = group;
      group_.path = (group.path == "/" ? "" : group.path) + "/" + name_;
      if (::mkdir(group_.directory().c_str(), 0755) != 0) GTEST_SKIP() << "cannot make a cgroup";
      made_.push_back(group_.directory());
      return;
    }
    GTEST_SKIP() << "no such cgroup hierarchy is mounted here";
  }
  ~OwnCgroupTest() override {
    for (const auto& [pid, end] : running_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      ::close(end);
    }
    for (auto path = made_.rbegin(); path != made_.rend(); ++path)
      ::rmdir(path->c_str());
  }

  std::string make_below(const std::string& name) {
    made_.push_back(group_.directory() + "/" + name);
    EXPECT_EQ(::mkdir(made_.back().c_str(), 0755), 0);
    return made_.back();
  }
  // A process in that group.
  pid_t start_in(const std::string& directory) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const fabric::UniqueFd procs(::open((directory + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
      const char answer = ::write(procs.get(), "0", 1) == 1 ? '+' : '-';
      (void)!::write(ends[1], &answer, 1);
      for (;;)
        ::pause();
    }
    char answer = 0;
    EXPECT_EQ(::read(ends[0], &answer, 1), 1);
    EXPECT_EQ(answer, '+');
    ::close(ends[1]);
    running_.emplace_back(child, ends[0]);
    return child;
  }
  void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    // A zombie has left its group.
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  }
  CgroupIdentity identified() const { return identify_cgroup(group_.mount_point, group_.path).value(); }

  const std::string name_ = fmt::format("rdma-hook-own-{}", ::getpid());
  Cgroup group_;
  std::vector<std::string> made_;
  std::vector<std::pair<pid_t, int>> running_;
};

TEST_P(OwnCgroupTest, IsNotedWhereTheKernelDoesNotEndAllWithInit) {
  const pid_t init = start_in(group_.directory());
  ContainerSpec spec;
  EXPECT_EQ(own_cgroup(spec, init).value(), identified()) << "it is not ours";
  spec.cgroups_path = "/" + name_;
  EXPECT_EQ(own_cgroup(spec, init).value(), identified());
  spec.has_own_pidns = true;
  EXPECT_FALSE(own_cgroup(spec, init).value());
  spec.has_own_pidns = false;
  spec.cgroups_path.clear();
  EXPECT_FALSE(own_cgroup(spec, ::getpid()).value()) << "with podman --cgroups=disabled it is the engine's";
}

TEST_P(OwnCgroupTest, IsPresentWhileAnybodyIsInIt) {
  const CgroupIdentity cgroup = identified();
  EXPECT_EQ(look_at(cgroup).value(), Presence::kGone) << "nobody is in it";
  const pid_t init = start_in(group_.directory());
  EXPECT_EQ(look_at(cgroup).value(), Presence::kPresent);
  const pid_t below = start_in(make_below("inner"));
  end(init);
  EXPECT_EQ(look_at(cgroup).value(), Presence::kPresent) << "in a group below it";
  end(below);
  EXPECT_EQ(look_at(cgroup).value(), Presence::kGone);
}

TEST_P(OwnCgroupTest, IsGoneOnlyInTheHierarchyThatWasNoted) {
  start_in(group_.directory());
  CgroupIdentity other = identified();
  ++other.ino;
  EXPECT_EQ(look_at(other).value(), Presence::kGone) << "another group of the same name";
  other = identified();
  other.path += "-none";
  EXPECT_EQ(look_at(other).value(), Presence::kGone);
  ++other.root_ino;
  EXPECT_FALSE(look_at(other)) << "of another hierarchy it proves nothing";
  other.root += "/none";
  EXPECT_FALSE(look_at(other));
}

// The init has ended, and a child of it still has the HCA open.
TEST_P(OwnCgroupTest, WhoOutlivesInitHoldsTheGrant) {
  const test_support::TempDir directory;
  const auto ledger = Ledger::open(directory / "ledger").value();
  const pid_t init = start_in(group_.directory());
  const pid_t child = start_in(group_.directory());
  const Owner web = container_owner("web-1", "/b");
  const GrantUser user{web.key, "web-1", identify(init).value(), "", own_cgroup({}, init).value()};
  ASSERT_TRUE(test_support::book(ledger, web, {test_support::kAlone}, user));
  ASSERT_TRUE(ledger.leave(web, web.key)) << "a start is undone while init is there";
  ASSERT_TRUE(test_support::book(ledger, web, {test_support::kAlone}, user));
  ASSERT_TRUE(ledger.settle(web.key));

  end(init);
  const Owner db = container_owner("db", "/b");
  const auto second = [&] {
    return test_support::book(ledger, db, {test_support::kAlone}, {db.key, "db", identify(::getpid()).value()});
  };
  EXPECT_FALSE(second());
  EXPECT_FALSE(ledger.find(web.key).value()->vanished);
  EXPECT_EQ(ledger.find(web.key).value()->users.at(0), user) << "as it was written";
  const auto left = ledger.leave(web, web.key);
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().message,
            fmt::format("cannot return the grant of container web-1: processes of its cgroup `{}` "
                        "still run",
                        group_.directory()));
  end(child);
  EXPECT_TRUE(second());
}

INSTANTIATE_TEST_SUITE_P(Kinds, OwnCgroupTest, testing::Values(CgroupKind::kV1Devices, CgroupKind::kV2));

}  // namespace
}  // namespace hook
