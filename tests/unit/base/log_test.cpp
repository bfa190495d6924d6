// Where the messages of a stage go. What goes to syslog: tests/node.
#include "hook/base/log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "fabric/unique_fd.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() : stderr_(::dup(STDERR_FILENO)) {}
  ~LogTest() override { restore(); }
  void restore() const { ::dup2(stderr_, STDERR_FILENO); }
  // Says it with this as stderr.
  void say(int fd, std::string_view message = "$(reboot)", int times = 1) const {
    ::dup2(fd, STDERR_FILENO);
    const Log log = Log::of_stage();
    while (times-- > 0)
      log.warning(message);
    restore();
  }
  // What can be read there without waiting.
  static std::string heard(int fd) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    char text[256];
    const ssize_t count = ::read(fd, text, sizeof text);
    return {text, static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  }

  int stderr_;
};

TEST_F(LogTest, AStageWritesNothingIntoAFile) {
  const test_support::TempDir directory;
  const std::string path = directory / "profile.sh";
  test_support::write_file(path, "");
  const fabric::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  say(fd.get());
  EXPECT_EQ(test_support::read_file(path), "");
}

TEST_F(LogTest, AStageTellsWhoListens) {
  for (const bool is_socket : {false, true}) {
    int ends[2];
    ASSERT_EQ(is_socket ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) : ::pipe2(ends, O_CLOEXEC), 0);
    const fabric::UniqueFd reader(ends[0]);
    const fabric::UniqueFd writer(ends[1]);
    say(writer.get());
    EXPECT_EQ(heard(reader.get()), "rdma-hook: warning: $(reboot)\n");
    EXPECT_EQ(::fcntl(writer.get(), F_GETFL) & O_NONBLOCK, 0) << "it is the caller's too";
  }
}

// As crun opens what an image names: a FIFO, another process's pipe, a terminal.
TEST_F(LogTest, AStageWritesNothingWhereCrunAppends) {
  const test_support::TempDir directory;
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  const fabric::UniqueFd fifo(::open((directory / "fifo").c_str(), O_RDWR | O_CLOEXEC));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const fabric::UniqueFd pipe_reader(ends[0]);
  const fabric::UniqueFd pipe_writer(ends[1]);
  int terminal[2];
  ASSERT_EQ(::openpty(&terminal[0], &terminal[1], nullptr, nullptr, nullptr), 0);
  const fabric::UniqueFd master(terminal[0]);
  const fabric::UniqueFd slave(terminal[1]);
  const struct {
    int reader;
    int writer;
  } rows[] = {{fifo.get(), fifo.get()}, {pipe_reader.get(), pipe_writer.get()}, {master.get(), slave.get()}};
  for (const auto& row : rows) {
    const std::string path = fmt::format("/proc/self/fd/{}", row.writer);
    const fabric::UniqueFd appended(::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC, 0700));
    ASSERT_TRUE(appended.ok());
    say(appended.get());
    EXPECT_EQ(heard(row.reader), "");
    say(row.writer);
    EXPECT_NE(heard(row.reader), "");
  }
}

TEST_F(LogTest, ATerminalWithLittleRoomHoldsNobodyUp) {
  int terminal[2];
  ASSERT_EQ(::openpty(&terminal[0], &terminal[1], nullptr, nullptr, nullptr), 0);
  const fabric::UniqueFd master(terminal[0]);
  const fabric::UniqueFd slave(terminal[1]);
  ::alarm(10);  // instead of hanging
  say(slave.get(), std::string(1999, 'x'), 100);
  ::alarm(0);
}

TEST_F(LogTest, AFullPipeHoldsNobodyUp) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const fabric::UniqueFd reader(ends[0]);
  const fabric::UniqueFd writer(ends[1]);
  ASSERT_EQ(::fcntl(writer.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string page(4096, 'x');
  while (::write(writer.get(), page.data(), page.size()) > 0) {
  }
  ASSERT_EQ(::fcntl(writer.get(), F_SETFL, 0), 0);
  ::alarm(10);  // instead of hanging
  say(writer.get());
  ::alarm(0);
}

}  // namespace
}  // namespace hook
