// The stages, from a state on stdin to their result. The changes of createRuntime to a live container: tests/node.
#include "hook/program/stages.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/failure.hpp"
#include "base/json/json.hpp"
#include "fabric/read_node.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/program/commands.hpp"
#include "support/inventories.hpp"
#include "support/tree.hpp"
#include "unit/hook/ledger/scene.hpp"
#include "unit/sanitized.hpp"

namespace hook {
namespace {

using base::Result;

class StagesTest : public testing::Test {
 protected:
  StagesTest() : stdin_(::dup(STDIN_FILENO)) {
    node_.ledger = directory_ / "ledger";
    node_.engine = Engine::kRunc;
    write_config(R"({"process": {"args": ["true"]}, "annotations": {"rdma-init.io/devices": "mlx5_0"}})");
  }
  ~StagesTest() override {
    ::dup2(stdin_, STDIN_FILENO);
    ::close(stdin_);
  }
  void write_config(const std::string& text) { test_support::write_file(directory_ / "bundle/config.json", text); }

  template <typename Stage>
  Result<void> run(const Stage& stage, const std::string& state) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(::write(ends[1], state.data(), state.size()), static_cast<ssize_t>(state.size()));
    ::close(ends[1]);
    ::dup2(ends[0], STDIN_FILENO);
    ::close(ends[0]);
    Call call{node_, log_};
    auto done = stage(call);
    outcome_ = call.outcome;
    return done;
  }
  std::string state(long pid) const {
    return Json{{"ociVersion", "1.0.2"}, {"id", "web-1"}, {"pid", pid}, {"bundle", directory_ / "bundle"}}.dump();
  }
  Result<void> verify_it() {
    return run([](Call& call) { return verify(call, Config()); }, state(::getpid()));
  }
  void book(const Owner& owner, const std::string& user_key) {
    const auto ledger = Ledger::open(node_.ledger);
    ASSERT_TRUE(test_support::book(*ledger, owner, {test_support::kAlone}, {user_key, "web-1", {}}));
    ASSERT_TRUE(ledger->settle(owner.key));
  }
  Owner own() const { return container_owner("web-1", directory_ / "bundle"); }

  test_support::TempDir directory_;
  NodeSettings node_;
  Log log_;
  Outcome outcome_;
  int stdin_;
};

TEST_F(StagesTest, InvalidStateOrBundleCountsAsStateError) {
  const auto create = [](Call& call) { return create_runtime(call, Config()); };
  for (const std::string& text : {std::string("{"), std::string(R"({"id": "web-1", "pid": 1})"),
                                  std::string(R"({"id": "web-1", "pid": 4711, "bundle": "/nowhere"})")}) {
    EXPECT_EQ(failure_reason(run(create, text).error()), FailureReason::kState) << text;
  }
}

TEST_F(StagesTest, UnreadableConfigurationRefusesOnlyRequests) {
  const Result<Config> broken = base::make_error("config.json:3: error");
  const auto create = [&](Call& call) { return create_runtime(call, broken); };
  EXPECT_EQ(failure_reason(run(create, state(4711)).error()), FailureReason::kConfig);
  write_config(R"({"process": {"args": ["true"]}})");
  EXPECT_TRUE(run(create, state(4711)));
  EXPECT_TRUE(run([](Call& call) { return create_runtime(call, Config()); }, state(4711)));
  EXPECT_NE(::access(node_.ledger.c_str(), F_OK), 0) << "no ledger is made for it";
}

TEST_F(StagesTest, VerifyRefusesRequestWithoutGrant) {
  EXPECT_EQ(failure_reason(verify_it().error()), FailureReason::kRefused);
  book(own(), own().key);
  EXPECT_TRUE(verify_it());
  // The grant is found by its token.
  write_config(R"({"process": {"args": ["true"]}, "annotations": {"rdma-init.io/devices": "mlx5_0",
    "rdma-init.io/grant": ")" +
               test_support::kToken + R"("}})");
  ASSERT_TRUE(Ledger::open(node_.ledger)->release_grant(own().key));
  EXPECT_FALSE(verify_it());
  const Owner owner = token_owner(test_support::kToken);
  book(owner, owner.key);
  EXPECT_TRUE(verify_it());
}

TEST_F(StagesTest, VerifyRefusesNodeOfAnotherHca) {
  node_.root = directory_ / "node";
  test_support::lay_out(test_support::rails(2), node_.root);
  const auto read = fabric::read_hcas_elsewhere(node_.root, node_.root + "/sys", {"mlx5_0"});
  const auto devices = devices_of({"mlx5_0"}, read, node_.root).devices;
  const auto ledger = Ledger::open(node_.ledger);
  auto locked = ledger->lock({"mlx5_0"}, 1000, devices);
  ASSERT_TRUE(locked->holdings(own(), {}));
  ASSERT_TRUE(locked->book(own(), {test_support::kAlone}, {own().key, "web-1", {}}));
  ASSERT_TRUE(ledger->settle(own().key));
  const auto with = [&](const char* path, unsigned minor) {
    write_config(fmt::format(R"({{"process": {{"args": ["true"]}}, "annotations": {{"rdma-init.io/devices": "mlx5_0"}},
      "linux": {{"devices": [{{"path": "{}", "type": "c", "major": 231, "minor": {}}}]}}}})",
                             path, minor));
    const auto done = verify_it();
    return done ? std::string("accepted") : done.error().message;
  };
  EXPECT_EQ(with("/dev/infiniband/uverbs0", 192), "accepted");
  EXPECT_EQ(with("/dev/other", 192), "accepted") << "a path of a device plugin";
  EXPECT_EQ(
      with("/dev/infiniband/uverbs0", 193),
      "the container's `/dev/infiniband/uverbs0` is c 231:193, a node of `mlx5_1`; granted is `mlx5_0`, c 231:192");
  EXPECT_EQ(with("/dev/infiniband/uverbs1", 193),
            "the container's `/dev/infiniband/uverbs1` is c 231:193, a node of `mlx5_1`; granted is mlx5_0");
}

// rdma-nri ignores such a container, so it has no grant.
TEST_F(StagesTest, VerifyAcceptsNodeWithoutHcaAndGrant) {
  node_.root = directory_ / "node";
  test_support::lay_out(test_support::rails(2), node_.root);
  const auto with = [&](std::initializer_list<unsigned> numbers) {
    Json devices = Json::array();
    for (const unsigned number : numbers) {
      devices.push_back({{"path", fmt::format("/dev/infiniband/uverbs{}", number)},
                         {"type", "c"},
                         {"major", 231},
                         {"minor", 192 + number}});
    }
    write_config(Json{{"process", {{"args", {"true"}}}}, {"linux", {{"devices", devices}}}}.dump());
    return static_cast<bool>(verify_it());
  };
  EXPECT_TRUE(with({9}));
  EXPECT_FALSE(with({0}));
  EXPECT_FALSE(with({9, 0})) << "one of them belongs to another HCA";
}

TEST_F(StagesTest, PoststopReleasesAfterBundleIsRemoved) {
  book(own(), own().key);
  const std::string removed = state(0);
  std::filesystem::remove_all(directory_ / "bundle");
  const auto done = run(poststop, removed);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(outcome_.released, std::vector<ReleaseReason>{ReleaseReason::kPoststop});
  EXPECT_FALSE(Ledger::open(node_.ledger)->find(own().key).value());
  EXPECT_TRUE(run(poststop, removed)) << "a second call is no error";
  EXPECT_TRUE(outcome_.released.empty());
}

// runc calls poststop when the first thread of the killed init is a zombie; the other threads may still end.
TEST_F(StagesTest, PoststopReleasesAfterLastThreadOfKilledInit) {
  const pid_t init = ::fork();
  if (init == 0) {
    std::thread([] {
      ::usleep(300000);
      ::_exit(0);
    }).detach();
    ::syscall(SYS_exit, 0);
  }
  const auto identity = base::identify(init).value();
  const auto is_zombie = [&] {
    return test_support::read_file(fmt::format("/proc/{}/stat", init)).find(") Z ") != std::string::npos;
  };
  while (!is_zombie())
    ::usleep(1000);
  const auto ledger = Ledger::open(node_.ledger);
  const GrantUser user{own().key, "web-1", identity, directory_ / "bundle"};
  ASSERT_TRUE(test_support::book(*ledger, own(), {test_support::kAlone}, user));
  ASSERT_TRUE(ledger->settle(own().key));
  const auto done = run(poststop, state(0));
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_FALSE(ledger->find(own().key).value());
  ::waitpid(init, nullptr, 0);
}

// The program that booked can have received a link to the bundle; runtimes pass the directory.
TEST_F(StagesTest, FindsContainerByAnotherPathOfItsBundle) {
  std::filesystem::create_directory_symlink(directory_ / "bundle", directory_ / "link");
  std::filesystem::create_directory(directory_ / "other");
  const Owner linked = container_owner("web-1", directory_ / "link");
  const auto ledger = Ledger::open(node_.ledger);
  const auto book_in = [&](const Owner& owner, const std::string& bundle) {
    const GrantUser user{linked.key, "web-1", {}, directory_ / bundle};
    ASSERT_TRUE(test_support::book(*ledger, owner, {test_support::kAlone}, user));
    ASSERT_TRUE(ledger->settle(owner.key));
  };
  const NetnsIdentity netns = identify_netns("/proc/self/ns/net").value();
  for (const Owner& owner : {linked, netns_owner(netns)}) {
    book_in(owner, "other");
    EXPECT_FALSE(verify_it());
    EXPECT_TRUE(run(poststop, state(0)));
    EXPECT_EQ(ledger->find(owner.key).value()->users.size(), 1U) << "another container of the same id stays";
    ASSERT_TRUE(ledger->release_grant(owner.key));
    book_in(owner, "link");
    EXPECT_TRUE(verify_it());
    EXPECT_TRUE(run(poststop, state(0)));
    const auto left = ledger->find(owner.key).value();
    EXPECT_TRUE(!left || left->users.empty());
    ASSERT_TRUE(ledger->release_grant(owner.key));
  }
}

// Without a free descriptor the stage cannot even close inherited ones.
TEST_F(StagesTest, OnlyPoststopSucceedsAfterErrors) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizers' run-time library takes descriptors of its own";
  for (const auto& [command, expected] : {std::pair(Command::kPoststop, 0), std::pair(Command::kCreateRuntime, 1)}) {
    Options options;
    options.command = command;
    options.node = node_;
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit none{0, 0};
      ::setrlimit(RLIMIT_NOFILE, &none);
      ::_exit(run_command(options));
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), expected);
  }
}

}  // namespace
}  // namespace hook
