// What a call returns is noted once, with its reason, whoever returned it.
#include "hook/grant/call.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/temp_dir.hpp"
#include "unit/ledger/scene.hpp"

namespace hook {
namespace {

using test_support::book;
using test_support::Child;
using test_support::dead_process;
using test_support::myself;
using test_support::TempDir;

const PlannedHca kFirst{"mlx5_0", Mode::kExclusive, 1, std::nullopt};
const PlannedHca kSecond{"mlx5_1", Mode::kExclusive, 1, std::nullopt};

NodeSettings settings_of(const std::string& ledger) {
  NodeSettings node;
  node.ledger = ledger;
  return node;
}

class ReturnsTest : public testing::Test {
 protected:
  Owner make_pod() {
    const TempDir there;
    return netns_owner(identify_netns(there.path()).value());  // gone as soon as this returns
  }
  Owner living_pod() { return netns_owner(identify_netns("/proc/self/ns/net").value()); }
  void give(const Owner& owner, const PlannedHca& hca, const GrantUser& user) {
    ASSERT_TRUE(book(ledger_, owner, {hca}, user).has_value());
    ASSERT_TRUE(ledger_.settle(owner.key).has_value());
  }
  // "EVENT container=... reason=..." of each line that has been written since, and the reasons that are counted.
  std::vector<std::string> reported() {
    testing::internal::CaptureStderr();
    call_.outcome = {};
    open_.report(by_, call_);
    std::vector<std::string> lines;
    const std::string text = testing::internal::GetCapturedStderr();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    for (const ReturnReason reason : call_.outcome.returned)
      lines.push_back("counted " + std::string(to_string(reason)));
    return lines;
  }
  void expect_one(const std::string& start, const std::string& part, const std::string& counted) {
    const auto lines = reported();
    ASSERT_EQ(lines.size(), counted.empty() ? 1U : 2U);
    EXPECT_TRUE(lines[0].starts_with("rdma-hook: " + start + " ")) << lines[0];
    EXPECT_NE(lines[0].find(part), std::string::npos) << lines[0];
    if (!counted.empty()) {
      EXPECT_EQ(lines[1], "counted " + counted);
    }
    EXPECT_TRUE(reported().empty()) << "once";
  }

  TempDir directory_;
  std::string path_ = directory_ / "ledger";
  NodeSettings node_ = settings_of(path_);
  Log log_;
  Call call_{node_, log_, nullptr, {}, "web"};
  OpenLedger open_ = OpenLedger::open(call_).value();
  Releaser by_ = Releaser::kOther;
  const Ledger& ledger_ = open_.ledger;
};

TEST_F(ReturnsTest, AtPoststop) {
  const Owner web = container_owner("web", "/b");
  give(web, kFirst, {web.key, "web", myself()});
  by_ = Releaser::kPoststop;
  ASSERT_TRUE(ledger_.leave(web, web.key).has_value());
  ASSERT_TRUE(ledger_.leave(web, web.key).has_value()) << "again";
  expect_one("returned container=web key=" + web.key,
             "reason=poststop hcas=mlx5_0 mode=exclusive held_s=0 total_us=", "poststop");
  ASSERT_EQ(call_.timing.steps().size(), 2U);
  EXPECT_EQ(call_.timing.steps()[0].first, "return");
  EXPECT_EQ(call_.timing.steps()[1].first, "rails");
}

TEST_F(ReturnsTest, NothingWasHeld) {
  const Owner web = container_owner("web", "/b");
  by_ = Releaser::kPoststop;
  ASSERT_TRUE(ledger_.leave(web, web.key).has_value());
  EXPECT_TRUE(reported().empty());
}

TEST_F(ReturnsTest, APodsContainerLeaves) {
  const Owner pod = living_pod();
  const Owner web = container_owner("web", "/b");
  give(pod, kFirst, {web.key, "web", myself()});
  by_ = Releaser::kPoststop;
  ASSERT_TRUE(ledger_.leave(web, web.key).has_value());
  ASSERT_TRUE(ledger_.leave(pod, web.key).has_value());
  expect_one("left container=web key=" + pod.key + " netns=/proc/self/ns/net", "hcas=mlx5_0", "");
}

TEST_F(ReturnsTest, OthersWhoseContainerIsGone) {
  const Owner web = container_owner("web", "/b");
  const Owner db = container_owner("db", "/b");
  give(web, kFirst, {web.key, "web", dead_process()});
  ASSERT_TRUE(book(ledger_, db, {kFirst}, {db.key, "db", myself()}).has_value());
  expect_one("returned container=web key=" + web.key, "reason=container-gone", "container-gone");
}

TEST_F(ReturnsTest, OthersWhoseNamespaceIsGone) {
  const Owner pod = make_pod();
  give(pod, kFirst, {container_owner("web", "/b").key, "web", dead_process()});
  const Owner db = container_owner("db", "/b");
  ASSERT_TRUE(book(ledger_, db, {kFirst}, {db.key, "db", myself()}).has_value());
  expect_one("returned container=web key=" + pod.key + " netns=" + pod.netns->path, "reason=namespace-gone",
             "namespace-gone");
}

TEST_F(ReturnsTest, Everything) {
  by_ = Releaser::kRecover;
  const Owner pod = make_pod();
  give(pod, kFirst, {container_owner("web", "/b").key, "web", dead_process()});
  ASSERT_TRUE(ledger_.recover().has_value());
  expect_one("returned container=web", "reason=recover", "recover");
}

TEST_F(ReturnsTest, AStartThatFailsIsNone) {
  const Owner web = container_owner("web", "/b");
  ASSERT_TRUE(book(ledger_, web, {kFirst}, {web.key, "web", myself()}).has_value());
  ASSERT_TRUE(ledger_.leave(web, web.key).has_value());
  EXPECT_TRUE(reported().empty());
}

TEST_F(ReturnsTest, AStartThatWasKilled) {
  const Owner web = container_owner("web", "/b");
  const pid_t child = fork();
  if (child == 0) {
    const auto ledger = Ledger::open(path_);
    _exit(ledger && book(*ledger, web, {kFirst, kSecond}, {web.key, "web", myself()}) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(ledger_.repair_pending().has_value());
  expect_one("returned container=web", "reason=interrupted hcas=mlx5_0,mlx5_1", "interrupted");
}

}  // namespace
}  // namespace hook
