// Where the messages of a stage go. What goes to syslog: tests/containers.
#include "hook/base/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

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
  void say(int fd) const {
    ::dup2(fd, STDERR_FILENO);
    Log::of_stage().warning("$(reboot)");
    restore();
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
    ASSERT_EQ(::fcntl(reader.get(), F_SETFL, O_NONBLOCK), 0);
    char text[256];
    const ssize_t count = ::read(reader.get(), text, sizeof text);
    ASSERT_GT(count, 0);
    EXPECT_EQ(std::string(text, static_cast<std::size_t>(count)), "rdma-hook: warning: $(reboot)\n");
  }
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
