// Ending a container's first process, and nobody else's.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/sysfs.hpp"
#include "shim/nri/run.hpp"

namespace shim {
namespace {

// A child that sleeps, in the cgroup of the test.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  pid_t pid() const { return pid_; }
  // Of the signal that ended it; 0: it lives.
  int ended_by() const {
    siginfo_t info{};
    (void)::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG);
    return info.si_pid == pid_ ? info.si_status : 0;
  }
  void wait() const {
    siginfo_t info{};
    (void)::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  pid_t pid_;
};

TEST(EndContainer, KillsTheProcessInACgroupOfThatName) {
  const auto cgroups = fabric::value_or(fabric::sysfs::read_file("/proc/self/cgroup", 1 << 16), std::string());
  const std::string name = cgroups.substr(0, cgroups.find('\n'));
  ASSERT_FALSE(name.empty());
  const Sleeper sleeper;
  const auto ended = end_container(name, sleeper.pid());
  ASSERT_TRUE(ended) << ended.error().message;
  sleeper.wait();
  EXPECT_EQ(sleeper.ended_by(), SIGKILL);
  EXPECT_TRUE(end_container(name, sleeper.pid()));  // once more
}

TEST(EndContainer, LeavesOthersAlone) {
  const Sleeper sleeper;
  const auto other = end_container("0123456789abcdef-no-such-container", sleeper.pid());
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("not in a cgroup of the container"), std::string::npos);
  EXPECT_EQ(sleeper.ended_by(), 0);
  EXPECT_FALSE(end_container("", sleeper.pid()));
  EXPECT_EQ(sleeper.ended_by(), 0);
}

TEST(EndContainer, NeedsAProcess) {
  EXPECT_FALSE(end_container("0123456789abcdef", 0));
  EXPECT_FALSE(end_container("0123456789abcdef", -1));
}

}  // namespace
}  // namespace shim
