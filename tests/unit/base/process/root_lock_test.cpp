// Locks that only root can take, and the locks of earlier versions, which any user can hold.
#include "base/process/root_lock.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/unique_fd.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace hook;
using base::UniqueFd;
using test_support::must;
using test_support::TempDir;

constexpr std::chrono::milliseconds kNoWait{0};

UniqueFd open_directory_of(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// A program that has locked a path until it is destroyed.
class Locker {
 public:
  // program: the name under which flock(1) is executed.
  Locker(const std::string& path, const TempDir& programs, const std::string& program, uid_t user) {
    const std::string copy = programs / program;
    std::filesystem::copy_file("/usr/bin/flock", copy, std::filesystem::copy_options::overwrite_existing);
    ::chmod(copy.c_str(), 0755);
    child_ = ::fork();
    if (child_ == 0) {
      // The group ends with the test: flock(1) has a child.
      if (::setpgid(0, 0) != 0 || ::setuid(user) != 0) ::_exit(1);
      ::execl(copy.c_str(), copy.c_str(), "--close", path.c_str(), "sleep", "1000", nullptr);
      ::_exit(1);
    }
    const UniqueFd fd = open_directory_of(path);
    while (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && ::waitpid(child_, nullptr, WNOHANG) == 0) {
      ::flock(fd.get(), LOCK_UN);
      ::usleep(1000);
    }
  }
  ~Locker() {
    ::kill(-child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Locker(const Locker&) = delete;
  Locker& operator=(const Locker&) = delete;

 private:
  pid_t child_ = -1;
};

TEST(RootLock, LockFileExistsOnlyWhileItIsLocked) {
  const TempDir temp;
  const std::string path = temp / "lock";
  {
    const auto lock = must(LockFile::take(path, kNoWait));
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600U);
    const auto second = LockFile::take(path, kNoWait);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, EAGAIN);
    EXPECT_NE(second.error().message.find("process " + std::to_string(::getpid())), std::string::npos)
        << second.error().message;
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(LockFile::take(path, kNoWait));
}

TEST(RootLock, LockFileOfKilledProcessIsTakenOver) {
  const TempDir temp;
  const std::string path = temp / "lock";
  ASSERT_TRUE(UniqueFd(::open(path.c_str(), O_CREAT | O_RDWR, 0600)).ok());
  EXPECT_TRUE(LockFile::take(path, kNoWait));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(RootLock, RefusesLockFileThatOthersCanOpen) {
  const TempDir temp;
  const std::string path = temp / "lock";
  ASSERT_TRUE(UniqueFd(::open(path.c_str(), O_CREAT | O_RDWR, 0600)).ok());
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  const auto lock = LockFile::take(path, kNoWait);
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, EPERM);
}

TEST(RootLock, KnowsFilesThatOnlyRootCanOpen) {
  struct stat status {};
  status.st_uid = ::geteuid();
  for (const auto& [mode, group, only] :
       {std::tuple(0700U, 5U, true), std::tuple(0755U, 0U, false), std::tuple(0750U, 0U, true),
        std::tuple(0750U, 5U, false), std::tuple(0711U, 5U, true), std::tuple(0733U, 0U, false)}) {
    status.st_mode = S_IFDIR | mode;
    status.st_gid = group;
    EXPECT_EQ(is_private(status), only) << std::oct << mode;
  }
  status.st_mode = S_IFDIR | 0700;
  status.st_uid = ::geteuid() + 1;
  EXPECT_FALSE(is_private(status));
}

class OldLocks : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to lock as another user";
    ASSERT_EQ(::chmod(programs_.path().c_str(), 0755), 0);
    ASSERT_EQ(::chmod(place_.path().c_str(), 0755), 0);
  }
  Result<OldLock> take() {
    fd_ = open_directory_of(place_.path());
    return take_old_lock(fd_.get(), place_.path(), kNoWait);
  }
  TempDir programs_;
  TempDir place_;
  UniqueFd fd_;
};

TEST_F(OldLocks, AreTakenIfTheyAreFree) {
  EXPECT_TRUE(must(take()).held);
  const UniqueFd other = open_directory_of(place_.path());
  EXPECT_NE(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(OldLocks, OfStrangersDoNotStopRoot) {
  for (const auto& [program, user] :
       {std::pair("anything", 65534U), std::pair("rdma-hook", 65534U), std::pair("anything", 0U)}) {
    const Locker stranger(place_.path(), programs_, program, user);
    const OldLock lock = must(take());
    EXPECT_FALSE(lock.held) << program << user;
    EXPECT_NE(lock.process.find("user " + std::to_string(user)), std::string::npos) << lock.process;
  }
}

// As rdma-device-plugin beside an earlier one with more capabilities.
TEST_F(OldLocks, OfEarlierVersionWithMoreCapabilitiesStopRoot) {
  const Locker old(place_.path(), programs_, "rdma-device-plugin", 0);
  const UniqueFd fd = open_directory_of(place_.path());
  const pid_t child = ::fork();
  if (child == 0) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    if (::syscall(SYS_capset, &header, none) != 0) ::_exit(2);
    const auto taken = take_old_lock(fd.get(), "/x", kNoWait);
    ::_exit(!taken && taken.error().code == EAGAIN ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(OldLocks, OfEarlierVersionStopRoot) {
  const Locker old(place_.path(), programs_, "rdma-hook", 0);
  const auto lock = take();
  ASSERT_FALSE(lock.has_value());
  EXPECT_EQ(lock.error().code, EAGAIN);
  EXPECT_NE(lock.error().message.find("(rdma-hook, user 0) has locked"), std::string::npos) << lock.error().message;
}

}  // namespace
