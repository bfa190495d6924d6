// Outputs of a stage's messages. For syslog: tests/node.
#include "base/log.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/timing.hpp"
#include "base/unique_fd.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() : stderr_(::dup(STDERR_FILENO)) {}
  ~LogTest() override { restore(); }
  void restore() const { ::dup2(stderr_, STDERR_FILENO); }
  // Logs a message with this descriptor as stderr; further times with a number, because a warning is written once.
  void log_to(int fd, std::string_view message = "$(reboot)", int times = 1) const {
    ::dup2(fd, STDERR_FILENO);
    const Log log = Log::of_stage();
    while (times-- > 0)
      log.warning(fmt::format("{}{}", message, times > 0 ? std::to_string(times) : ""));
    restore();
  }
  // Returns the text that can be read without waiting.
  static std::string received(int fd) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    char text[256];
    const ssize_t count = ::read(fd, text, sizeof text);
    return {text, static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  }

  int stderr_;
};

// A pair of descriptors: the reader gets the text of the writer.
struct Ends {
  enum Kind { kPipe, kSocket, kTerminal };
  explicit Ends(Kind kind) {
    int ends[2] = {-1, -1};
    const int made = kind == kPipe     ? ::pipe2(ends, O_CLOEXEC)
                     : kind == kSocket ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
                                       : ::openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr);
    EXPECT_EQ(made, 0);
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
  base::UniqueFd reader;
  base::UniqueFd writer;
};

TEST_F(LogTest, WritesToPipeAndSocketButNotToFile) {
  for (const Ends::Kind kind : {Ends::kPipe, Ends::kSocket}) {
    const Ends ends(kind);
    log_to(ends.writer.get());
    EXPECT_EQ(received(ends.reader.get()), "rdma-hook: warning: $(reboot)\n");
    EXPECT_EQ(::fcntl(ends.writer.get(), F_GETFL) & O_NONBLOCK, 0) << "the caller shares the file description";
  }
  const test_support::TempDir directory;
  const std::string path = directory / "profile.sh";
  test_support::write_file(path, "");
  const base::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  log_to(fd.get());
  EXPECT_EQ(test_support::read_file(path), "");
}

TEST_F(LogTest, WritesFixedLineToFileOnlyWithoutContainer) {
  if (::access("/dev/log", F_OK) == 0) GTEST_SKIP() << "this machine has /dev/log, which takes the error";
  const test_support::TempDir directory;
  const std::string path = directory / "errors";
  const auto written = [&](int flags, bool has_container) {
    test_support::write_file(path, "");
    const base::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags));
    ::dup2(fd.get(), STDERR_FILENO);
    Log log = Log::of_stage();
    log.set_own_text("the stage cannot start");
    if (has_container) log.set_container("a");
    log.error({"$(reboot)", 0, {}});
    restore();
    return test_support::read_file(path);
  };
  EXPECT_EQ(written(0, true), "");
  EXPECT_EQ(written(O_APPEND, false), "");
  EXPECT_EQ(written(0, false).find("$(reboot)"), std::string::npos);
  EXPECT_TRUE(written(0, false).starts_with("rdma-hook: error: the stage cannot start, and neither syslog"));
}

TEST_F(LogTest, StageWritesWarningOnce) {
  const Ends pipe(Ends::kPipe);
  ::dup2(pipe.writer.get(), STDERR_FILENO);
  const Log log = Log::of_stage();
  log.warning("no packet socket");
  log.warnings({"no packet socket", "no carrier", "no carrier"});
  restore();
  EXPECT_EQ(received(pipe.reader.get()), "rdma-hook: warning: no packet socket\nrdma-hook: warning: no carrier\n");
}

// crun opens the path in an image's annotation for append: a FIFO, another process's pipe, or a terminal.
TEST_F(LogTest, WritesNothingToDescriptorOpenedForAppend) {
  const test_support::TempDir directory;
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  const base::UniqueFd fifo(::open((directory / "fifo").c_str(), O_RDWR | O_CLOEXEC));
  const Ends pipe(Ends::kPipe);
  const Ends terminal(Ends::kTerminal);
  for (const auto& [reader, writer] :
       {std::pair(fifo.get(), fifo.get()), std::pair(pipe.reader.get(), pipe.writer.get()),
        std::pair(terminal.reader.get(), terminal.writer.get())}) {
    const std::string path = fmt::format("/proc/self/fd/{}", writer);
    const base::UniqueFd appended(::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC, 0700));
    ASSERT_TRUE(appended.ok());
    log_to(appended.get());
    EXPECT_EQ(received(reader), "");
    log_to(writer);
    EXPECT_NE(received(reader), "");
  }
}

TEST_F(LogTest, DoesNotWaitForFullPipeOrTerminal) {
  const Ends pipe(Ends::kPipe);
  ASSERT_EQ(::fcntl(pipe.writer.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string page(4096, 'x');
  while (::write(pipe.writer.get(), page.data(), page.size()) > 0) {
  }
  ASSERT_EQ(::fcntl(pipe.writer.get(), F_SETFL, 0), 0);
  const Ends terminal(Ends::kTerminal);
  ::alarm(10);  // instead of hanging
  log_to(pipe.writer.get());
  log_to(terminal.writer.get(), std::string(1990, 'x'), 100);
  ::alarm(0);
}

TEST(Timing, AddsUpStepsInOrder) {
  using std::chrono::milliseconds;
  const auto pass = [](milliseconds time) { std::this_thread::sleep_for(time); };
  Timing timing;
  EXPECT_TRUE(timing.steps().empty());
  pass(milliseconds(2));
  timing.step("links");
  pass(milliseconds(4));
  timing.step("up");
  pass(milliseconds(3));
  timing.step("links");
  const auto& steps = timing.steps();
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].first, "links");
  EXPECT_EQ(steps[1].first, "up");
  EXPECT_GE(steps[0].second, 5000U) << "microseconds, both times";
  EXPECT_GE(steps[1].second, 4000U);
  const auto total = timing.total();
  EXPECT_GE(total, steps[0].second + steps[1].second) << "no time counts twice";
  pass(milliseconds(1));
  EXPECT_GE(timing.total(), total + 1000) << "the total continues";
  EXPECT_EQ(timing.steps().size(), 2U);
}

}  // namespace
}  // namespace hook
