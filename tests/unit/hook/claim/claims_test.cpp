// Claims of Dynamic Resource Allocation on a node of files: prepare, use by containers, unprepare.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/json/json.hpp"
#include "hook/claim/claims.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/claims_of.hpp"
#include "hook/grant/grant.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/parts.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/tree.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using base::Result;
using namespace test_support;

constexpr const char* kUid = "3f2a-01";
constexpr const char* kOtherUid = "9c11-02";
constexpr const char* kPodUid = "77aa-pod";

class ClaimTest : public testing::Test {
 protected:
  ClaimTest() {
    auto inventory = test_support::rails(3, 4);
    for (fabric::Hca& hca : inventory.hcas)
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    lay_out(inventory, directory_ / "node");
    node_.root = directory_ / "node";
    node_.ledger = directory_ / "ledger";
    node_.config = {directory_ / "config.json", "", true, directory_ / "none"};
    configure(R"(["exclusive", "shared"])");
    settings_.cdi_directory = directory_ / "cdi";
  }

  void configure(const std::string& modes, const std::string& more = "") const {
    write_file(node_.config.file, fmt::format(R"({{"pools": [{{"name": "rails", "modes": {}{}}}]}})", modes, more));
  }
  static ClaimDevice device(unsigned rail) {
    return {.request = "hcas", .name = fmt::format("pci-{}", rail), .hca = fmt::format("mlx5_{}", rail)};
  }
  static ClaimOfNode claim(std::vector<ClaimDevice> devices, const std::string& uid = kUid) {
    return {.uid = uid, .space = "team", .name = "nics", .pods = {kPodUid}, .devices = std::move(devices)};
  }
  Result<std::vector<PreparedDevice>> prepare(const ClaimOfNode& claim) {
    return prepare_claim(claim, settings_, log_, Deadline());
  }
  Result<void> unprepare(const std::string& uid = kUid) { return unprepare_claim(uid, settings_, log_, Deadline()); }
  Ledger ledger() const { return must(Ledger::open(node_.ledger)); }
  std::string file(const std::string& uid = kUid) const {
    return directory_ / ("cdi/rdma-init.io-claim-" + uid + ".json");
  }
  std::optional<Grant> grant_of(const std::string& uid = kUid) const {
    return must(ledger().find(claim_owner(uid, {}).key));
  }
  std::string token(const std::string& uid = kUid) const { return grant_of(uid)->owner.claim->token; }

  // A container with the device nodes of these HCAs, and with the variable of the claim if `token` is not empty.
  ContainerRequest container(const std::vector<unsigned>& rails, const std::string& token,
                             const std::string& uid = kUid) {
    ContainerRequest requesting;
    requesting.admin = must(read_config());
    requesting.request.emplace();
    requesting.request->selection = {.kind = HcaSelection::Kind::kAll, .source = "nodes"};
    requesting.request->has_nodes_of_grant = true;
    for (const unsigned rail : rails)
      requesting.request->granted_nodes.push_back(
          {fmt::format("/dev/infiniband/uverbs{}", rail), 'c', 231, 192 + rail});
    if (!token.empty()) requesting.spec.env.push_back(claim_variable(uid) + "=" + token);
    return requesting;
  }
  Result<Config> read_config() const { return hook::read_config(node_.config); }
  static Grantee grantee(const std::string& id) {
    const Owner owner = container_owner(id, "/bundle");
    return {owner, {owner.key, id, myself()}};
  }
  // Returns the HCAs that the container gets, or the error.
  std::string start(const std::string& id, const ContainerRequest& requesting) {
    Call call{node_, log_};
    (void)must(OpenLedger::keep(call));
    const auto booking = grant(requesting, grantee(id), {.event = "granted", .variables = true}, call);
    if (!booking) return booking.error().message;
    std::string names;
    for (const PlannedHca& hca : (*booking)->plan.hcas)
      names += (names.empty() ? "" : " ") + hca.name + " " + std::string(to_string(hca.mode));
    const auto finished = (*booking)->finish();
    return finished ? names : finished.error().message;
  }
  void stop(const std::string& id) const {
    const Owner owner = container_owner(id, "/bundle");
    must(ledger().leave(owner, owner.key));
  }
  std::string problems() const { return ledger_problems(node_.ledger); }

  TempDir directory_;
  NodeSettings node_;
  ClaimSettings settings_{.node = node_};
  base::Log log_;
};

TEST_F(ClaimTest, PrepareBooksAndWritesCdiFile) {
  const auto prepared = must(prepare(claim({device(0), device(2)})));
  ASSERT_EQ(prepared.size(), 2U);
  EXPECT_EQ(prepared[1], (PreparedDevice{"hcas", "pci-2", "", {"rdma-init.io/claim=uid-3f2a-01-pci-2"}}));
  const auto grant = grant_of();
  ASSERT_TRUE(grant);
  EXPECT_FALSE(grant->pending);
  EXPECT_FALSE(grant->stale);
  EXPECT_EQ(grant->owner.label, "claim team/nics");
  EXPECT_EQ(grant->hcas.size(), 2U);
  const base::Json spec = base::Json::parse(read_file(file()));
  EXPECT_EQ(spec["kind"], "rdma-init.io/claim");
  EXPECT_EQ(spec["devices"][1]["name"], "uid-3f2a-01-pci-2");
  EXPECT_EQ(spec["devices"][1]["containerEdits"]["deviceNodes"][0]["path"], "/dev/infiniband/uverbs2");
  const auto& env = spec["containerEdits"]["env"];
  EXPECT_NE(std::ranges::find(env, "RDMA_CLAIM_3F2A_01=" + token()), env.end());
  // rdma-nri states the number of HCAs of each container.
  EXPECT_EQ(env.dump().find("RDMA_INIT_REQUIRE"), std::string::npos);
  EXPECT_FALSE(spec["containerEdits"].contains("hooks"));
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(problems(), "");
}

TEST_F(ClaimTest, KnowsWhichFailureCanPass) {
  must(prepare(claim({device(0)})));
  const std::string booked = grant_of()->owner.claim->hcas[0].device;
  const auto refused = prepare(claim({device(1)}));
  ASSERT_FALSE(refused);
  EXPECT_FALSE(can_pass(refused.error())) << "the claim was prepared with other devices";
  const auto held = prepare(claim({device(0)}, kOtherUid));
  ASSERT_FALSE(held);
  EXPECT_TRUE(can_pass(held.error())) << held.error().message;
  must(unprepare());
  const Ledger other = ledger();
  const auto locked = must(other.lock({booked}));
  const auto waited = prepare(claim({device(0)}));
  ASSERT_FALSE(waited);
  EXPECT_TRUE(can_pass(waited.error())) << waited.error().message;
  EXPECT_EQ(waited.error().reason, base::FailureReason::kTimeout);
}

TEST_F(ClaimTest, RepeatedPrepareHasTheSameAnswerAndFile) {
  auto nics = claim({device(0), device(2)});
  const auto first = must(prepare(nics));
  const std::string text = read_file(file());
  const std::string record = read_file(node_.ledger + "/grants/claim-3f2a-01.json");
  EXPECT_EQ(must(prepare(nics)), first);
  EXPECT_EQ(read_file(file()), text);
  EXPECT_EQ(read_file(node_.ledger + "/grants/claim-3f2a-01.json"), record);
  // As after a boot of /run/cdi alone, or by hand.
  fs::remove_all(directory_ / "cdi");
  EXPECT_EQ(must(prepare(nics)), first);
  EXPECT_EQ(read_file(file()), text);
  nics.pods.emplace_back("88bb-pod");
  must(prepare(nics));
  EXPECT_EQ(must(claims_of_pod("88bb-pod", ledger())).size(), 1U);
  EXPECT_EQ(problems(), "");
  EXPECT_EQ(error_message(prepare(claim({device(1)}))), "claim team/nics: was prepared with other devices");
  EXPECT_EQ(grant_of()->hcas.size(), 2U);
}

TEST_F(ClaimTest, NeverTakesHcaOfAnotherOwner) {
  EXPECT_EQ(start("web", container({1}, "")), "mlx5_1 exclusive");
  const auto refused = prepare(claim({device(0), device(1)}));
  EXPECT_NE(error_message(refused).find("`mlx5_1` is held by container web"), std::string::npos)
      << error_message(refused);
  EXPECT_FALSE(grant_of());
  EXPECT_FALSE(fs::exists(file()));
  must(prepare(claim({device(0)})));
  EXPECT_NE(error_message(prepare(claim({device(0)}, kOtherUid))).find("is held by claim team/nics"),
            std::string::npos);
  EXPECT_NE(start("db", container({0}, "")).find("held by claim team/nics"), std::string::npos);
  stop("web");
  must(prepare(claim({device(1)}, kOtherUid)));
  EXPECT_EQ(problems(), "");
}

TEST_F(ClaimTest, ContainerUsesHcasThroughItsClaim) {
  must(prepare(claim({device(0), device(2)})));
  EXPECT_EQ(start("web", container({0, 2}, token())), "mlx5_0 exclusive mlx5_2 exclusive");
  // A second container of the claim, and a container that starts again.
  EXPECT_EQ(start("side", container({2}, token())), "mlx5_2 exclusive");
  stop("side");
  EXPECT_EQ(start("side", container({2}, token())), "mlx5_2 exclusive");
  EXPECT_EQ(problems(), "");
  std::vector<Error> unread;
  const auto claims = must(claims_on_record(node_.ledger, unread));
  ASSERT_EQ(claims.size(), 1U);
  EXPECT_EQ(claims[0].users, (std::vector<std::string>{"container side", "container web"}));
  EXPECT_EQ(claims[0].hcas, (std::vector<std::string>{"mlx5_0", "mlx5_2"}));
  stop("web");
  stop("side");
  // The containers' end leaves the HCAs to the claim.
  EXPECT_NE(start("db", container({0}, "")).find("claim team/nics"), std::string::npos);
  EXPECT_EQ(grant_of()->hcas.size(), 2U);
  EXPECT_EQ(problems(), "");
}

TEST_F(ClaimTest, ClaimEndsAfterItsContainersOnly) {
  must(prepare(claim({device(0)})));
  EXPECT_EQ(start("web", container({0}, token())), "mlx5_0 exclusive");
  const auto busy = unprepare();
  EXPECT_EQ(error_message(busy), "claim with the UID 3f2a-01: its HCAs are in use by container web");
  EXPECT_EQ(error_code(busy), EBUSY);
  EXPECT_TRUE(fs::exists(file()));
  EXPECT_TRUE(must(ledger().recover()).released.empty());
  EXPECT_TRUE(grant_of());
  stop("web");
  must(unprepare());
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_FALSE(grant_of());
  must(unprepare());
  EXPECT_EQ(start("db", container({0}, "")), "mlx5_0 exclusive");
  EXPECT_EQ(problems(), "");
}

TEST_F(ClaimTest, UnprepareReleasesGrantOfContainerThatEndedUnnoticed) {
  must(prepare(claim({device(0)})));
  Call call{node_, log_};
  (void)must(OpenLedger::keep(call));
  Grantee who = grantee("web");
  who.user.process = dead_process();
  must(must(grant(container({0}, token()), who, {.event = "granted"}, call))->finish());
  must(unprepare());
  EXPECT_EQ(entries(node_.ledger + "/grants"), "");
  EXPECT_EQ(problems(), "");
}

TEST_F(ClaimTest, VariableOfAnotherClaimProvesNothing) {
  must(prepare(claim({device(0)})));
  must(prepare(claim({device(1)}, kOtherUid)));
  for (const std::string& value : {std::string(kUid), token(kOtherUid), std::string("x"), std::string(32, '0')})
    EXPECT_NE(start("web", container({0}, value)).find("held by claim team/nics"), std::string::npos);
  // The container has one claim, and the node of another one.
  EXPECT_NE(start("web", container({0, 1}, token())).find("held by claim"), std::string::npos);
  auto both = container({0, 1}, token());
  both.spec.env.push_back(claim_variable(kOtherUid) + "=" + token(kOtherUid));
  both.spec.env.insert(both.spec.env.begin(), 10000, "RDMA_CLAIM_X=y");
  EXPECT_EQ(start("web", both), "mlx5_0 exclusive mlx5_1 exclusive");
  EXPECT_EQ(problems(), "");
}

// Another container may read the variable, as one that shares the PID namespace.
TEST_F(ClaimTest, VariableDoesNotServeAnotherPod) {
  configure(R"(["shared"])");
  must(prepare(claim({device(0)})));
  auto other = container({}, token());
  other.caller.engine = Engine::kContainerd;
  other.spec.annotations["io.kubernetes.cri.sandbox-uid"] = "another";
  other.request->has_nodes_of_grant = false;
  EXPECT_EQ(start("web", other),
            "claim team/nics is not reserved for pod `another`, of which a container has the claim's variable");
  other.spec.devices.push_back({"/dev/infiniband/uverbs1", 'c', 231, 193});
  EXPECT_TRUE(start("web", other).starts_with("claim team/nics is not reserved")) << "the node of another HCA";
  // The kubelet prepares a claim once: a later pod is not in the record, and has the nodes of the CDI devices.
  auto later = container({0}, token());
  later.caller.engine = Engine::kContainerd;
  later.spec.annotations["io.kubernetes.cri.sandbox-uid"] = "later";
  later.spec.devices.push_back({"/dev/infiniband/uverbs0", 'c', 231, 192});
  EXPECT_EQ(start("later", later), "mlx5_0 shared");
  later.spec.annotations["io.kubernetes.cri.sandbox-uid"] = kPodUid;
  later.spec.devices.clear();
  EXPECT_EQ(start("own", later), "mlx5_0 shared");
  EXPECT_EQ(problems(), "");
}

TEST_F(ClaimTest, SharesCountOnceForClaimAndContainers) {
  configure(R"(["shared"])", R"(, "limits": {"shared": 2})");
  must(prepare(claim({device(0)})));
  must(prepare(claim({device(0)}, kOtherUid)));
  EXPECT_EQ(start("web", container({0}, token())), "mlx5_0 shared");
  EXPECT_EQ(start("side", container({0}, token())), "mlx5_0 shared");
  EXPECT_EQ(start("db", container({0}, token(kOtherUid), kOtherUid)), "mlx5_0 shared");
  EXPECT_NE(error_message(prepare(claim({device(0)}, "third"))).find("2 of 2 places"), std::string::npos);
  stop("web");
  stop("side");
  must(unprepare());
  must(prepare(claim({device(0)}, "third")));
  EXPECT_EQ(problems(), "");
}

// Each unit is a child netdev. Nothing but the claim's units is counted against the limit of the HCA.
TEST_F(ClaimTest, ContainerGetsNoMoreUnitsThanItsClaimHas) {
  lay_out(test_support::rails(3, 64), directory_ / "large", {.full = true});
  node_.root = directory_ / "large";
  write_file(node_.config.file,
             R"({"networks": {"net": {"mode": "shared-multi", "addresses": [{"subnet": "10.9.0.0/16"}]}},
                 "pools": [{"name": "rails", "modes": ["shared-multi"], "network": "net", "limits": {"shared-multi": 4}}]})");
  auto two = device(0);
  two.units = 2;
  must(prepare(claim({two})));
  Owner pod;
  Request of_pod;
  join_claims(must(claims_of_pod(kPodUid, ledger())), node_.root, pod, of_pod);
  EXPECT_EQ(of_pod.selection.selectors.selectors.size(), 2U) << "the pod gets as many rails as its claim has";
  ContainerRequest requesting = container({}, token());
  requesting.request->has_nodes_of_grant = false;
  requesting.request->selection.kind = HcaSelection::Kind::kList;
  requesting.spec.has_netns = true;
  auto& selectors = requesting.request->selection.selectors.selectors;
  selectors.insert(selectors.end(), 3, {.pattern = "mlx5_0", .port = {}});
  EXPECT_EQ(start("greedy", requesting), "cannot allocate 3 units of `mlx5_0`: claim 3f2a-01 has 2");
  selectors.pop_back();
  EXPECT_EQ(start("web", requesting), "mlx5_0 shared-multi");
  must(prepare(claim({two}, kOtherUid)));
  stop("web");
  requesting.spec.env.push_back(claim_variable(kOtherUid) + "=" + token(kOtherUid));
  selectors.insert(selectors.end(), 2, {.pattern = "mlx5_0", .port = {}});
  EXPECT_EQ(start("both", requesting), "mlx5_0 shared-multi");
  EXPECT_EQ(problems(), "");
}

TEST_F(ClaimTest, ModeOfClaimIsThatOfItsContainers) {
  auto shared = device(0);
  shared.mode = Mode::kShared;
  must(prepare(claim({shared, device(1)})));
  EXPECT_EQ(start("web", container({0, 1}, token())), "mlx5_0 shared mlx5_1 exclusive");
  auto wrong = device(2);
  wrong.mode = Mode::kHca;
  EXPECT_NE(error_message(prepare(claim({wrong}, kOtherUid))).find("pool `rails` does not allow mode hca"),
            std::string::npos);
  wrong = device(2);
  wrong.network = "none";
  EXPECT_NE(error_message(prepare(claim({wrong}, kOtherUid))).find("no network `none`"), std::string::npos);
  EXPECT_FALSE(grant_of(kOtherUid));
}

TEST_F(ClaimTest, AccessForMonitoringBooksNothing) {
  EXPECT_EQ(start("web", container({0}, "")), "mlx5_0 exclusive");
  auto monitored = device(0);
  monitored.is_admin = true;
  must(prepare(claim({monitored})));
  EXPECT_TRUE(grant_of()->hcas.empty());
  EXPECT_NE(read_file(file()).find("/dev/infiniband/uverbs0"), std::string::npos);
  EXPECT_EQ(start("exporter", container({0}, token())), "");
  EXPECT_NE(start("hostile", container({0}, "x")).find("held by container web"), std::string::npos);
  // The same container has another HCA for itself.
  must(prepare(claim({device(1)}, kOtherUid)));
  auto both = container({0, 1}, token());
  both.spec.env.push_back(claim_variable(kOtherUid) + "=" + token(kOtherUid));
  EXPECT_EQ(start("both", both), "mlx5_1 exclusive");
  stop("both");
  must(unprepare());
  EXPECT_FALSE(grant_of());
  EXPECT_EQ(problems(), "");
}

TEST_F(ClaimTest, PodGetsRequestForItsClaims) {
  must(prepare(claim({device(0), device(2)})));
  Owner pod;
  Request request;
  join_claims(must(claims_of_pod(kPodUid, ledger())), node_.root, pod, request);
  EXPECT_EQ(pod.claims, (std::vector<std::string>{"claim-3f2a-01"}));
  ASSERT_EQ(request.selection.selectors.selectors.size(), 2U);
  EXPECT_EQ(request.selection.selectors.selectors[1].pattern, "mlx5_2");
  EXPECT_EQ(request.claimed.at("mlx5_2").mode, Mode::kExclusive);
  EXPECT_TRUE(must(claims_of_pod("another", ledger())).empty());
  EXPECT_TRUE(must(claims_of_pod("", ledger())).empty());
}

TEST_F(ClaimTest, LimitsOfClaimLowerThoseOfItsPool) {
  configure(R"(["shared"])", R"(, "limits": {"hca_objects": 1000, "hca_handles": 4})");
  ClaimDevice limited = device(0);
  limited.limits = {.handles = 8, .objects = 50};
  must(prepare(claim({limited, device(1)})));
  Owner owner;
  Request request;
  join_claims(must(claims_of_pod(kPodUid, ledger())), node_.root, owner, request);
  EXPECT_EQ(request.claimed.at("mlx5_0").limits, limited.limits) << "the record has them";
  const auto inventory = test_support::rails(3, 4);
  const auto planned = planned_rdma_limits(grant_of()->hcas, NodeMap(inventory, must(read_config())), request.claimed);
  ASSERT_EQ(planned.size(), 2U);
  EXPECT_EQ(planned[0].limits, (RdmaLimits{.handles = 4, .objects = 50}));
  EXPECT_EQ(planned[1].limits, (RdmaLimits{.handles = 4, .objects = 1000}));
}

// A class that has limits is not evaded by a second request of the same HCA by a class that has none.
TEST_F(ClaimTest, LowestLimitsOfSharesOfOneHcaCount) {
  configure(R"(["shared"])");
  ClaimDevice limited = device(0);
  limited.limits.objects = 10;
  ClaimDevice other = device(0);
  other.request = "more";
  must(prepare(claim({limited, other})));
  ASSERT_EQ(grant_of()->owner.claim->hcas.size(), 1U);
  EXPECT_EQ(grant_of()->owner.claim->hcas[0].limits, limited.limits);
  EXPECT_EQ(must(prepare(claim({limited, other}))).size(), 2U) << "repeated";
}

TEST_F(ClaimTest, RefusesTextsThatAreNoNames) {
  for (const char* uid : {"", "../x", "A", "a/b", "a.b"}) {
    auto hostile = claim({device(0)}, uid);
    EXPECT_NE(error_message(prepare(hostile)).find("is not the UID of a claim"), std::string::npos) << uid;
    EXPECT_FALSE(unprepare(uid)) << uid;
  }
  auto wrong = device(0);
  wrong.hca = "../mlx5_0";
  EXPECT_FALSE(prepare(claim({wrong})));
  wrong = device(0);
  wrong.name = "a b";
  EXPECT_FALSE(prepare(claim({wrong})));
  wrong = device(7);
  EXPECT_NE(error_message(prepare(claim({wrong}))).find("no HCA matches `mlx5_7`"), std::string::npos);
  EXPECT_EQ(must(prepare(claim({}))).size(), 0U);
  EXPECT_FALSE(fs::exists(node_.ledger + "/grants/claim-3f2a-01.json"));
}

TEST_F(ClaimTest, FailureToWriteFileLeavesNothingBooked) {
  write_file(settings_.cdi_directory, "no directory");
  EXPECT_NE(error_message(prepare(claim({device(0)}))).find("cannot "), std::string::npos);
  EXPECT_FALSE(grant_of());
  EXPECT_EQ(problems(), "");
  fs::remove(settings_.cdi_directory);
  must(prepare(claim({device(0)})));
}

TEST_F(ClaimTest, SweepRemovesFilesOfClaimsWithoutRecord) {
  must(prepare(claim({device(0)})));
  fs::copy(file(), file("gone-1"));
  write_file(settings_.cdi_directory + "/other.json", "{}");
  sweep_claims(settings_, log_);
  EXPECT_EQ(entries(settings_.cdi_directory), "other.json rdma-init.io-claim-3f2a-01.json");
  fs::rename(node_.ledger, node_.ledger + ".other");
  sweep_claims(settings_, log_);
  EXPECT_EQ(entries(settings_.cdi_directory), "other.json rdma-init.io-claim-3f2a-01.json");
}

// A prepare that is killed before any of its system calls leaves nothing, or all; the next call completes it.
TEST_F(ClaimTest, KilledPrepareIsRolledBackOrRepeated) {
  const auto nics = claim({device(0), device(2)});
  const auto child = [&] { return prepare_claim(nics, settings_, log_, Deadline()) ? 0 : 1; };
  const auto whole = run_traced(child, -1);
  if (!whole.possible) GTEST_SKIP() << "ptrace is not allowed";
  must(unprepare());
  const long step = std::max(1L, whole.calls / 60);
  for (long call = 1; call < whole.calls; call += step) {
    if (!run_traced(child, call).stopped) break;  // the first run also made directories
    must(ledger().recover());
    EXPECT_EQ(problems(), "") << call;
    if (!grant_of()) EXPECT_EQ(start("db", container({0}, "")), "mlx5_0 exclusive") << call;
    if (!grant_of()) stop("db");
    ASSERT_EQ(error_message(prepare(nics)), "") << call;
    EXPECT_EQ(grant_of()->hcas.size(), 2U) << call;
    ASSERT_EQ(error_message(unprepare()), "") << call;
    sweep_claims(settings_, log_);
    EXPECT_EQ(entries(settings_.cdi_directory), "") << call;
  }
}

// The claim ends before any system call of a container's start, unless the start has begun to use it.
TEST_F(ClaimTest, ClaimDoesNotEndWhileContainerBeginsToUseIt) {
  const auto nics = claim({device(0)});
  must(prepare(nics));
  ContainerRequest requesting = container({0}, token());
  const auto child = [&] { return start("web", requesting) == "mlx5_0 exclusive" ? 0 : 1; };
  const auto whole = run_traced(child, -1);
  if (!whole.possible) GTEST_SKIP() << "ptrace is not allowed";
  const long step = std::max(1L, whole.calls / 60);
  for (long call = 1; call < whole.calls; call += step) {
    must(ledger().recover());
    must(prepare(nics));
    requesting = container({0}, token());
    run_traced(child, call, [&] { (void)ledger().release_claim("claim-3f2a-01", Deadline()).has_value(); });
    EXPECT_EQ(problems(), "") << call;
  }
}

TEST_F(ClaimTest, KilledUnprepareIsRepeated) {
  const auto nics = claim({device(0), device(2)});
  const auto child = [&] { return unprepare_claim(kUid, settings_, log_, Deadline()) ? 0 : 1; };
  must(prepare(nics));
  const auto whole = run_traced(child, -1);
  if (!whole.possible) GTEST_SKIP() << "ptrace is not allowed";
  const long step = std::max(1L, whole.calls / 60);
  for (long call = 1; call < whole.calls; call += step) {
    ASSERT_EQ(error_message(prepare(nics)), "") << call;
    if (!run_traced(child, call).stopped) break;  // the first run also made directories
    ASSERT_EQ(error_message(unprepare()), "") << call;
    EXPECT_EQ(entries(node_.ledger + "/grants"), "") << call;
    EXPECT_EQ(entries(settings_.cdi_directory), "") << call;
    EXPECT_EQ(problems(), "") << call;
  }
}

}  // namespace
}  // namespace hook
