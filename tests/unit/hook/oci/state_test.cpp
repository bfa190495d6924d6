#include "hook/oci/state.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace {

using namespace hook;
using namespace test_support;

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    in.reset(ends[0]);
    out.reset(ends[1]);
  }
  base::UniqueFd in;
  base::UniqueFd out;
};

TEST(OciState, ReadsStatesOfRuncCrunAndRunsc) {
  const auto runc = must(parse_oci_state(
      R"({"ociVersion":"1.0.2-dev","id":"web-1","status":"creating","pid":4711,"bundle":"/run/b","annotations":{"a":"b"}})"));
  EXPECT_EQ(runc.id, "web-1");
  EXPECT_EQ(runc.status, "creating");
  EXPECT_EQ(runc.pid, 4711);
  EXPECT_EQ(runc.bundle, "/run/b");
  EXPECT_FALSE(runc.from_crun);
  const auto crun =
      must(parse_oci_state(R"({"ociVersion":"1.0","id":"c","pid":0,"root":"rootfs","bundle":"","status":"stopped"})"));
  EXPECT_EQ(crun.pid, 0);
  EXPECT_EQ(crun.bundle, "");
  EXPECT_TRUE(crun.from_crun);
  const auto runsc = must(parse_oci_state(R"({"id":"c","pid":-1,"bundle":"/b","status":"stopped"})"));
  EXPECT_EQ(runsc.pid, 0);
  EXPECT_FALSE(parse_oci_state(R"({"id":"c","pid":-1,"bundle":"/b","status":"running"})"));
  EXPECT_FALSE(parse_oci_state(R"({"id":"c","pid":18446744073709551615,"bundle":"/b","status":"stopped"})"));
}

std::string with_id(const std::string& id) {
  return R"({"id":")" + id + R"(","pid":4711,"bundle":"/b"})";
}
std::string with_pid(const std::string& pid) {
  return R"({"id":"c","pid":)" + pid + R"(,"bundle":"/b"})";
}
std::string with_bundle(const std::string& bundle) {
  return R"({"id":"c","pid":4711,"bundle":")" + bundle + R"("})";
}

TEST(OciState, ChecksIdPidAndBundle) {
  const std::string id_error = "cannot read the container's state: `id` is not 1 to 1024 printable bytes without `/`";
  const std::string pid_range = "cannot read the container's state: `pid` is out of range";
  const std::string pid_type = "cannot read the container's state: `pid` is not an integer";
  const std::tuple<const char*, std::string, std::string> rows[] = {
      {"array", "[]", "cannot read the container's state: it is not an object"},
      {"no id", R"({"pid":4711})", id_error},
      {"empty id", with_id(""), id_error},
      {"id with slash", with_id("a/b"), id_error},
      {"id is dot dot", with_id(".."), id_error},
      {"id with newline", with_id("a\\nb"), id_error},
      {"id with space", with_id("a b"), id_error},
      {"id of 1025 bytes", with_id(std::string(1025, 'a')), id_error},
      {"id is a number", R"({"id":1})", "cannot read the container's state: `id` is not a string"},
      {"pid of the node's init", with_pid("1"), pid_range},
      {"negative pid", with_pid("-1"), pid_range},
      {"pid over PID_MAX_LIMIT", with_pid("4194305"), pid_range},
      {"pid over int64", with_pid("18446744073709551615"), pid_range},
      {"pid over uint64", with_pid("99999999999999999999"), pid_type},
      {"pid is text", with_pid("\"4711\""), pid_type},
      {"pid is 2.0", with_pid("2.0"), pid_type},
      {"relative bundle", with_bundle("run/b"), "cannot use bundle `run/b`: it is not absolute"},
      {"bundle leaves", with_bundle("/run/../etc"), "cannot use bundle `/run/../etc`: it has a `..` component"},
      {"bundle ends in dot dot", with_bundle("/run/.."), "cannot use bundle `/run/..`: it has a `..` component"},
      {"bundle with NUL", with_bundle("/run\\u0000x"), "cannot use bundle `/run?x`: it has a NUL byte"},
      {"too long", std::string((1 << 20) + 1, ' '), "cannot read the container's state: it is over 1048576 bytes"}};
  for (const auto& [name, text, error] : rows)
    EXPECT_EQ(parse_oci_state(text).error().message, error) << name;
  for (const char* text : {"", "{", "{\"id\":\"c\"} x"})
    EXPECT_FALSE(parse_oci_state(text)) << text;
  for (const char* bundle : {"/a..b/c", "/.../x", "/"})
    EXPECT_EQ(must(parse_oci_state(with_bundle(bundle))).bundle, bundle);
  EXPECT_TRUE(parse_oci_state(with_id(std::string(1024, 'a'))));
  EXPECT_EQ(parse_oci_state(with_pid("4194304"))->pid, 4194304);
}

TEST(ReadStateText, ReadsTextInPieces) {
  Pipe pipe;
  const pid_t child = fork();
  if (child == 0) {
    for (const char* piece : {"{\"id\"", ":\"c\"", "}"}) {
      if (write(pipe.out.get(), piece, std::strlen(piece)) < 0) _exit(1);
      usleep(2000);
    }
    _exit(0);
  }
  pipe.out.reset();
  EXPECT_EQ(must(read_state_text(pipe.in.get(), 10000)), R"({"id":"c"})");
  waitpid(child, nullptr, 0);
}

// A byte now and then must not restart the timeout.
TEST(ReadStateText, TimeoutCoversWholeRead) {
  Pipe pipe;
  const pid_t child = fork();
  if (child == 0) {
    pipe.in.reset();
    signal(SIGPIPE, SIG_DFL);
    while (write(pipe.out.get(), " ", 1) == 1)
      usleep(5000);
    _exit(0);
  }
  pipe.out.reset();
  const auto text = read_state_text(pipe.in.get(), 100);
  pipe.in.reset();
  waitpid(child, nullptr, 0);
  EXPECT_EQ(text.error().message, "cannot read the container's state on stdin: it has not ended after 100 ms");
}

TEST(ReadStateText, RefusesMissingOrTooLongInput) {
  const Pipe pipe;
  EXPECT_EQ(read_state_text(pipe.in.get(), 20).error().message,
            "cannot read the container's state on stdin: it has not ended after 20 ms");
  const base::UniqueFd zeros(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(read_state_text(zeros.get(), 10000).error().message,
            "the container's state on stdin is longer than 1048576 bytes");
  EXPECT_EQ(read_state_text(1 << 20, 1000).error().message,
            "cannot read the container's state on stdin: Bad file descriptor");
}

TEST(ProcessIdentity, IsPresentUntilProcessEnds) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto identity = must(base::identify(child));
  EXPECT_EQ(sight(base::read_presence(identity)), "present");
  EXPECT_EQ(sight(base::read_presence(base::ProcessIdentity{child, identity.start_time + 1})), "gone")
      << "another process with that pid";
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(sight(base::read_presence(identity)), "gone") << "a zombie";
  waitpid(child, nullptr, 0);
  EXPECT_EQ(sight(base::read_presence(identity)), "gone");
  EXPECT_EQ(base::identify(child).error().code, ESRCH);
}

// The process name imitates the fields behind it.
TEST(ProcessIdentity, NameIsNotParsed) {
  Pipe ready;
  const pid_t child = fork();
  if (child == 0) {
    const base::UniqueFd comm(open("/proc/self/comm", O_WRONLY | O_CLOEXEC));
    if (write(comm.get(), "a) Z 1 (b) 2", 12) < 0 || write(ready.out.get(), "x", 1) < 0) _exit(1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready.in.get(), &byte, 1), 1);
  const auto identity = must(base::identify(child));
  EXPECT_EQ(sight(base::read_presence(identity)), "present");
  EXPECT_GE(identity.start_time, base::identify(getpid())->start_time);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// Its first thread ends, and the other one continues with all open files. The process lives, although its state is that
// of a zombie.
TEST(ProcessIdentity, IsPresentAfterFirstThreadEnds) {
  const pid_t child = fork();
  if (child == 0) {
    std::thread([] {
      for (;;)
        pause();
    }).detach();
    syscall(SYS_exit, 0);
  }
  const auto identity = must(base::identify(child));
  usleep(50000);
  EXPECT_EQ(sight(base::read_presence(identity)), "present");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(sight(base::read_presence(identity)), "gone");
}

// A runtime calls poststop when the first thread is a zombie.
TEST(ProcessIdentity, WaitsForThreadsThatOutliveTheFirstOne) {
  const auto ends = [](const auto& process, int ms) {
    return base::last_threads_end_within(process, std::chrono::milliseconds(ms));
  };
  const pid_t child = fork();
  if (child == 0) {
    std::thread([] {
      usleep(200000);
      _exit(0);
    }).detach();
    usleep(50000);
    syscall(SYS_exit, 0);
  }
  const auto identity = must(base::identify(child));
  while (sight(base::read_presence(identity)) == "present" && !ends(identity, 60000))
    usleep(1000);
  EXPECT_EQ(sight(base::read_presence(identity)), "gone");
  EXPECT_TRUE(ends(identity, 0));
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(ends(identity, 0));
  EXPECT_FALSE(ends(must(base::identify(getpid())), 60000)) << "its first thread lives, so there is no wait";
}

TEST(ProcessIdentity, RefusesInvalidPids) {
  for (const pid_t pid : {0, -1, 4194304})
    EXPECT_EQ(base::identify(pid).error().code, ESRCH) << pid;
}

// No descriptor is left, or /proc shows no processes: a living process must not count as gone.
TEST(ProcessIdentity, FailedLookupIsUnknown) {
  const auto self = must(base::identify(getpid()));
  const auto reports = [&](const char* expected, bool (*arrange)()) {
    return in_child([&] { return arrange() ? sight(base::read_presence(self)) == expected : 2; });
  };
  EXPECT_EQ(reports("unknown: EMFILE", [] { return setrlimit(RLIMIT_NOFILE, std::array<rlimit, 1>{}.data()) == 0; }),
            1);
  if (geteuid() == 0) {
    EXPECT_EQ(reports("unknown: ENODEV", hide_proc), 1);
  }
}

}  // namespace
