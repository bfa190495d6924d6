// rdma-nri's own answers, with its worker beside it.
#include "shim/nri/rdma_plugin.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "support/temp_dir.hpp"

namespace shim {
namespace {

using namespace std::chrono_literals;

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

  // As a runtime that waits so long for an answer.
  void configure(std::chrono::milliseconds timeout) {
    const auto events = plugin_.configure({"containerd", "2.3.0", "", timeout.count()});
    ASSERT_TRUE(events) << events.error().message;
    EXPECT_EQ(events->size(), 6U);
  }

  test_support::TempDir directory_;
  NriPluginOptions options_ = options();
  hook::Log log_ = plugin_log(options_);
  ConfiguredWorker worker_{options_, log_};
  int due_ = 0;
  NamespaceEnds ends_ = NamespaceEnds::open().value();
  RdmaPlugin plugin_{worker_, log_, ends_, std::nullopt, [this] { ++due_; }};
};

TEST_F(RdmaPluginTest, ASynchronizeThatTookTooLongIsKnown) {
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

// The worker has no time at all: whoever needs it is refused.
TEST_F(RdmaPluginTest, TheWorkerHearsOfThoseThatAskOnly) {
  configure(1ms);
  NriRequest request{.event = Event::kCreateContainer};
  const auto silent = plugin_.answer(request);
  ASSERT_TRUE(silent) << silent.error().message;
  EXPECT_EQ(*silent, "");
  request.pod.annotations["rdma-init.io/devices"] = "all";
  const auto asking = plugin_.answer(request);
  ASSERT_FALSE(asking);
  EXPECT_EQ(asking.error().code, ETIMEDOUT);
  request.pod.annotations["rdma-init.io/mode"] = "some";
  const auto mistaken = plugin_.answer(request);
  ASSERT_FALSE(mistaken);
  EXPECT_NE(mistaken.error().code, ETIMEDOUT) << "it is refused without the worker";
}

TEST_F(RdmaPluginTest, OnlyACreationCanFail) {
  configure(1ms);
  NriRequest request;
  request.pod.annotations = {{"rdma-init.io/devices", "all"}, {"rdma-init.io/mode", "some"}};
  for (const Event event : {Event::kRunPodSandbox, Event::kStopPodSandbox, Event::kRemovePodSandbox,
                            Event::kStopContainer, Event::kRemoveContainer, Event::kStartContainer}) {
    request.event = event;
    const auto answer = plugin_.answer(request);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(*answer, "");
  }
  EXPECT_EQ(due_, 0);
  request.event = Event::kCreateContainer;
  EXPECT_FALSE(plugin_.answer(request));
}

TEST_F(RdmaPluginTest, AnEndThatFailedIsTriedOnceMoreBetweenRequests) {
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

}  // namespace
}  // namespace shim
