#include "shim/nri/rdma_plugin.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <thread>

#include "base/file.hpp"
#include "base/text.hpp"
#include "shim/nri/run.hpp"
#include "shim/nri/worker.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace shim {
namespace {

using namespace std::chrono_literals;
using namespace fabric;
using test_support::must;
using Clock = Worker::Clock;

// A process for work that may be slow or die.

// Answers `pid` and the requests of the tests.
Worker::Begin does(std::function<Worker::Answer(std::string_view)> work) {
  return [work = std::move(work)]() -> Result<Worker::Serve> {
    return Worker::Serve([work](std::string_view request) -> Worker::Answer {
      if (request == "pid") return {fmt::format("{}", ::getpid())};
      return work(request);
    });
  };
}

Result<std::string> ask(Worker& worker, std::string_view request) {
  return worker.ask(request, Clock::now() + 30s);
}

pid_t pid_of(Worker& worker) {
  const auto text = ask(worker, "pid");
  return text ? base::parse_number<pid_t>(*text).value_or(0) : 0;
}

TEST(Worker, AnswersSuccessiveRequests) {
  Worker worker(does([](std::string_view request) { return Worker::Answer{std::string(request)}; }));
  const std::string large(1'000'000, 'x');
  for (const std::string& request : {std::string("done"), std::string(), large})
    EXPECT_EQ(must(ask(worker, request)), request);
  const pid_t pid = pid_of(worker);
  EXPECT_NE(pid, ::getpid());
  EXPECT_EQ(pid_of(worker), pid);
  worker.retire();
  EXPECT_EQ(::kill(pid, 0), -1) << "the process still exists";
  EXPECT_NE(pid_of(worker), pid);
}

TEST(Worker, ReturnsWholeErrorAndEnds) {
  const test_support::TempDir work;
  const std::string counted = work / "counted";
  Worker worker(does([&](std::string_view) -> Worker::Answer {
    return {Error{"no \xff HCA", EBUSY, "wait"}, [&] { test_support::write_file(counted, "1"); }};
  }));
  const pid_t pid = pid_of(worker);
  const auto failed = ask(worker, "fail");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no \xEF\xBF\xBD HCA");
  EXPECT_EQ(failed.error().code, EBUSY);
  EXPECT_EQ(failed.error().hint, "wait");
  EXPECT_EQ(test_support::read_file(counted), "1");
  EXPECT_EQ(::kill(pid, 0), -1) << "unfinished work must not belong to a living process";
  EXPECT_NE(pid_of(worker), pid);
}

TEST(Worker, AnswersBeforeWorkThatFollows) {
  const auto began = Clock::now();
  Worker worker(does([](std::string_view) -> Worker::Answer { return {std::string("done"), [] { ::pause(); }}; }));
  EXPECT_EQ(*ask(worker, "now"), "done");
  EXPECT_LT(Clock::now() - began, 30s);
}

TEST(Worker, InheritsNoDescriptors) {
  const int fd = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(fd, 0);
  Worker worker(
      does([&](std::string_view) { return Worker::Answer{std::string(::fcntl(fd, F_GETFD) < 0 ? "no" : "yes")}; }));
  const auto has = ask(worker, "it");
  ::close(fd);
  EXPECT_EQ(*has, "no") << "the runtime's socket would outlive the plugin";
}

TEST(Worker, IsKilledAtTheDeadline) {
  Worker worker(does([](std::string_view) -> Worker::Answer {
    for (;;)
      ::pause();
  }));
  const pid_t pid = pid_of(worker);
  const auto began = Clock::now();
  EXPECT_EQ(worker.ask("wait", began + 50ms).error().code, ETIMEDOUT);
  EXPECT_GE(Clock::now() - began, 50ms);
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_NE(pid_of(worker), 0);
}

TEST(Worker, ReportsDeathAsError) {
  Worker worker(does([](std::string_view request) -> Worker::Answer {
    if (request == "throw") throw std::bad_alloc();
    ::kill(::getpid(), SIGKILL);
    return {std::string()};
  }));
  EXPECT_EQ(ask(worker, "die").error().message, "rdma-nri's worker ended without an answer");
  EXPECT_EQ(ask(worker, "throw").error().message, base::error_of_exception().message);
  Worker unable([]() -> Result<Worker::Serve> { return Error{"no filter", EINVAL}; });
  EXPECT_EQ(ask(unable, "it").error().message, "no filter") << "a failed begin";
}

TEST(Worker, ReplacesProcessKilledBetweenRequests) {
  Worker worker(does([](std::string_view) { return Worker::Answer{std::string("done")}; }));
  const pid_t pid = pid_of(worker);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const auto answer = ask(worker, "go on");
  // The process may have died during the request.
  if (answer) {
    EXPECT_EQ(*answer, "done");
  } else {
    EXPECT_EQ(answer.error().code, EIO);
  }
  EXPECT_EQ(*ask(worker, "go on"), "done");
}

// rdma-nri's own answers, with a worker.

class RdmaPluginTest : public testing::Test {
 protected:
  NriPluginOptions options() const {
    NriPluginOptions options;
    options.node.config = {directory_ / "config.json", "", true};
    options.node.root = directory_ / "node";
    options.node.ledger = directory_ / "ledger";
    test_support::write_file(options.node.config.file, R"({"annotations_may_request": ["*"]})");
    return options;
  }

  // Configures the plugin as a runtime with this request timeout.
  void configure(std::chrono::milliseconds timeout) {
    EXPECT_EQ(must(plugin_.configure({"containerd", "2.3.0", "", timeout.count()})).size(), 6U);
  }

  test_support::TempDir directory_;
  NriPluginOptions options_ = options();
  base::Log log_ = plugin_log(options_);
  ConfiguredWorker worker_{options_, log_};
  int due_ = 0;
  NamespaceEnds ends_ = NamespaceEnds::open().value();
  RdmaPlugin plugin_{worker_, log_, ends_, std::nullopt, [this] { ++due_; }};
};

TEST_F(RdmaPluginTest, DetectsLateSynchronize) {
  configure(20ms);
  plugin_.synchronize_begin();
  std::this_thread::sleep_for(40ms);
  plugin_.found(NriPod());
  EXPECT_FALSE(plugin_.synchronized_late()) << "the runtime may still be sending";
  ASSERT_TRUE(plugin_.synchronize_end());
  EXPECT_TRUE(plugin_.synchronized_late());
  EXPECT_EQ(due_, 1);
  configure(60s);
  plugin_.synchronize_begin();
  ASSERT_TRUE(plugin_.synchronize_end());
  EXPECT_FALSE(plugin_.synchronized_late());
  EXPECT_EQ(due_, 2);
}

// The worker has no time at all: each request that needs it is refused.
TEST_F(RdmaPluginTest, CallsWorkerOnlyForRequests) {
  configure(1ms);
  NriRequest request{.event = Event::kCreateContainer};
  EXPECT_EQ(must(plugin_.answer(request)), "");
  request.pod.annotations["rdma-init.io/devices"] = "all";
  EXPECT_EQ(plugin_.answer(request).error().code, ETIMEDOUT);
  request.pod.annotations["rdma-init.io/mode"] = "some";
  EXPECT_NE(plugin_.answer(request).error().code, ETIMEDOUT) << "refused without the worker";
}

// An annotation without an effect needs no worker: only the variable is added.
TEST_F(RdmaPluginTest, NotesAnnotationWithoutEffect) {
  configure(1ms);
  NriRequest request{.event = Event::kCreateContainer};
  request.pod.annotations["rdma-init.io/device"] = "8";
  const std::string answer = must(plugin_.answer(request));
  EXPECT_NE(answer.find("RDMA_INIT_NOTE"), std::string::npos);
  EXPECT_NE(answer.find("ignoring unknown annotation rdma-init.io/device: known are"), std::string::npos);
  request.event = Event::kRunPodSandbox;
  EXPECT_EQ(must(plugin_.answer(request)), "");
}

TEST_F(RdmaPluginTest, FailsOnlyCreation) {
  configure(1ms);
  NriRequest request;
  request.pod.annotations = {{"rdma-init.io/devices", "all"}, {"rdma-init.io/mode", "some"}};
  for (const Event event : {Event::kRunPodSandbox, Event::kStopPodSandbox, Event::kRemovePodSandbox,
                            Event::kStopContainer, Event::kRemoveContainer, Event::kStartContainer}) {
    request.event = event;
    EXPECT_EQ(must(plugin_.answer(request)), "");
  }
  EXPECT_EQ(due_, 0);
  request.event = Event::kCreateContainer;
  EXPECT_FALSE(plugin_.answer(request));
}

TEST_F(RdmaPluginTest, RetriesFailedReleaseBetweenRequests) {
  configure(1ms);
  test_support::write_file(options_.node.ledger, "no directory");
  NriRequest request{.event = Event::kStopContainer};
  request.container.id = "c1";
  EXPECT_TRUE(plugin_.answer(request));
  EXPECT_EQ(due_, 1);
  request.event = Event::kRemoveContainer;
  EXPECT_TRUE(plugin_.answer(request));
  EXPECT_EQ(due_, 1);
}

// Each end is reported once, with the keys of its own path.
TEST(NamespaceEnds, NamesEndedNamespaces) {
  const test_support::TempDir directory;
  NamespaceEnds ends = NamespaceEnds::open().value();
  std::set<std::string> keys;
  for (int i = 0; i < 250; ++i) {
    const std::string path = directory / std::to_string(i);
    test_support::write_file(path, "");
    ASSERT_TRUE(ends.watch(path, "netns-" + std::to_string(i)));
    keys.insert("netns-" + std::to_string(i));
  }
  ASSERT_TRUE(ends.watch(directory / "7", "netns-replaced"));
  EXPECT_EQ(ends.take(), std::set<std::string>());
  keys.erase("netns-8");
  keys.insert("netns-replaced");
  for (int i = 0; i < 250; ++i) {
    if (i == 8) continue;
    ASSERT_EQ(::unlink((directory / std::to_string(i)).c_str()), 0);
  }
  EXPECT_EQ(ends.take(), keys);
  EXPECT_EQ(ends.take(), std::set<std::string>());
}

// Kills a container's first process and no other process.

// A sleeping child in the cgroup of the test.
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
  // Returns the signal that ended it; 0: it lives.
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

TEST(EndContainer, KillsProcessInCgroupOfContainer) {
  const auto cgroups = base::value_or(base::read_file("/proc/self/cgroup", 1 << 16), std::string());
  const std::string name = cgroups.substr(0, cgroups.find('\n'));
  ASSERT_FALSE(name.empty());
  const Sleeper sleeper;
  must(end_container(name, sleeper.pid()));
  sleeper.wait();
  EXPECT_EQ(sleeper.ended_by(), SIGKILL);
  EXPECT_TRUE(end_container(name, sleeper.pid()));  // the process is gone
}

TEST(EndContainer, SparesProcessesOfOtherCgroups) {
  const Sleeper sleeper;
  EXPECT_NE(end_container("0123456789abcdef-no-such-container", sleeper.pid())
                .error()
                .message.find("not in a cgroup of the container"),
            std::string::npos);
  EXPECT_EQ(sleeper.ended_by(), 0);
  EXPECT_FALSE(end_container("", sleeper.pid()));
  EXPECT_EQ(sleeper.ended_by(), 0);
  EXPECT_FALSE(end_container("0123456789abcdef", 0)) << "no process";
  EXPECT_FALSE(end_container("0123456789abcdef", -1));
}

}  // namespace
}  // namespace shim
