// Grants and releases of the worker on a node made of files: recorded requests of runtimes, the ledger and the answers.
#include "shim/nri/grant_worker.hpp"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "hook/config/read_config.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/rails/record/store.hpp"
#include "shim/nri/grants_of.hpp"
#include "shim/nri/terms.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"
#include "unit/shim/nri/peer.hpp"

namespace shim {
namespace {

using namespace shim_peer;
using test_support::must;
using Ids = std::set<std::string>;

class GrantWorkerTest : public testing::Test {
 protected:
  GrantWorkerTest() {
    test_support::lay_out(test_support::rails(3, 16), directory_ / "node");
    test_support::write_file(directory_ / "config.json", R"({"annotations_may_request": ["*"]})");
    node_.config = {directory_ / "config.json", "", true};
    node_.root = directory_ / "node";
    node_.ledger = directory_ / "ledger";
    node_.engine = hook::Engine::kContainerd;
  }

  // In the node's network namespace.
  static std::string request(std::string_view id, std::string_view devices, const std::string& more = {}) {
    const std::string pod = text(1, "pod") + text(4, "team-a") + entry(6, "rdma-init.io/devices", devices);
    return text(1, pod) + text(2, text(1, id) + text(2, "pod") + text(3, "name-" + std::string(id)) + more);
  }

  // Returns the plugin's job for a request of the runtime.
  base::Result<std::string> job(Event method, std::string_view payload) const {
    NriRequest request = TRY(parse_nri_request(method, payload));
    hook::ContainerRequest requesting{.spec = request.allocates() ? take_spec(request, node_.engine)
                                                                  : netns_spec_of(request)};
    if (request.allocates())
      requesting = TRY(hook::understand_spec(std::move(requesting.spec), hook::read_config(node_.config),
                                             {node_.engine}, node_.root));
    return job_of(request, requesting);
  }
  base::Result<std::string> run(const std::string& job) {
    auto grant_worker = GrantWorker::begin(node_, hook::read_config(node_.config), base::Log::to_stderr("rdma-nri"));
    if (!grant_worker) return grant_worker.error();
    auto answer = grant_worker->run(job);
    if (answer.afterwards) answer.afterwards();
    return std::move(answer.result);
  }
  base::Result<std::string> run(Event method, std::string_view payload) {
    const auto whole = job(method, payload);
    return whole ? run(*whole) : whole;
  }

  // Creates containers of the pod `pod`.
  void create(std::initializer_list<const char*> ids) {
    for (const char* id : ids)
      ASSERT_TRUE(run(Event::kCreateContainer, request(id, "mlx5_0")));
  }
  base::Result<std::string> stop_pod(std::string_view id = "pod") {
    return run(Event::kStopPodSandbox, text(1, text(1, id)));
  }
  // Books mlx5_0 as another program does.
  void book(const hook::Owner& owner, const hook::GrantUser& user) {
    const auto ledger = hook::Ledger::open(node_.ledger).value();
    ASSERT_TRUE(ledger.lock({"mlx5_0"})->book(owner, {{"mlx5_0", hook::Mode::kShared, 1, {}}}, user));
    ASSERT_TRUE(ledger.settle(owner.key));
  }
  // The owner for the network namespace at netns_.
  hook::Owner netns_owner() {
    test_support::write_file(netns_, "");
    return hook::netns_owner(hook::identify_netns(netns_).value());
  }

  // Reads a recorded request and replaces the pod's network namespace by netns_.
  std::string recorded(const char* name) const {
    static const std::string kNetns = "/var/run/netns/d6a8b847-b9cd-4c92-89f4-c751ba789d98";
    std::string bytes = test_support::read_file(std::string(RECORDED) + "/" + name);
    for (auto at = bytes.find(kNetns); at != std::string::npos; at = bytes.find(kNetns, at + 1))
      bytes.replace(at, kNetns.size(), netns_);
    return bytes;
  }
  std::vector<hook::Grant> list() const { return must(hook::Ledger::open(node_.ledger).value().list()); }
  std::size_t grants() const { return list().size(); }

  // The unbound containers with a grant.
  Ids users() {
    auto found = doubtful_containers(hook::Ledger::open(node_.ledger).value());
    if (!found) return {found.error().message};
    Ids ids;
    for (const auto& [id, booked] : found->unbound)
      ids.insert(id);
    return ids;
  }

  test_support::TempDir directory_;
  // As long as the recorded path: the message has lengths around it.
  std::string netns_ = directory_ / std::string(51 - std::string(directory_ / "").size(), 'n');
  hook::NodeSettings node_;
};

TEST_F(GrantWorkerTest, KeepsVariablesOfContainer) {
  const std::string own = text(8, "PATH=/bin") + text(8, "RDMA_INIT_REQUIRE=1");
  EXPECT_EQ(must(run(Event::kCreateContainer, request("c1", "mlx5_1", own))).find("RDMA_INIT_REQUIRE"),
            std::string::npos);
  EXPECT_NE(must(run(Event::kCreateContainer, request("c2", "mlx5_0"))).find("RDMA_INIT_REQUIRE"), std::string::npos);
}

TEST_F(GrantWorkerTest, GrantsRequestedHcas) {
  auto adjustment = fields(fields(must(run(Event::kCreateContainer, request("c1", "mlx5_1"))))[1]);
  EXPECT_EQ(fields(adjustment[2])[1], "rdma-init.io/grant");
  EXPECT_EQ(fields(adjustment[7])[1], "RLIMIT_MEMLOCK");
  EXPECT_TRUE(adjustment[6].find("/dev/infiniband/uverbs1") != std::string::npos);
  EXPECT_TRUE(adjustment[6].find("/dev/infiniband/uverbs0") == std::string::npos);
  const auto booked = list();
  ASSERT_EQ(booked.size(), 1U);
  ASSERT_EQ(booked.at(0).hcas.size(), 1U);
  EXPECT_EQ(booked.at(0).hcas[0].name, "mlx5_1");
  EXPECT_EQ(users(), Ids{"c1"});
  // As after an answer that was too late for the runtime.
  auto again = fields(fields(must(run(Event::kCreateContainer, request("c1", "mlx5_1"))))[1]);
  EXPECT_EQ(again[6], adjustment[6]);
  EXPECT_EQ(grants(), 1U);
}

TEST_F(GrantWorkerTest, RefusesCutOffJob) {
  const std::string whole = must(job(Event::kCreateContainer, request("c1", "mlx5_1")));
  for (std::size_t size = 1; size < whole.size(); size += 29)
    EXPECT_FALSE(run(whole.substr(0, size))) << size;
  EXPECT_FALSE(run(whole + "x"));
  EXPECT_EQ(grants(), 0U);
}

TEST_F(GrantWorkerTest, WarnsAboutRequireVariableOfContainer) {
  const std::string own_network = text(11, text(1, text(1, "network")));
  const auto log_of = [&](const std::string& id, const std::string& more) {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(run(Event::kCreateContainer, request(id, "mlx5_1", own_network + more)));
    return testing::internal::GetCapturedStderr();
  };
  const std::string asked = log_of("c1", "");
  EXPECT_NE(asked.find("set RDMA_INIT_REQUIRE in the pod"), std::string::npos) << asked;
  EXPECT_NE(asked.find(" require=-:no-rail "), std::string::npos) << asked;
  std::string logged = log_of("c2", text(8, "RDMA_INIT_REQUIRE=1"));
  EXPECT_EQ(logged.find("RDMA_INIT_REQUIRE"), std::string::npos) << logged;
  EXPECT_NE(logged.find(" require=1 "), std::string::npos) << logged;
  logged = log_of("c3", text(8, "RDMA_INIT_REQUIRE=3"));
  EXPECT_NE(logged.find("RDMA_INIT_REQUIRE 3 is above the 1 HCA that it can use"), std::string::npos) << logged;
  EXPECT_NE(logged.find(" require=3 "), std::string::npos) << logged;
  logged = log_of("c4", text(8, "RDMA_INIT_REQUIRE=8 of them"));
  EXPECT_NE(logged.find("RDMA_INIT_REQUIRE `8 of them` is not a number"), std::string::npos) << logged;
  EXPECT_NE(logged.find(" require=-:no-number "), std::string::npos) << logged;
}

// The grant of an ended namespace is the only one that is read: another grant that cannot be read does not matter.
TEST_F(GrantWorkerTest, ReleasesGrantsOfEndedNamespacesOnly) {
  const hook::Owner owner = netns_owner();
  book(owner, {.key = "c1", .id = "c1", .process = {}});
  test_support::write_file(directory_ / "ledger/grants/netns-1-1.json", "no grant");
  const auto has_grant = [&] { return must(hook::Ledger::open(node_.ledger).value().find(owner.key)).has_value(); };
  EXPECT_TRUE(run(ended_job({owner.key, "netns-7-7"})));
  EXPECT_TRUE(has_grant()) << "the namespace lives";
  std::filesystem::remove(netns_);
  EXPECT_TRUE(run(ended_job({owner.key, "netns-7-7"})));
  EXPECT_FALSE(has_grant());
  EXPECT_FALSE(run(ended_job({"netns-1-1"}))) << "its own grant cannot be read";
  EXPECT_FALSE(run(recover_job({}, {}))) << "reads all grants";
}

// Requests do not wait for the log, which has the grant nevertheless.
TEST_F(GrantWorkerTest, LogsAfterAnswer) {
  auto worker = GrantWorker::begin(node_, hook::read_config(node_.config), base::Log::to_stderr("rdma-nri"));
  ASSERT_TRUE(worker);
  testing::internal::CaptureStderr();
  const auto answer = worker->run(must(job(Event::kCreateContainer, request("c1", "mlx5_1"))));
  const std::string before = testing::internal::GetCapturedStderr();
  EXPECT_EQ(before.find("granted container=c1"), std::string::npos) << before;
  testing::internal::CaptureStderr();
  answer.afterwards();
  const std::string after = testing::internal::GetCapturedStderr();
  EXPECT_NE(after.find("granted container=c1"), std::string::npos) << after;
}

TEST_F(GrantWorkerTest, BooksNothingAfterRefusal) {
  const std::string refusal = run(Event::kCreateContainer, request("c1", "mlx5_7")).error().message;
  EXPECT_NE(refusal.find("mlx5_7"), std::string::npos) << refusal;
  EXPECT_EQ(users(), Ids{});
  EXPECT_EQ(run(Event::kCreateContainer, "\xff").error().code, EINVAL);
}

TEST_F(GrantWorkerTest, ReleasesGrantWhenContainerEnds) {
  create({"c1", "c2", "c3"});
  EXPECT_EQ(users(), (Ids{"c1", "c2", "c3"}));
  EXPECT_EQ(must(run(Event::kStopContainer, request("c1", "mlx5_0"))), "");
  // As StateChange of runtimes before NRI 0.12.
  const std::string change = shim_peer::number(1, static_cast<unsigned>(Event::kRemoveContainer));
  ASSERT_TRUE(run(Event::kStateChange, change + text(2, text(1, "pod")) + text(3, text(1, "c2"))));
  ASSERT_TRUE(run(Event::kStopContainer, request("c9", "mlx5_0"))) << "a container without a grant";
  EXPECT_EQ(users(), Ids{"c3"});
}

TEST_F(GrantWorkerTest, RecoverReleasesGrantsOfMissingContainers) {
  create({"c1", "c2", "c3"});
  must(run(recover_job({"c1", "c3", "c9"}, {})));
  EXPECT_EQ(users(), Ids{"c2"});
  must(run(recover_job({}, {})));
  EXPECT_EQ(users(), Ids{"c2"});
}

// CRI-O sends neither StopContainer nor RemoveContainer for a container after its creation failed, and sends
// StopPodSandbox after the namespace is gone.
TEST_F(GrantWorkerTest, ReleasesPodWhenOnlyContainerRequested) {
  node_.engine = hook::Engine::kCrio;
  test_support::write_file(netns_, "");
  must(run(Event::kCreateContainer, recorded("crio-create-container.bin")));
  const auto booked = list();
  ASSERT_EQ(booked.size(), 1U);
  EXPECT_EQ(booked.at(0).owner.kind, hook::Owner::Kind::kNetns);
  EXPECT_EQ(booked.at(0).users.at(0).pod, "b859c59372e4dd39dbbd0b77184f72ccf8cc7761d297496e23853f0d89db5fa1");
  std::filesystem::remove(netns_);
  must(run(Event::kStopPodSandbox, recorded("crio-stop-pod-sandbox.bin")));
  EXPECT_EQ(grants(), 0U);
}

// If the pause container has ended, containerd 1.7 names no namespace at the end of a pod. Its containers may be
// removed before. The namespace still exists and owns the pod's grant.
TEST_F(GrantWorkerTest, ReleasesPodWithoutContainers) {
  test_support::write_file(netns_, "");
  const std::string own_network = text(11, text(1, text(1, "network") + text(2, netns_)));
  const auto ask = [&](Event event, const char* id) { return run(event, request(id, "mlx5_1", own_network)); };
  ASSERT_TRUE(ask(Event::kCreateContainer, "c1"));
  ASSERT_TRUE(ask(Event::kStopContainer, "c1"));
  ASSERT_TRUE(ask(Event::kCreateContainer, "c2")) << "a second start";
  ASSERT_TRUE(ask(Event::kRemoveContainer, "c1"));
  ASSERT_TRUE(ask(Event::kRemoveContainer, "c2"));
  const auto kept = list();
  ASSERT_EQ(kept.size(), 1U);
  ASSERT_EQ(kept.front().users.size(), 1U);
  EXPECT_EQ(kept.front().users.front().id, "pod");
  must(stop_pod("another"));
  EXPECT_EQ(grants(), 1U);
  must(stop_pod());
  EXPECT_EQ(grants(), 0U);
}

// CRI-O 1.37 gives it the node's whole /dev.
TEST_F(GrantWorkerTest, IgnoresNodesOfPrivilegedContainer) {
  NriRequest request = must(parse_nri_request(Event::kCreateContainer, recorded("crio-create-privileged.bin")));
  const auto requesting =
      must(hook::understand_spec(take_spec(request, hook::Engine::kCrio), hook::Config(), {hook::Engine::kCrio}));
  EXPECT_FALSE(requesting.request);
  EXPECT_TRUE(requesting.note.text.starts_with("the container may use all devices: its ")) << requesting.note.text;
  for (DeviceRule& rule : request.container.device_rules)
    rule.access = "m";
  EXPECT_FALSE(take_spec(request, hook::Engine::kCrio).may_use_all_devices) << "a rule for mknod does not allow use";
}

// In the node's network namespace only the end of the pod reports the end of such a container.
TEST_F(GrantWorkerTest, ReleasesGrantsOfContainersWhenPodEnds) {
  create({"c1", "c2"});
  ASSERT_EQ(grants(), 2U);
  must(stop_pod("another"));
  EXPECT_EQ(grants(), 2U);
  must(stop_pod());
  EXPECT_EQ(grants(), 0U);
}

TEST_F(GrantWorkerTest, DamagedRecordBlocksOnlyItsOwnGrant) {
  create({"c1", "c2"});
  const std::string bad = hook::Ledger::open(node_.ledger).value().find_by_id("c1")->front().owner.key;
  test_support::write_file(node_.ledger + "/grants/" + bad + ".json", "{");
  EXPECT_EQ(users(), Ids{"c2"});
  const std::string refusal = stop_pod().error().message;
  EXPECT_NE(refusal.find(bad), std::string::npos) << refusal;
  EXPECT_EQ(users(), Ids{});
  EXPECT_FALSE(run(Event::kStopContainer, request("c1", "mlx5_0")));
  EXPECT_TRUE(run(Event::kCreateContainer, request("c3", "mlx5_0"))) << "one unit is free";
  std::filesystem::remove(node_.ledger + "/grants/" + bad + ".json");
  EXPECT_TRUE(run(recover_job({}, {})));
  EXPECT_EQ(users(), Ids{"c3"});
}

// The runtime's report is not enough while the container's process lives.
TEST_F(GrantWorkerTest, KeepsGrantOfContainerThatOutlivesPod) {
  const hook::Owner owner = hook::container_owner("c1", "/run/c1");
  book(owner, {owner.key, "c1", base::identify(::getpid()).value(), "", {}, "pod"});
  must(stop_pod());
  EXPECT_EQ(grants(), 1U);
}

// A grant of rdma-runtime without a hook: the requester became `runc create` and has ended.
TEST_F(GrantWorkerTest, KeepsGrantWhenRuntimeStateShowsLivingContainer) {
  const auto init = base::identify(::getpid()).value();
  const std::string state = directory_ / "runc/c1/state.json";
  const auto write_state = [&](std::uint64_t start_time) {
    test_support::write_file(state, fmt::format(R"({{"init_process_pid": {}, "init_process_start": {},
      "config": {{"labels": ["bundle={}"]}}}})",
                                                init.pid, start_time, directory_.path()));
  };
  write_state(init.start_time);
  hook::GrantUser user{"c1", "c1", base::ProcessIdentity{init.pid, init.start_time + 1}, directory_.path(), {}, "pod"};
  user.state = hook::identify_runtime_state(hook::RuntimeState::Kind::kRunc, directory_ / "runc").value();
  book(hook::container_owner("c1", directory_.path()), user);
  const auto end_pod = [&] { return stop_pod().has_value() ? grants() : 99; };
  EXPECT_EQ(end_pod(), 1U);
  test_support::write_file(state, "{");
  EXPECT_EQ(end_pod(), 1U) << "an unreadable state keeps the grant";
  write_state(init.start_time + 1);
  EXPECT_EQ(end_pod(), 0U);
}

// As rdma-hook grants while the plugin is not running. At the end of the pod its namespace is gone. The grant is
// released with the container's last process.
TEST_F(GrantWorkerTest, RecoverRecordsPodsOfForeignGrants) {
  const pid_t container = ::fork();
  if (container == 0) {
    ::pause();
    ::_exit(0);
  }
  book(netns_owner(), {"c1", "c1", base::identify(container).value()});
  const auto ledger = hook::Ledger::open(node_.ledger).value();
  EXPECT_EQ(doubtful_containers(ledger)->podless, Ids{"c1"});
  must(run(recover_job({}, {{"c1", "pod"}, {"c9", "pod"}})));
  EXPECT_EQ(doubtful_containers(ledger)->podless, Ids{});
  std::filesystem::remove(netns_);
  EXPECT_FALSE(stop_pod()) << "its process still runs";
  EXPECT_EQ(grants(), 1U);
  ::kill(container, SIGKILL);
  ::waitpid(container, nullptr, 0);
  must(stop_pod());
  EXPECT_EQ(grants(), 0U);
}

TEST_F(GrantWorkerTest, ReleasesLeaseOfUnconfiguredPlugin) {
  const hook::Owner owner = netns_owner();
  book(owner, {owner.key, "pod", {}});
  test_support::write_file(directory_ / "config.json",
                           R"({"networks": {"now": {"ipam_dir": ")" + directory_.path() + R"("}}})");
  const std::string plugin = directory_ / "then";
  test_support::write_file(plugin, "#!/bin/sh\necho $CNI_COMMAND >> " + (directory_ / "called"));
  std::filesystem::permissions(plugin, std::filesystem::perms::owner_all);
  hook::RailRecord rail;
  rail.rail.kind = hook::RailKind::kMacvlan;
  rail.lease = hook::IpamLease{"then", "lab", R"({"type": "then"})", "net1"};
  const auto records = hook::NetworkRecordStore::open(node_.ledger);
  ASSERT_TRUE(records && records->write({owner.key, *owner.netns, 1, {rail}}));
  std::filesystem::remove(netns_);
  must(run(recover_job({}, {})));
  EXPECT_EQ(test_support::read_file(directory_ / "called"), "DEL\n");
  EXPECT_EQ(*records->keys(), std::vector<std::string>());
}

}  // namespace
}  // namespace shim
