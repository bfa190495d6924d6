#include "base/process/daemon_state.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace hook {
namespace {

const Log kLog;

// Runs as a process of its own, because the locks of a process do not conflict with each other.
class Daemon {
 public:
  Daemon(const std::string& ledger, const std::string& program, const std::vector<ProbedState>& states) {
    int ends[2] = {};
    EXPECT_EQ(::pipe(ends), 0);
    child_ = ::fork();
    if (child_ == 0) {
      DaemonState state(ledger, program, kLog);
      for (const ProbedState& one : states)
        state.set(one);
      (void)!::write(ends[1], "x", 1);
      ::pause();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Daemon() { kill(); }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  void kill() {
    if (child_ > 0) ::kill(child_, SIGKILL);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
};

class DaemonStateTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "daemon_state.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ledger_ = directory_ + "/ledger";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(ledger_ + "/state"))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }
  std::string directory_;
  std::string ledger_;
};

TEST_F(DaemonStateTest, IsNotReadyWithoutProcess) {
  const ProbedState state = probe_daemon(ledger_, "p");
  EXPECT_FALSE(state.is_ready);
  EXPECT_NE(state.text.find("does not run"), std::string::npos) << state.text;
}

TEST_F(DaemonStateTest, ReturnsLastState) {
  const Daemon daemon(ledger_, "p", {{false, "first"}, {true, "second\nline"}});
  EXPECT_EQ(probe_daemon(ledger_, "p"), (ProbedState{true, "second?line"}));
  EXPECT_FALSE(probe_daemon(ledger_, "other").is_ready);
  EXPECT_EQ(files(), 1U);
  struct stat status {};
  ASSERT_EQ(::stat((ledger_ + "/state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0700U);
}

TEST_F(DaemonStateTest, IsNotReadyAfterProcessIsKilled) {
  Daemon daemon(ledger_, "p", {{true, "good"}});
  EXPECT_TRUE(probe_daemon(ledger_, "p").is_ready);
  daemon.kill();
  EXPECT_EQ(files(), 1U);
  EXPECT_FALSE(probe_daemon(ledger_, "p").is_ready);
}

TEST_F(DaemonStateTest, ReportsInstanceThatIsNotReady) {
  const Daemon old(ledger_, "p", {{true, "old"}});
  {
    const Daemon other(ledger_, "p", {{false, "new"}});
    EXPECT_EQ(probe_daemon(ledger_, "p"), (ProbedState{false, "new"}));
  }
  // The end of the newer process does not hide the older one.
  EXPECT_EQ(probe_daemon(ledger_, "p"), (ProbedState{true, "old"}));
}

TEST_F(DaemonStateTest, RemovesFilesOfEndedProcesses) {
  { const Daemon ended(ledger_, "p", {{true, "ended"}}); }
  const Daemon live(ledger_, "p", {{true, "live"}});
  const Daemon other(ledger_, "p", {{true, "live"}});
  EXPECT_EQ(files(), 2U);
}

TEST_F(DaemonStateTest, WritesOnlyChanges) {
  DaemonState state(ledger_, "p", kLog);
  state.set({true, "same"});
  const std::string file = ledger_ + "/state/p." + std::to_string(::getpid());
  struct stat first {};
  struct stat second {};
  ASSERT_EQ(::stat(file.c_str(), &first), 0);
  state.set({true, "same"});
  ASSERT_EQ(::stat(file.c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);
  state.set({false, "same"});
  ASSERT_EQ(::stat(file.c_str(), &second), 0);
  EXPECT_NE(first.st_ino, second.st_ino);
}

TEST_F(DaemonStateTest, TriesAgainAfterFailure) {
  std::filesystem::create_directory(ledger_);
  {
    const auto blocked = std::filesystem::create_directory(ledger_ + "/target");
    ASSERT_TRUE(blocked);
  }
  std::filesystem::create_directory_symlink("target", ledger_ + "/state");
  DaemonState state(ledger_, "p", kLog);
  state.set({true, "good"});
  EXPECT_TRUE(std::filesystem::is_empty(ledger_ + "/target")) << "a link is not followed";
  EXPECT_FALSE(probe_daemon(ledger_, "p").is_ready);
  std::filesystem::remove(ledger_ + "/state");
  state.set({true, "good"});
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace hook
