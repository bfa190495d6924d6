// Work in a child process, which may be slow, or die.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "shim/nri/in_child.hpp"

namespace shim {
namespace {

using namespace std::chrono_literals;
using fabric::Error;
using fabric::Result;
using Clock = std::chrono::steady_clock;

Result<std::string> patient(const std::function<Result<std::string>()>& work) {
  return run_in_child(work, Clock::now() + 30s);
}

TEST(InChild, ReturnsWhatTheWorkReturns) {
  const std::string large(1'000'000, 'x');
  EXPECT_EQ(*patient([] { return std::string("done"); }), "done");
  EXPECT_EQ(*patient([] { return std::string(); }), "");
  EXPECT_EQ(*patient([&] { return large; }), large);
  const auto failed = patient([]() -> Result<std::string> { return Error{"no \xff HCA", EBUSY, "wait"}; });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no \xEF\xBF\xBD HCA");
  EXPECT_EQ(failed.error().code, EBUSY);
  EXPECT_EQ(failed.error().hint, "wait");
}

TEST(InChild, HasNothingOfOurs) {
  const int fd = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(fd, 0);
  const auto has = patient([&] { return std::string(::fcntl(fd, F_GETFD) < 0 ? "no" : "yes"); });
  ::close(fd);
  EXPECT_EQ(*has, "no") << "a runtime's socket in it would outlive the plugin";
}

TEST(InChild, IsKilledAtTheDeadline) {
  const auto began = Clock::now();
  const auto late = run_in_child(
      []() -> Result<std::string> {
        for (;;)
          ::pause();
      },
      began + 50ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ETIMEDOUT);
  EXPECT_GE(Clock::now() - began, 50ms);
}

TEST(InChild, ADeathIsAnError) {
  const auto killed = patient([]() -> Result<std::string> {
    ::kill(::getpid(), SIGKILL);
    return std::string();
  });
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().message, "a child process of rdma-nri ended without an answer");
  const auto thrown = patient([]() -> Result<std::string> { throw std::bad_alloc(); });
  ASSERT_FALSE(thrown);
  EXPECT_EQ(thrown.error().message, "std::bad_alloc");
}

}  // namespace
}  // namespace shim
