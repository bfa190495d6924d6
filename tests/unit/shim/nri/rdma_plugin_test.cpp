// The Plugin service: requests as bytes with NRI's field numbers, and the bytes of the answers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/text.hpp"
#include "unit/sanitized.hpp"
#include "unit/shim/nri/peer.hpp"

namespace shim {
namespace {

using namespace shim_peer;
using Calls = std::vector<std::string>;

class DispatcherTest : public testing::Test {
 protected:
  // Returns the bytes of the answer, or "ERRNO MESSAGE".
  std::string ask(std::string_view method, std::string_view payload, std::int64_t timeout_ns = 0) {
    auto answer = dispatcher_.dispatch({kPluginService, method, payload, timeout_ns});
    if (!answer) return base::errno_name(answer.error().code) + " " + answer.error().message;
    return *answer;
  }
  void configure() {
    ask("Configure", "");
    recorder_.calls.clear();
  }

  shim_peer::Recorder recorder_;
  NriDispatcher dispatcher_{recorder_};
};

TEST_F(DispatcherTest, ConfigureReturnsEventsAndRecordsRuntime) {
  const std::string request = text(1, "{}") + text(2, "containerd") + text(3, "v2.3.0") + number(4, 5000) +
                              number(5, 2000) + text(6, "v0.12.0") + text(50, "new");
  EXPECT_EQ(ask("Configure", request), number(2, 0x409));  // bits 0, 3, 10
  EXPECT_EQ(recorder_.runtime, (RuntimeInfo{"containerd", "v2.3.0", "v0.12.0", 2000}));
  // An old runtime.
  ask("Configure", text(2, "containerd") + text(3, "1.7.24"));
  EXPECT_EQ(recorder_.runtime, (RuntimeInfo{"containerd", "1.7.24", "", 0}));
  ask("Configure", "", 19'999'900'000);
  EXPECT_EQ(recorder_.runtime.request_timeout_ms, 20'000) << "the timeout of the request itself";
  ask("Configure", number(5, 3000), 19'999'900'000);
  EXPECT_EQ(recorder_.runtime.request_timeout_ms, 3000);
}

TEST_F(DispatcherTest, RefusesRequestsBeforeConfigure) {
  EXPECT_EQ(ask("Synchronize", ""), "EAGAIN the runtime sent Synchronize before Configure");
  recorder_.failure = shim_peer::Error{"bad config", EINVAL};
  EXPECT_EQ(ask("Configure", ""), "EINVAL bad config");
  EXPECT_EQ(ask("StateChange", ""), "EAGAIN the runtime sent StateChange before Configure");
  EXPECT_EQ(recorder_.calls, Calls{"configure"});
  recorder_.wanted.clear();
  EXPECT_EQ(ask("Configure", ""), "EINVAL the plugin subscribes to no event") << "zero would mean all events";
  EXPECT_EQ(ask("CreateContainer", ""), "EAGAIN the runtime sent CreateContainer before Configure");
}

TEST_F(DispatcherTest, RefusesUnknownServicesAndMethods) {
  configure();
  EXPECT_EQ(ask("UpdatePodSandbox", ""), "ENOSYS method UpdatePodSandbox");
  EXPECT_EQ(ask("a\nb", ""), "ENOSYS method a?b");
  EXPECT_EQ(dispatcher_.dispatch({kRuntimeService, "Configure", ""}).error().message,
            "service nri.pkg.api.v1alpha1.Runtime");
}

TEST_F(DispatcherTest, SynchronizesInOneOrSeveralParts) {
  configure();
  const Calls calls = {"synchronize", "found pod p1", "found pod p2", "found container c1", "synchronized"};
  const std::string all =
      text(1, shim_peer::pod_message("p1")) + text(1, text(1, "p2")) + text(2, shim_peer::container_message("c1"));
  EXPECT_EQ(ask("Synchronize", all), "");
  EXPECT_EQ(recorder_.calls, calls);
  configure();
  EXPECT_EQ(ask("Synchronize", text(1, text(1, "p1")) + number(3, 1)), number(2, 1));
  EXPECT_EQ(ask("Synchronize", text(1, text(1, "p2")) + number(3, 1)), number(2, 1));
  EXPECT_EQ(ask("Synchronize", text(2, text(1, "c1"))), "");
  EXPECT_EQ(recorder_.calls, calls);
}

TEST_F(DispatcherTest, StartsSynchronizeAgainAfterFailure) {
  configure();
  EXPECT_EQ(ask("Synchronize", text(1, text(1, "p1")) + number(3, 1)), number(2, 1));
  EXPECT_EQ(ask("Synchronize", text(1, "\x0a\x05x")), "EINVAL PodSandbox of 3 bytes is not valid protobuf");
  recorder_.failure = shim_peer::Error{"ledger is locked"};
  EXPECT_EQ(ask("Synchronize", ""), "0 ledger is locked");
  EXPECT_EQ(ask("Synchronize", "\x0a"), "EINVAL SynchronizeRequest: protobuf message: field 1 is cut off or overlong");
  ask("Synchronize", "");
  EXPECT_EQ(recorder_.calls, (Calls{"synchronize", "found pod p1", "synchronize", "synchronized", "synchronize",
                                    "synchronize", "synchronized"}));
}

TEST_F(DispatcherTest, ReadsAllFieldsOfCreateContainer) {
  configure();
  EXPECT_EQ(ask("CreateContainer", shim_peer::create_message()), "");
  EXPECT_EQ(recorder_.pod, shim_peer::pod_value("pod"));
  EXPECT_EQ(recorder_.container, shim_peer::container_value("c"));
  recorder_.failure = shim_peer::Error{"pool `a` is empty", ENOSPC};
  EXPECT_EQ(ask("CreateContainer", shim_peer::create_message()), "ENOSPC pool `a` is empty");
  EXPECT_EQ(ask("CreateContainer", ""), "");
  EXPECT_EQ(recorder_.pod, NriPod{});
  EXPECT_EQ(recorder_.container, NriContainer{});
  ask("CreateContainer", text(2, number(4, 77)));
  EXPECT_FALSE(recorder_.container.stopped);
  ask("CreateContainer", text(2, number(4, 4)));
  EXPECT_TRUE(recorder_.container.stopped);
}

TEST_F(DispatcherTest, WritesAdjustmentOfContainer) {
  configure();
  recorder_.adjustment = {
      .annotations = {{"rdma-init.io/grant", "token"}},
      .mounts = {{"/etc/rdma", "/run/rdma", "bind", {"ro"}}},
      .env = {{"A", "1"}, {"B", ""}},
      .devices = {{"/dev/infiniband/uverbs0", 231, 192}, {"/dev/infiniband/rdma_cm", 10, 58, 0600, 0, 5}},
      .memlock = hook::Rlimit{UINT64_MAX, UINT64_MAX}};
  const std::string uverbs = text(1, "/dev/infiniband/uverbs0") + text(2, "c") + number(3, 231) + number(4, 192) +
                             text(5, number(1, 0666)) + text(6, "") + text(7, "");
  const std::string cm = text(1, "/dev/infiniband/rdma_cm") + text(2, "c") + number(3, 10) + number(4, 58) +
                         text(5, number(1, 0600)) + text(6, "") + text(7, number(1, 5));
  const std::string limit = text(1, "RLIMIT_MEMLOCK") + number(2, UINT64_MAX) + number(3, UINT64_MAX);
  const std::string mount = text(1, "/etc/rdma") + text(2, "bind") + text(3, "/run/rdma") + text(4, "ro");
  EXPECT_EQ(ask("CreateContainer", shim_peer::create_message()),
            text(1, entry(2, "rdma-init.io/grant", "token") + text(3, mount) + entry(4, "A", "1") +
                        text(4, text(1, "B")) + text(6, text(1, uverbs) + text(1, cm)) + text(7, limit)));
}

TEST_F(DispatcherTest, RefusesInvalidProtobuf) {
  configure();
  for (const char* method : {"CreateContainer", "StateChange", "StopContainer", "RunPodSandbox"})
    EXPECT_TRUE(ask(method, "\xff").starts_with("EINVAL ")) << method;
  EXPECT_TRUE(ask("CreateContainer", text(2, text(1, "\xff"))).starts_with("EINVAL ")) << "not UTF-8";
  EXPECT_EQ(ask("CreateContainer", std::string((4 << 20) + 1, '\0')),
            "EMSGSIZE CreateContainerRequest of 4194305 bytes: the limit is 4194304");
  std::string mounts;
  for (int i = 0; i < (1 << 18) + 1; ++i)
    mounts += text(9, "");
  EXPECT_EQ(ask("CreateContainer", text(2, mounts)),
            "EMSGSIZE CreateContainerRequest with a list of 262145 entries: the limit is 262144");
  EXPECT_EQ(recorder_.calls, Calls{});
}

// Returns VmHWM of this process.
long peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    long kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib;
  }
  return -1;
}

// Mounts of two bytes each, which took 400 bytes each in memory.
TEST_F(DispatcherTest, ParsesTwoMillionMountsInLittleMemory) {
  if (kIsSanitized) GTEST_SKIP() << "memory cannot be measured under the address sanitizer";
  constexpr int kMounts = 2'000'000;
  constexpr long kMostKib = 64 << 10;
  configure();
  std::string mounts;
  for (int i = 0; i < kMounts; ++i)
    mounts += text(9, "");
  const std::string container = text(2, mounts);
  for (const char* method : {"CreateContainer", "Synchronize", "StopContainer", "StateChange"}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak to the current size
      const long before = peak_kib();
      (void)ask(method, container);
      const long grown = peak_kib() - before;
      ::_exit(::write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
    }
    ::close(ends[1]);
    long grown = -1;
    EXPECT_EQ(::read(ends[0], &grown, sizeof grown), static_cast<ssize_t>(sizeof grown));
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    EXPECT_GE(grown, 0) << method;
    EXPECT_LT(grown, kMostKib) << method;
  }
}

TEST_F(DispatcherTest, AcceptsEventsAsMethodAndAsStateChange) {
  // `method` exists since NRI 0.12.0, `event` is the number that StateChange has.
  const std::tuple<const char*, Event, const char*> cases[] = {
      {"RunPodSandbox", Event::kRunPodSandbox, "run p"},
      {"StopPodSandbox", Event::kStopPodSandbox, "stop p"},
      {"RemovePodSandbox", Event::kRemovePodSandbox, "remove p"},
      {"PostCreateContainer", Event::kPostCreateContainer, "post create p/c"},
      {"StartContainer", Event::kStartContainer, "start p/c"},
      {"PostStartContainer", Event::kPostStartContainer, "post start p/c"},
      {"UpdateContainer", Event::kUpdateContainer, "update p/c"},
      {"PostUpdateContainer", Event::kPostUpdateContainer, "post update p/c"},
      {"StopContainer", Event::kStopContainer, "stop p/c"},
      {"RemoveContainer", Event::kRemoveContainer, "remove p/c"}};
  const std::string pod = shim_peer::pod_message("p");
  const std::string container = shim_peer::container_message("c");
  for (const auto& [method, event, call] : cases) {
    SCOPED_TRACE(method);
    configure();
    EXPECT_EQ(ask(method, text(1, pod) + text(2, container)), "");
    const std::string change = number(1, static_cast<unsigned>(event));
    EXPECT_EQ(ask("StateChange", change + text(2, pod) + text(3, container)), "");
    EXPECT_EQ(recorder_.calls, (Calls{call, call}));
    recorder_.failure = shim_peer::Error{"no", EPERM};
    EXPECT_EQ(ask("StateChange", change), "EPERM no");
  }
}

TEST_F(DispatcherTest, IgnoresShutdownAndEventsThatAreNotChanges) {
  configure();
  for (const unsigned event : {0U, 4U, 12U, 13U, 14U, 1000U})
    EXPECT_EQ(ask("StateChange", number(1, event)), "");
  EXPECT_EQ(ask("Shutdown", ""), "");
  EXPECT_EQ(recorder_.calls, Calls{});
}

}  // namespace
}  // namespace shim
