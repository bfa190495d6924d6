// A plugin's connection over a socket pair, with runtimes of NRI 0.6.1 and 0.12, and its constant use of memory.
#include "shim/nri/wire/session.hpp"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "support/results.hpp"
#include "unit/sanitized.hpp"
#include "unit/shim/nri/peer.hpp"

namespace shim {
namespace {

using namespace std::chrono_literals;
using namespace shim_peer;
using Calls = std::vector<std::string>;

class PluginTest : public testing::Test {
 protected:
  // Sends a request as the runtime, and returns the answer.
  std::string ask(std::string_view method, std::string_view payload) {
    peer_.send(message(1, stream_, 1, request(method, payload)));
    stream_ += 2;
    const auto got = peer_.wait();
    if (!got || got->connection != 1 || got->stream != stream_ - 2) return "no answer";
    return answer(got->data);
  }

  // Reads the plugin's registration as the runtime.
  std::map<unsigned, std::string> registration() {
    const auto got = peer_.wait();
    if (!got || got->connection != 2 || got->stream != 1 || got->type != 1) return {};
    auto parts = fields(got->data);
    EXPECT_EQ(parts[1], "nri.pkg.api.v1alpha1.Runtime");
    EXPECT_EQ(parts[2], "RegisterPlugin");
    return fields(parts[3]);
  }

  // The runtime runs in a thread, the plugin in this one.
  template <typename Runtime>
  void run(Runtime runtime) {
    std::thread thread([&] {
      runtime();
      peer_.close();
    });
    const auto registered = plugin_->register_as({.name = "rdma", .index = "10"}, 30s);
    EXPECT_TRUE(registered) << registered.error().message;
    const auto ended = plugin_->serve();
    thread.join();
    ASSERT_TRUE(ended) << ended.error().message;
    EXPECT_EQ(*ended, Connection::Ended::kPeer);
  }

  shim_peer::Peer peer_;
  shim_peer::Recorder recorder_;
  std::unique_ptr<NriSession> plugin_ = NriSession::open(peer_.take_plugin_end(), recorder_).value();
  std::uint32_t stream_ = 1;
};

const std::map<unsigned, std::string> kIdentity{{1, "rdma"}, {2, "10"}, {3, "v0.12.2"}};

TEST_F(PluginTest, ServesRuntimeOfNri061) {
  recorder_.adjustment.devices = {{"/dev/infiniband/uverbs0", 231, 192}};
  run([&] {
    EXPECT_EQ(registration(), kIdentity);
    // Configure arrives before the answer to RegisterPlugin.
    EXPECT_EQ(ask("Configure", text(2, "containerd") + text(3, "1.7.24")), number(2, 0x409));
    peer_.send(message(2, 1, 2, ""));
    EXPECT_EQ(ask("Synchronize", text(1, shim_peer::pod_message("p"))), "");
    EXPECT_EQ(ask("StateChange", number(1, 1) + text(2, shim_peer::pod_message("q"))), "");
    EXPECT_EQ(fields(fields(fields(ask("CreateContainer", shim_peer::create_message()))[1])[6])[1],
              text(1, "/dev/infiniband/uverbs0") + text(2, "c") + number(3, 231) + number(4, 192) +
                  text(5, number(1, 0666)) + text(6, "") + text(7, ""));
    EXPECT_EQ(ask("StopContainer", shim_peer::create_message()), "");
    EXPECT_EQ(ask("StateChange", number(1, 11) + text(2, text(1, "q")) + text(3, text(1, "c"))), "");
    EXPECT_EQ(ask("StateChange", number(1, 3) + text(2, text(1, "q"))), "");
  });
  EXPECT_EQ(recorder_.calls, (Calls{"configure", "synchronize", "found pod p", "synchronized", "run q", "create pod/c",
                                    "stop pod/c", "remove q/c", "remove q"}));
}

TEST_F(PluginTest, ServesRuntimeOfNri012) {
  run([&] {
    EXPECT_EQ(registration(), kIdentity);
    peer_.send(message(2, 1, 2, ""));
    EXPECT_EQ(ask("Configure",
                  text(2, "containerd") + text(3, "v2.3.4") + number(4, 5000) + number(5, 2000) + text(6, "v0.12.0")),
              number(2, 0x409));
    EXPECT_EQ(ask("Synchronize", text(1, shim_peer::pod_message("p")) + number(3, 1)), number(2, 1));
    EXPECT_EQ(ask("Synchronize", text(2, shim_peer::container_message("d"))), "");
    EXPECT_EQ(ask("RunPodSandbox", text(1, shim_peer::pod_message("q"))), "");
    EXPECT_EQ(ask("CreateContainer", shim_peer::create_message()), "");
    EXPECT_EQ(ask("PostCreateContainer", shim_peer::create_message()), "");
    EXPECT_EQ(ask("UpdatePodSandbox", ""), "status 12: method UpdatePodSandbox");
    EXPECT_EQ(ask("StopContainer", shim_peer::create_message()), "");
    EXPECT_EQ(ask("RemoveContainer", shim_peer::create_message()), "");
    EXPECT_EQ(ask("StopPodSandbox", text(1, text(1, "q"))), "");
    EXPECT_EQ(ask("RemovePodSandbox", text(1, text(1, "q"))), "");
  });
  EXPECT_EQ(recorder_.runtime.nri_version, "v0.12.0");
  EXPECT_EQ(recorder_.calls,
            (Calls{"configure", "synchronize", "found pod p", "found container d", "synchronized", "run q",
                   "create pod/c", "post create pod/c", "stop pod/c", "remove pod/c", "stop q", "remove q"}));
}

TEST_F(PluginTest, ContinuesAfterRefusedContainer) {
  run([&] {
    registration();
    peer_.send(message(2, 1, 2, ""));
    ask("Configure", "");
    recorder_.failure = shim_peer::Error{"container `c`: pool `a` is empty", 0, "add HCAs"};
    EXPECT_EQ(ask("CreateContainer", shim_peer::create_message()),
              "status 2: container `c`: pool `a` is empty (add HCAs)");
    EXPECT_EQ(ask("CreateContainer", shim_peer::create_message()), "");
  });
}

TEST_F(PluginTest, FailsWhenRuntimeDoesNotAnswer) {
  EXPECT_EQ(plugin_->register_as({.name = "rdma", .index = "10"}, 20ms).error().message,
            "call `nri.pkg.api.v1alpha1.Runtime.RegisterPlugin`: no answer within 20 ms");
}

TEST(PluginIdentity, RefusesInvalidNameOrIndex) {
  EXPECT_TRUE(check_identity({.name = "rdma-nri_1.0+x", .index = "00"}));
  EXPECT_EQ(check_identity({.name = "", .index = "00"}).error().message,
            "plugin name ``: expected letters, digits and `_.+-`");
  EXPECT_FALSE(check_identity({.name = "a/b", .index = "00"}));
  for (const char* index : {"", "1", "100", "1a", "-1"})
    EXPECT_EQ(check_identity({.name = "a", .index = index}).error().message,
              "plugin index `" + std::string(index) + "`: expected two digits");
}

TEST(NriSocket, TakesLaunchedSocketOrConnects) {
  for (const char* bad : {"", "x", "-1", "0x3", "9999", "1 "})
    EXPECT_FALSE(launched_socket(bad)) << bad;
  shim_peer::Peer peer;
  auto end = peer.take_plugin_end();
  const auto taken = test_support::must(launched_socket(std::to_string(end.get())));
  EXPECT_EQ(taken.get(), end.release());
  EXPECT_EQ(connect_socket("/nonexistent/nri.sock").error().code, ENOENT);
  EXPECT_FALSE(connect_socket(""));
  EXPECT_FALSE(connect_socket(std::string(108, 'x')));
}

std::size_t in_use() {
  const auto info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::size_t resident() {
  std::ifstream status("/proc/self/statm");
  std::size_t total = 0;
  std::size_t pages = 0;
  status >> total >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// One thread is enough: each request and its answer fit into the socket.
TEST_F(PluginTest, UsesConstantMemory) {
  if (kIsSanitized) GTEST_SKIP() << "memory cannot be measured under the address sanitizer";
  recorder_.adjustment.devices = {{"/dev/infiniband/uverbs0", 231, 192}};
  recorder_.calls.reserve(10'000);
  const std::string create = shim_peer::create_message();
  const std::string large = text(2, shim_peer::container_message("c") + text(8, std::string(50'000, 'e')));
  const auto exchange = [&](std::string_view method, std::string_view payload) {
    peer_.send(message(1, stream_, 1, request(method, payload)));
    stream_ += 2;
    for (int i = 0; i < 4; ++i)
      ASSERT_TRUE(plugin_->serve(-1, Connection::Clock::now()));
    const auto got = peer_.received();
    ASSERT_EQ(got.size(), 1U);
    ASSERT_FALSE(answer(got[0].data).starts_with("status")) << answer(got[0].data);
    recorder_.calls.clear();
  };
  exchange("Configure", "");
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i)
      exchange("CreateContainer", i % 10 == 9 ? large : create);
  };
  rounds(100);
  const std::size_t before = in_use();
  const std::size_t before_resident = resident();
  rounds(2000);
  EXPECT_LE(in_use(), before + (std::size_t{16} << 10)) << "a leak of 32 bytes per request would be four times as much";
  EXPECT_LE(resident(), before_resident + (std::size_t{256} << 10));
}

}  // namespace
}  // namespace shim
