// One grant on a node of files and a ledger of its own: what is read, decided, booked, applied, settled, and undone.
#include "hook/grant/grant.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "hook/base/failure.hpp"
#include "hook/base/json/json.hpp"
#include "hook/grant/booking.hpp"
#include "hook/grant/foresee.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"
#include "unit/ledger/scene.hpp"

namespace hook {
namespace {

using fabric::Result;

Asking asking_for(const std::string& wish, Mode mode = Mode::kHca) {
  Asking asking;
  asking.request.emplace();
  asking.request->wish = *parse_wish(wish, "annotation rdma-init.io/devices");
  asking.request->mode = mode;
  asking.admin.sysfs_view = true;
  return asking;
}

std::string names(const Plan& plan) {
  std::string text;
  for (const PlannedHca& hca : plan.hcas)
    text += (text.empty() ? "" : " ") + hca.name;
  return text;
}

void make_vf(const std::string& sys, const char* of, const char* name) {
  namespace fs = std::filesystem;
  const fs::path pf = fs::canonical(sys + "/class/infiniband/" + of + "/device");
  const fs::path vf = fs::canonical(sys + "/class/infiniband/" + name + "/device");
  test_support::write_file((pf / "sriov_numvfs").string(), "1\n");
  fs::create_directory_symlink(vf, pf / "virtfn0");
  fs::create_directory_symlink(pf, vf / "physfn");
}

class GrantTest : public testing::Test {
 protected:
  GrantTest() {
    auto inventory = test_support::rails(2, 4);
    for (fabric::Hca& hca : inventory.hcas)
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    test_support::lay_out(inventory, directory_ / "node");
    node_.root = directory_ / "node";
    node_.ledger = directory_ / "ledger";
  }

  // One call of its own, as each stage is one. applied: what reached the way.
  Result<void> give(const std::string& id, const Asking& asking, Result<void> answer = {},
                    std::string_view event = "granted", const std::function<Result<void>()>& meanwhile = {}) {
    applied_.clear();
    outcome_ = {};
    Log log;
    Call call{node_, log};
    call.container = id;
    const Owner owner = container_owner(id, "/bundle");
    const Grantee who{owner, {owner.key, id, test_support::myself()}};
    const auto open = TRY(OpenLedger::open(call));
    const auto apply = [&](const Plan& plan) {
      applied_.push_back(names(plan));
      const auto grant = open.ledger.find(owner.key);
      was_pending_ = grant && *grant && (*grant)->pending;
      has_view_ =
          ::access((open.ledger.view_directory() + "/" + view_name(plan.view) + "/infiniband").c_str(), F_OK) == 0;
      return meanwhile ? meanwhile() : answer;
    };
    auto given = grant(open, asking, who, {.event = event, .apply = apply}, call);
    outcome_ = call.outcome;
    return given;
  }

  std::optional<Grant> grant_of(const std::string& id) {
    const auto ledger = Ledger::open(node_.ledger);
    return ledger ? ledger->find(container_owner(id, "/bundle").key).value() : std::nullopt;
  }

  test_support::TempDir directory_;
  NodeSettings node_;
  Outcome outcome_;
  std::vector<std::string> applied_;
  bool was_pending_ = false;
  bool has_view_ = false;
};

TEST_F(GrantTest, IsBookedBeforeItIsAppliedAndSettledAfter) {
  Asking asking = asking_for("mlx5_0");
  asking.caller.engine = Engine::kCrio;
  const auto given = give("web-1", asking);
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(applied_, std::vector<std::string>{"mlx5_0"});
  EXPECT_TRUE(was_pending_ && has_view_);
  const auto grant = grant_of("web-1");
  ASSERT_TRUE(grant);
  EXPECT_FALSE(grant->pending);
  EXPECT_EQ(grant->users.at(0).id, "web-1");
  EXPECT_EQ(grant->users.at(0).view.substr(0, 4), "set-");
  EXPECT_EQ(outcome_.granted_mode, "hca");
  EXPECT_EQ(outcome_.engine, Engine::kCrio);
}

TEST_F(GrantTest, WhatCannotBeAppliedIsFreeAgain) {
  const auto given = give("web-1", asking_for("all", Mode::kExclusive), fabric::make_error("no room in the container"));
  ASSERT_FALSE(given);
  EXPECT_EQ(given.error().message, "no room in the container");
  EXPECT_FALSE(grant_of("web-1"));
  EXPECT_FALSE(outcome_.granted_mode);
  EXPECT_TRUE(outcome_.returned.empty()) << "a start that fails is no return";
  EXPECT_EQ(test_support::ledger_problems(node_.ledger), "");
  EXPECT_TRUE(give("web-2", asking_for("all", Mode::kExclusive)));
}

TEST_F(GrantTest, ASecondCallKeepsWhatTheFirstGaveAlsoWhenItFails) {
  ASSERT_TRUE(give("web-1", asking_for("mlx5_0")));
  ASSERT_TRUE(give("web-1", asking_for("mlx5_0")));
  EXPECT_FALSE(outcome_.granted_mode) << "counted once";
  EXPECT_FALSE(give("web-1", asking_for("mlx5_0"), fabric::make_error("gone")));
  const auto grant = grant_of("web-1");
  ASSERT_TRUE(grant) << "the container may be running with it";
  EXPECT_FALSE(grant->pending);
}

// As long as it is pending, whoever comes after this process undoes it; settled, it would be a grant like any other.
TEST_F(GrantTest, WhatCannotBeUndoneStaysPending) {
  const std::string record = node_.ledger + "/network/" + container_owner("web-1", "/bundle").key + ".json";
  const auto damage = [&]() -> Result<void> {
    std::filesystem::create_directory(node_.ledger + "/network");
    std::filesystem::permissions(node_.ledger + "/network", std::filesystem::perms::owner_all);
    std::ofstream(record) << "no record";
    return fabric::make_error("no room in the container");
  };
  ASSERT_FALSE(give("web-1", asking_for("all", Mode::kExclusive), {}, "granted", damage));
  const auto grant = grant_of("web-1");
  ASSERT_TRUE(grant);
  EXPECT_TRUE(grant->pending);
}

TEST_F(GrantTest, WhatIsBookedBeforeTheContainerIsNotCountedYet) {
  ASSERT_TRUE(give("web-1", asking_for("mlx5_0"), {}, "booked"));
  EXPECT_FALSE(outcome_.granted_mode);
}

TEST_F(GrantTest, ErrorsSayWhatTheyAreAbout) {
  ASSERT_TRUE(give("web-1", asking_for("mlx5_0", Mode::kExclusive)));
  struct Row {
    const char* wish;
    Mode mode;
    FailureReason reason;
  };
  for (const Row& row :
       {Row{"mlx5_0", Mode::kHca, FailureReason::kBusy}, Row{"2", Mode::kHca, FailureReason::kBusy},
        Row{"3", Mode::kHca, FailureReason::kRefused}, Row{"mlx5_9", Mode::kHca, FailureReason::kNoHca},
        Row{"gpu", Mode::kHca, FailureReason::kRefused}}) {
    const auto given = give("web-2", asking_for(row.wish, row.mode));
    ASSERT_FALSE(given) << row.wish;
    EXPECT_EQ(failure_reason(given.error()), row.reason) << row.wish << ": " << given.error().message;
    EXPECT_TRUE(applied_.empty());
    EXPECT_FALSE(grant_of("web-2"));
  }
  const auto unsaid = give("web-3", asking_for("mlx5_1"), fabric::make_error("of the way"));
  EXPECT_EQ(failure_reason(unsaid.error()), FailureReason::kLedger);
  const auto said = give("web-3", asking_for("mlx5_1"), about(FailureReason::kDevices, Result<void>(fabric::Error{})));
  EXPECT_EQ(failure_reason(said.error()), FailureReason::kDevices);
}

TEST_F(GrantTest, APhysicalFunctionAloneExcludesWhoHasItsVirtualOnes) {
  namespace fs = std::filesystem;
  const std::string sys = directory_ / "node/sys";
  const fs::path pf = fs::canonical(sys + "/class/infiniband/mlx5_0/device");
  const fs::path vf = fs::canonical(sys + "/class/infiniband/mlx5_1/device");
  fs::create_directory_symlink(vf, pf / "virtfn0");
  test_support::write_file((pf / "sriov_numvfs").string(), "1\n");
  const auto refusal = [&](const char* wish, Mode mode) {
    const auto given = give("web-2", asking_for(wish, mode));
    return given ? "" : given.error().message;
  };
  // The physical function first.
  ASSERT_TRUE(give("web-1", asking_for("mlx5_0", Mode::kExclusive)));
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 2U);
  for (const Mode mode : {Mode::kExclusive, Mode::kShared, Mode::kHca})
    EXPECT_NE(refusal("mlx5_1", mode).find("`mlx5_1` is held by container web-1"), std::string::npos)
        << refusal("mlx5_1", mode);
  // A further call of who has both.
  EXPECT_TRUE(give("web-1", asking_for("mlx5_0", Mode::kExclusive)));
  const Owner owner = container_owner("web-1", "/bundle");
  ASSERT_TRUE(Ledger::open(node_.ledger)->leave(owner, owner.key));
  // The virtual one first.
  for (const Mode mode : {Mode::kExclusive, Mode::kShared, Mode::kHca}) {
    ASSERT_TRUE(give("web-1", asking_for("mlx5_1", mode)));
    EXPECT_NE(refusal("mlx5_0", Mode::kExclusive).find("`mlx5_0` has the VF mlx5_1, which is "), std::string::npos)
        << refusal("mlx5_0", Mode::kExclusive);
    EXPECT_FALSE(grant_of("web-2"));
    EXPECT_TRUE(give("web-3", asking_for("mlx5_0", Mode::kShared))) << "each is a function of its own";
    const Owner third = container_owner("web-3", "/bundle");
    ASSERT_TRUE(Ledger::open(node_.ledger)->leave(third, third.key));
    ASSERT_TRUE(Ledger::open(node_.ledger)->leave(owner, owner.key));
  }
  // It is in another network namespace, whoever has it there; or nobody knows.
  fs::remove_all(vf / "infiniband" / "mlx5_1");
  EXPECT_NE(refusal("mlx5_0", Mode::kExclusive).find("VF virtfn0, whose HCA is in another"), std::string::npos)
      << refusal("mlx5_0", Mode::kExclusive);
  test_support::write_file((pf / "sriov_numvfs").string(), "?\n");
  EXPECT_NE(refusal("mlx5_0", Mode::kExclusive).find("sriov_numvfs"), std::string::npos);
  EXPECT_EQ(refusal("mlx5_0", Mode::kShared), "");
}

// As a device plugin gives them, under a rule of each: their number makes no container a privileged one.
TEST_F(GrantTest, EightOfEightGivenNodesAreBooked) {
  test_support::lay_out(test_support::rails(8, 4), directory_ / "eight");
  node_.root = directory_ / "eight";
  Json config = Json::parse(R"({"linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}]}}})");
  for (unsigned i = 0; i < 8; ++i) {
    const std::string path = fmt::format("/dev/infiniband/uverbs{}", i);
    config["linux"]["devices"].push_back({{"path", path}, {"type", "c"}, {"major", 231}, {"minor", 192 + i}});
    config["linux"]["resources"]["devices"].push_back(
        {{"allow", true}, {"type", "c"}, {"major", 231}, {"minor", 192 + i}, {"access", "rw"}});
  }
  const auto ask = [&] {
    return understand_spec(read_container_spec(config).value(), Config(), {Engine::kRunc}).value();
  };
  const auto given = give("web-1", ask());
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 8U);
  // Of one that may use all devices they are the engine's.
  config["linux"]["resources"]["devices"] = Json::parse(R"([{"allow": true, "access": "rwm"}])");
  EXPECT_FALSE(ask().request);
}

// One of its VFs was made, bound or renamed after the physical function was booked.
TEST_F(GrantTest, AVirtualFunctionThatComesLaterIsNobodyElses) {
  namespace fs = std::filesystem;
  const std::string sys = directory_ / "node/sys";
  const fs::path pf = fs::canonical(sys + "/class/infiniband/mlx5_0/device");
  const fs::path vf = fs::canonical(sys + "/class/infiniband/mlx5_1/device");
  const auto message = [&](const Asking& asking) {
    const auto given = give("web-2", asking);
    return given ? "" : given.error().message;
  };
  Asking with_node = asking_for("none");
  with_node.request->mode.reset();
  with_node.request->given = {{"/dev/infiniband/uverbs1", 'c', 231, 193}};
  ASSERT_TRUE(give("web-3", asking_for("mlx5_1", Mode::kExclusive)));
  const Owner third = container_owner("web-3", "/bundle");
  ASSERT_TRUE(Ledger::open(node_.ledger)->leave(third, third.key));
  test_support::write_file((pf / "sriov_numvfs").string(), "0\n");
  ASSERT_TRUE(give("web-1", asking_for("mlx5_0", Mode::kExclusive)));
  fs::create_directory_symlink(vf, pf / "virtfn0");
  fs::create_directory_symlink(pf, vf / "physfn");
  const std::string held = "`mlx5_1` is a VF of mlx5_0, which is held by container web-1";
  for (const Mode mode : {Mode::kExclusive, Mode::kShared, Mode::kHca})
    EXPECT_EQ(message(asking_for("mlx5_1", mode)), "annotation rdma-init.io/devices: " + held);
  EXPECT_EQ(message(with_node), held + ", and the container has its node already");
  EXPECT_FALSE(grant_of("web-2"));
  EXPECT_TRUE(give("web-1", asking_for("mlx5_1"))) << "its own";
  // With the RDMA subsystem exclusive it is where its netdev is.
  fs::rename(pf / "infiniband/mlx5_0", pf / "away");
  const std::string hidden =
      "`mlx5_1` is a VF of " + pf.filename().string() + ", whose HCA is in another network namespace";
  const Owner owner = container_owner("web-1", "/bundle");
  ASSERT_TRUE(Ledger::open(node_.ledger)->leave(owner, owner.key));
  EXPECT_EQ(message(asking_for("mlx5_1")), "annotation rdma-init.io/devices: " + hidden);
  fs::rename(pf / "away", pf / "infiniband/mlx5_0");
  EXPECT_EQ(message(asking_for("mlx5_1")), "");
}

// A virtual machine's, or the netdev of a container that has no HCA.
TEST_F(GrantTest, APhysicalFunctionIsNobodysAloneWhileAnotherDriverHasAVirtualOne) {
  namespace fs = std::filesystem;
  const fs::path pf = fs::canonical(directory_ / "node/sys/class/infiniband/mlx5_0/device");
  test_support::write_file((pf / "sriov_numvfs").string(), "1\n");
  fs::create_directory(pf / "virtfn0");
  fs::create_directory_symlink("../../../../bus/pci/drivers/vfio-pci", pf / "virtfn0/driver");
  const auto given = give("web-1", asking_for("mlx5_0", Mode::kExclusive));
  ASSERT_FALSE(given);
  EXPECT_EQ(given.error().message,
            "annotation rdma-init.io/devices: `mlx5_0` has the VF virtfn0, of which `vfio-pci` has made no HCA");
  fs::remove(pf / "virtfn0/driver");
  EXPECT_TRUE(give("web-1", asking_for("mlx5_0", Mode::kExclusive)));
}

// What is held with a physical function is neither a reason to give it nor among what the log says was given.
TEST_F(GrantTest, ASecondCallTakesNoHeldVirtualFunctionForAGrantedOne) {
  const std::string sys = directory_ / "node/sys";
  make_vf(sys, "mlx5_1", "mlx5_0");
  test_support::write_file(sys + "/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  for (const char* call : {"prestart", "createRuntime"}) {
    const auto given = give("web-1", asking_for("1", Mode::kExclusive));
    ASSERT_TRUE(given) << call << given.error().message;
    EXPECT_EQ(applied_, std::vector<std::string>{"mlx5_1"}) << call;
  }
  const auto grant = grant_of("web-1");
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->hcas,
            (std::vector<PlannedHca>{{"mlx5_1", Mode::kExclusive, 1, std::nullopt, false, "0000.11.00.0",
                                      OpenState{.index = {}, .contexts = {}, .node = DeviceNumber{231, 193}}},
                                     {"mlx5_0", Mode::kExclusive, 1, std::nullopt, true, "0000.10.00.0"}}));
  const Owner owner = container_owner("web-1", "/bundle");
  ASSERT_TRUE(Ledger::open(node_.ledger)->leave(owner, owner.key));
  // Bound to what was booked before the container, which needs no second look at the node.
  Log log;
  Call call{node_, log};
  call.container = "web-1";
  Asking asking = asking_for("1", Mode::kExclusive);
  asking.admin.memlock.reset();
  const Grantee booked = grantee_of(asking.spec, {"", "web-1", test_support::myself()}, std::nullopt).value();
  const auto nothing = [](const Plan&) { return Result<void>(); };
  const auto open = OpenLedger::open(call);
  ASSERT_TRUE(hook::grant(*open, asking, booked, {.event = "booked", .apply = nothing}, call));
  asking.spec.annotations[kGrantAnnotation] = booked.token;
  asking.request->given = {{"/dev/infiniband/uverbs1", 'c', 231, 193}};
  testing::internal::CaptureStderr();
  const Grantee who{owner, {owner.key, "web-1", test_support::myself()}};
  const auto bound = hook::grant(*open, asking, who, {.event = "granted", .binds_token = true, .apply = nothing}, call);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(bound) << bound.error().message;
  EXPECT_NE(said.find("given mlx5_1: "), std::string::npos) << said;
  EXPECT_NE(said.find(" hcas=mlx5_1 "), std::string::npos) << said;
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 2U);
}

// `rdma dev set`, by any container with CAP_NET_ADMIN where the RDMA subsystem is shared.
void rename_hca(const std::string& sys, const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  const fs::path hca = fs::canonical(sys + "/class/infiniband/" + from);
  const fs::path renamed = hca.parent_path() / to;
  fs::rename(hca, renamed);
  fs::remove(sys + "/class/infiniband/" + from);
  fs::create_directory_symlink(fs::relative(renamed, fs::canonical(sys + "/class/infiniband")),
                               sys + "/class/infiniband/" + to);
  for (const auto& verbs : fs::directory_iterator(sys + "/class/infiniband_verbs")) {
    const std::string ibdev = verbs.path() / "ibdev";
    if (fs::exists(ibdev) && test_support::read_file(ibdev) == from + "\n") test_support::write_file(ibdev, to + "\n");
  }
}

void swap_hcas(const std::string& sys, const std::string& one, const std::string& other) {
  rename_hca(sys, one, "x");
  rename_hca(sys, other, one);
  rename_hca(sys, "x", other);
}

TEST_F(GrantTest, AnHcaThatWasRenamedIsStillItsHolders) {
  const std::string sys = directory_ / "node/sys";
  const auto refusal = [&](const char* wish, Mode mode) {
    const auto given = give("web-2", asking_for(wish, mode));
    return given ? "" : given.error().message;
  };
  const auto expect_held = [&](const char* wish, Mode mode) {
    const std::string said = refusal(wish, mode);
    EXPECT_NE(said.find("is held by container web-1"), std::string::npos) << wish << ": " << said;
  };
  const Owner owner = container_owner("web-1", "/bundle");
  const Owner other = container_owner("web-2", "/bundle");
  ASSERT_TRUE(give("web-1", asking_for("mlx5_1", Mode::kExclusive)));
  rename_hca(sys, "mlx5_1", "mlx5_9");
  for (const Mode mode : {Mode::kExclusive, Mode::kShared, Mode::kHca}) {
    expect_held("mlx5_9", mode);
    expect_held("all", mode);
  }
  // A count finds another one.
  ASSERT_EQ(refusal("1", Mode::kExclusive), "");
  EXPECT_EQ(applied_, std::vector<std::string>{"mlx5_0"});
  ASSERT_TRUE(Ledger::open(node_.ledger)->leave(other, other.key));
  // A further call of who has it, after which it is renamed again.
  ASSERT_TRUE(give("web-1", asking_for("1", Mode::kExclusive)));
  EXPECT_EQ(applied_, std::vector<std::string>{"mlx5_9"});
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 1U);
  rename_hca(sys, "mlx5_9", "mlx5_8");
  expect_held("mlx5_8", Mode::kExclusive);
  // Two that swapped names are held by what they are.
  swap_hcas(sys, "mlx5_0", "mlx5_8");
  expect_held("mlx5_0", Mode::kExclusive);
  EXPECT_EQ(refusal("mlx5_8", Mode::kExclusive), "");
  ASSERT_TRUE(Ledger::open(node_.ledger)->leave(other, other.key));
  ASSERT_TRUE(Ledger::open(node_.ledger)->leave(owner, owner.key));
  EXPECT_EQ(refusal("mlx5_0", Mode::kExclusive), "");
  EXPECT_EQ(test_support::ledger_problems(node_.ledger), "");
}

// A node with two rxe devices. They have no device link, and their node GUIDs are of their netdevs' MAC addresses.
class SoftwareHcaTest : public GrantTest {
 protected:
  SoftwareHcaTest() { lay_out({"5054:00ff:fe12:0000", "5054:00ff:fe12:0001"}); }

  void lay_out(const std::vector<std::string>& guids) {
    std::filesystem::remove_all(node_.root);
    auto inventory = test_support::rails(2, 4);
    for (std::size_t i = 0; i < guids.size(); ++i) {
      fabric::Hca& hca = inventory.hcas[i];
      hca.name = fmt::format("rxe{}", i);
      hca.node_guid = guids[i];
      hca.node_type = "1: CA";
      hca.driver = "rdma_rxe";
      hca.pci.reset();
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    }
    test_support::lay_out(inventory, node_.root);
  }

  std::string refusal(const char* wish, const char* container = "web-2") {
    const auto given = give(container, asking_for(wish, Mode::kExclusive));
    return given ? "" : given.error().message;
  }

  void end(const char* container) {
    const Owner owner = container_owner(container, "/bundle");
    EXPECT_TRUE(Ledger::open(node_.ledger)->leave(owner, owner.key));
  }

  std::string sys_ = node_.root + "/sys";
};

TEST_F(SoftwareHcaTest, RenamedHcaIsStillHeldByItsOwner) {
  ASSERT_EQ(refusal("rxe1", "web-1"), "");
  EXPECT_EQ(grant_of("web-1")->hcas.at(0).device, "guid.5054.00ff.fe12.0001");
  rename_hca(sys_, "rxe1", "rxe9");
  for (const char* wish : {"rxe9", "all"})
    EXPECT_NE(refusal(wish).find("`rxe9` is held by container web-1"), std::string::npos) << refusal(wish);
  ASSERT_EQ(refusal("1"), "");
  EXPECT_EQ(applied_, std::vector<std::string>{"rxe0"});
  end("web-2");
  swap_hcas(sys_, "rxe0", "rxe9");
  EXPECT_NE(refusal("rxe0").find("is held by container web-1"), std::string::npos);
  ASSERT_EQ(refusal("rxe9"), "");
  end("web-2");
  end("web-1");
  EXPECT_EQ(refusal("all"), "");
  EXPECT_EQ(test_support::ledger_problems(node_.ledger), "");
}

TEST_F(SoftwareHcaTest, HcasOfOneGuidAreHeldAsOne) {
  lay_out({"5054:00ff:fe12:0001", "5054:00ff:fe12:0001"});
  ASSERT_EQ(refusal("rxe0", "web-1"), "");
  EXPECT_NE(refusal("rxe1").find("`rxe1` is held by container web-1"), std::string::npos);
  end("web-1");
  ASSERT_EQ(refusal("all", "web-1"), "");
  EXPECT_EQ(applied_, std::vector<std::string>{"rxe0 rxe1"});
  EXPECT_EQ(test_support::ledger_problems(node_.ledger), "");
}

TEST_F(SoftwareHcaTest, HcasWithoutGuidAreHeldByName) {
  lay_out({"0000:0000:0000:0000", "0000:0000:0000:0000"});
  ASSERT_EQ(refusal("rxe0", "web-1"), "");
  EXPECT_EQ(grant_of("web-1")->hcas.at(0).device, "");
  EXPECT_NE(refusal("rxe0").find("`rxe0` is held by container web-1"), std::string::npos);
  EXPECT_EQ(refusal("rxe1"), "");
}

TEST_F(SoftwareHcaTest, HcaWithUnreadableGuidIsNotAllocated) {
  const std::string guid = sys_ + "/class/infiniband/rxe0/node_guid";
  std::filesystem::remove(guid);
  std::filesystem::create_directory(guid);
  EXPECT_NE(refusal("rxe0").find("somebody unknown (its node GUID cannot be read)"), std::string::npos)
      << refusal("rxe0");
  EXPECT_EQ(refusal("rxe1"), "");
}

TEST_F(GrantTest, AnHcaThatIsSharedIsSharedUnderAnotherName) {
  ASSERT_TRUE(give("web-1", asking_for("mlx5_1", Mode::kShared)));
  rename_hca(directory_ / "node/sys", "mlx5_1", "mlx5_9");
  const auto alone = give("web-2", asking_for("mlx5_9", Mode::kExclusive));
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find("`mlx5_9` is shared by 1 others"), std::string::npos) << alone.error().message;
  EXPECT_TRUE(give("web-2", asking_for("mlx5_9", Mode::kShared)));
}

// Whichever of the two is asked for by name, so that the other is not read for its own sake.
TEST_F(GrantTest, AFunctionThatWasRenamedKeepsItsPhysicalOneOrItsVirtualOnes) {
  const std::string sys = directory_ / "node/sys";
  make_vf(sys, "mlx5_1", "mlx5_0");
  const Owner owner = container_owner("web-1", "/bundle");
  ASSERT_TRUE(give("web-1", asking_for("mlx5_0", Mode::kExclusive)));
  rename_hca(sys, "mlx5_0", "v9");
  EXPECT_FALSE(give("web-2", asking_for("mlx5_1", Mode::kExclusive)));
  EXPECT_FALSE(give("web-2", asking_for("1", Mode::kExclusive)));
  ASSERT_TRUE(Ledger::open(node_.ledger)->leave(owner, owner.key));
  ASSERT_TRUE(give("web-1", asking_for("mlx5_1", Mode::kExclusive)));
  rename_hca(sys, "mlx5_1", "rail1");
  rename_hca(sys, "v9", "v8");
  EXPECT_FALSE(give("web-2", asking_for("v8", Mode::kExclusive)));
  EXPECT_FALSE(give("web-2", asking_for("1", Mode::kHca)));
}

// Between rdma-runtime or rdma-nri and createRuntime.
TEST_F(GrantTest, WhatWasBookedIsAppliedUnderTheNameThatItHasByThen) {
  const std::string sys = directory_ / "node/sys";
  ASSERT_TRUE(give("web-2", asking_for("mlx5_1", Mode::kExclusive)));
  Log log;
  Call call{node_, log};
  call.container = "web-1";
  const auto open = OpenLedger::open(call);
  std::string nodes;
  const auto apply = [&](const Plan& plan) {
    for (const PlannedNode& node : plan.nodes)
      nodes += fmt::format("{}:{} ", node.major.value_or(0), node.minor.value_or(0));
    return Result<void>();
  };
  for (const char* wish : {"1", "mlx5_0"}) {
    Asking asking = asking_for(wish, Mode::kShared);
    asking.admin.sysfs_view = false;
    const Grantee booked = grantee_of(asking.spec, {"", "web-1", test_support::myself()}, std::nullopt).value();
    ASSERT_TRUE(hook::grant(*open, asking, booked, {.event = "booked", .apply = apply}, call));
    asking.spec.annotations[kGrantAnnotation] = booked.token;
    nodes.clear();
    swap_hcas(sys, "mlx5_0", "mlx5_1");
    const Owner owner = container_owner("web-1", "/bundle");
    const Grantee who{owner, {owner.key, "web-1", test_support::myself()}};
    const auto bound = hook::grant(*open, asking, who, {.event = "granted", .binds_token = true, .apply = apply}, call);
    // The other one's name is another's HCA by now.
    EXPECT_EQ(bound.has_value(), wish == std::string_view("1")) << (bound ? "" : bound.error().message);
    EXPECT_EQ(nodes.find("231:193"), std::string::npos) << nodes;
    EXPECT_EQ(nodes.empty(), !bound) << nodes;
    (void)Ledger::open(node_.ledger)->leave(owner, owner.key).has_value();
    swap_hcas(sys, "mlx5_0", "mlx5_1");
  }
  EXPECT_EQ(test_support::ledger_problems(node_.ledger), "");
}

// Its driver was bound anew, or it is back from a pod's network namespace whose return is still under way.
TEST_F(GrantTest, AnHcaWhoseNodeHasAnotherNumberIsStillItsHolders) {
  ASSERT_TRUE(give("web-1", asking_for("mlx5_1", Mode::kExclusive)));
  test_support::write_file(directory_ / "node/sys/class/infiniband_verbs/uverbs1/dev", "231:199\n");
  EXPECT_FALSE(give("web-2", asking_for("mlx5_1", Mode::kExclusive)));
  ASSERT_TRUE(give("web-1", asking_for("1", Mode::kExclusive)));
  EXPECT_EQ(applied_, std::vector<std::string>{"mlx5_1"});
}

TEST_F(GrantTest, MountsOfTheSpecStayTheContainers) {
  Asking asking = asking_for("mlx5_0");
  asking.spec.mounts = {{"/sys/class/infiniband"}, {"/sys/class/infiniband_verbs"}};
  ASSERT_TRUE(give("web-1", asking));
  EXPECT_FALSE(has_view_);
}

// At restore config.json has the mounts already, and nobody named their source since the checkpoint.
TEST_F(GrantTest, AViewThatTheSpecMountsIsMadeAgainAndKept) {
  for (const bool is_overlay : {false, true}) {
    ASSERT_TRUE(give("web-1", asking_for("mlx5_0")));
    const std::string view = grant_of("web-1")->users.at(0).view;
    const auto ledger = Ledger::open(node_.ledger);
    const std::string path = ledger->view_directory() + "/" + view;
    const Owner owner = container_owner("web-1", "/bundle");
    ASSERT_TRUE(ledger->leave(owner, owner.key) && ledger->recover());
    ASSERT_NE(::access(path.c_str(), F_OK), 0);

    Json config = Json::parse(R"({"mounts": [{"destination": "/sys/class/infiniband", "options": ["ro"]},
                                             {"destination": "/sys/class/infiniband_verbs", "type": "bind"}]})");
    config["mounts"][0]["source"] = is_overlay ? "overlay" : path + "/infiniband";
    if (is_overlay) config["mounts"][0]["options"].push_back("lowerdir=" + path + "/infiniband:/none");
    Asking asking = asking_for("mlx5_0");
    asking.spec = read_container_spec(config).value();
    const auto given = give("web-1", asking);
    ASSERT_TRUE(given) << given.error().message;
    EXPECT_TRUE(has_view_);
    EXPECT_EQ(grant_of("web-1")->users.at(0).view, view);
    ASSERT_TRUE(ledger->recover());
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  }
}

// Another NRI plugin added a node behind rdma-nri, or the HCA's terms are others by now.
TEST_F(GrantTest, WhatIsBoundIsNotAllWhereThereIsMore) {
  const Owner owner = container_owner("web-1", "/bundle");
  const auto leave = [&] { return Ledger::open(node_.ledger)->leave(owner, owner.key).has_value(); };
  const auto bind = [&](bool with_another, Mode mode) {
    Log log;
    Call call{node_, log};
    call.container = "web-1";
    Asking asking = asking_for("mlx5_0", Mode::kShared);
    // Its spec lacks that limit, so that all is decided again.
    asking.admin.memlock = with_another ? std::nullopt : std::optional(UINT64_MAX);
    const Grantee booked = grantee_of(asking.spec, {"", "web-1", test_support::myself()}, std::nullopt).value();
    const auto nothing = [](const Plan&) { return Result<void>(); };
    const auto open = OpenLedger::open(call);
    const auto given = grant(*open, asking, booked, {.event = "booked", .apply = nothing}, call);
    if (!given) return given;
    asking.spec.annotations[kGrantAnnotation] = booked.token;
    asking.request->given = {{"/dev/infiniband/uverbs0", 'c', 231, 192}};
    if (with_another) asking.request->given.push_back({"/dev/infiniband/uverbs1", 'c', 231, 193});
    asking.request->mode = mode;
    const Grantee who{owner, {owner.key, "web-1", test_support::myself()}};
    return grant(*open, asking, who, {.event = "granted", .binds_token = true, .apply = nothing}, call);
  };
  ASSERT_TRUE(bind(false, Mode::kExclusive));
  ASSERT_EQ(grant_of("web-1")->hcas.size(), 1U);
  EXPECT_EQ(grant_of("web-1")->hcas.at(0).mode, Mode::kExclusive);
  ASSERT_TRUE(leave());
  ASSERT_TRUE(bind(true, Mode::kShared));
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 2U);
  ASSERT_TRUE(leave());
  ASSERT_TRUE(give("web-2", asking_for("mlx5_1", Mode::kExclusive)));
  const auto refused = bind(true, Mode::kShared);
  ASSERT_FALSE(refused);
  EXPECT_EQ(failure_reason(refused.error()), FailureReason::kBusy) << refused.error().message;
}

// A uverbs descriptor that was passed on, without a context: of process 4711 of another container. /dev/full stands for
// the node.
class PassedDescriptor : public GrantTest {
 protected:
  PassedDescriptor() {
    for (const char* number : {"0", "1"})
      test_support::write_file(node_.root + "/sys/class/infiniband_verbs/uverbs" + number + "/dev", "1:7\n");
    test_support::write_file(process_ + "/cgroup", "0::/lab/other\n");
    test_support::write_file(process_ + "/comm", "python3\n");
    std::filesystem::create_directories(process_ + "/fd");
    std::filesystem::create_symlink("/dev/full", process_ + "/fd/3");
  }
  Result<void> leave(const std::string& id) {
    Log log;
    Call call{node_, log};
    const Owner owner = container_owner(id, "/bundle");
    return TRY(OpenLedger::open(call)).ledger.leave(owner, owner.key);
  }
  const std::string process_ = directory_ / "node/proc/4711";
};

TEST_F(PassedDescriptor, HoldsTheHcaOfAnExclusiveGrantUntilItIsClosed) {
  const auto given = give("web-1", asking_for("mlx5_0", Mode::kExclusive));
  ASSERT_TRUE(given) << given.error().message;
  const auto noted = grant_of("web-1")->hcas.at(0).open;
  EXPECT_EQ(noted, (OpenState{.index = {}, .contexts = {}, .node = DeviceNumber{1, 7}}));
  const auto left = leave("web-1");
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().code, EBUSY);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto refused = give("web-2", asking_for("mlx5_0", Mode::kExclusive));
    ASSERT_FALSE(refused);
    EXPECT_EQ(failure_reason(refused.error()), FailureReason::kBusy);
    for (const char* part : {"mlx5_0", "process 4711 (`python3`) has it open", "end it, or its container"})
      EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
  std::filesystem::remove_all(process_);
  EXPECT_TRUE(give("web-2", asking_for("mlx5_0", Mode::kExclusive)));
  EXPECT_FALSE(grant_of("web-1"));
  EXPECT_EQ(test_support::ledger_problems(node_.ledger), "");
}

TEST_F(PassedDescriptor, HoldsNothingOfASharedGrant) {
  ASSERT_TRUE(give("web-1", asking_for("mlx5_0", Mode::kShared)));
  EXPECT_FALSE(grant_of("web-1")->hcas.at(0).open);
  EXPECT_TRUE(leave("web-1"));
}

TEST_F(PassedDescriptor, HoldsNothingOfAStartThatFailed) {
  EXPECT_FALSE(give("web-1", asking_for("mlx5_0", Mode::kExclusive), fabric::make_error("no room in the container")));
  EXPECT_FALSE(grant_of("web-1"));
}

TEST_F(GrantTest, InSpecTheTokenAndTheDevicesArePublished) {
  Log log;
  Call call{node_, log};
  call.container = "web-1";
  Asking asking = asking_for("mlx5_1");
  asking.document = std::make_shared<Json>(Json::parse(R"({"ociVersion": "1.0.2", "process": {"args": ["true"]}})"));
  Json published;
  const auto given =
      grant_in_spec(asking, test_support::myself(), call, [&](const Plan& plan, Json& config) -> Result<void> {
        EXPECT_EQ(names(plan), "mlx5_1");
        published = config;
        return {};
      });
  ASSERT_TRUE(given) << given.error().message;
  const auto token = published["annotations"]["rdma-init.io/grant"].get<std::string>();
  EXPECT_EQ(published["linux"]["devices"][0]["path"], "/dev/infiniband/uverbs1");
  const auto grant = Ledger::open(node_.ledger)->find(token_owner(token).key).value();
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->users.at(0).process, test_support::myself());
}

// What is booked is the container's from the start: no token is left that anybody could show.
TEST_F(GrantTest, InSpecWithoutAHookItIsTheContainers) {
  Log log;
  Call call{node_, log};
  call.container = "web-1";
  call.bundle = "/bundle";
  call.state = identify_runtime_state(RuntimeState::Kind::kRunc, directory_.path()).value();
  Asking asking = asking_for("mlx5_1");
  asking.document = std::make_shared<Json>(Json::parse(R"({"ociVersion": "1.0.2", "process": {"args": ["true"]}})"));
  const auto given = grant_in_spec(asking, test_support::myself(), call, [](const Plan&, Json& config) -> Result<void> {
    EXPECT_FALSE(config.contains("annotations"));
    return {};
  });
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(call.outcome.granted_mode, "hca") << "counted here, since no hook will";
  const Owner owner = container_owner("web-1", root_name(*call.state));
  const auto grant = Ledger::open(node_.ledger)->find(owner.key).value();
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->users.at(0).key, owner.key);
  EXPECT_EQ(grant->users.at(0).process, test_support::myself());
  EXPECT_EQ(grant->users.at(0).state, call.state);
  EXPECT_EQ(grant->users.at(0).bundle, "/bundle");
}

TEST_F(GrantTest, AContainerThatHasEndedWasGivenNothing) {
  const Owner owner = container_owner("web-1", "/bundle");
  const Grantee who{owner, {owner.key, "web-1", test_support::dead_process()}};
  ASSERT_TRUE(give("web-1", asking_for("mlx5_0")));
  const auto ledger = Ledger::open(node_.ledger);
  EXPECT_TRUE(was_given_before(*ledger, who).value());
  ASSERT_TRUE(ledger->leave(owner, owner.key));
  ASSERT_TRUE(test_support::book(*ledger, owner, {{"mlx5_0", Mode::kHca, 1, std::nullopt}}, who.user));
  ASSERT_TRUE(ledger->settle(owner.key));
  EXPECT_FALSE(was_given_before(*ledger, who).value()) << "no poststop came";
}

TEST_F(GrantTest, LeavesOutMountsThatAreThereOrCoverNothing) {
  Asking asking = asking_for("mlx5_0");
  const auto inventory = read_node_for(asking, node_, true);
  ASSERT_TRUE(inventory);
  const Owner owner;
  const auto mounts = [&](bool in_spec, std::vector<SpecMount> has) {
    asking.spec.mounts = std::move(has);
    std::string at;
    const auto foreseen = foresee({asking, owner, node_, nullptr, in_spec}, *inventory);
    EXPECT_TRUE(foreseen) << foreseen.error().message;
    for (const PlannedMount& mount : foreseen->plan.mounts)
      at += mount.destination + " ";
    return at;
  };
  const std::string all = mounts(false, {});
  ASSERT_TRUE(all.starts_with("/sys/class/infiniband ")) << all;
  EXPECT_EQ(mounts(true, {}), "") << "config.json has no /sys";
  EXPECT_EQ(mounts(true, {{"/sys", false}}), all);
  const std::string first = "/sys/class/infiniband ";
  for (const bool in_spec : {false, true})
    EXPECT_EQ(first + mounts(in_spec, {{"/sys", false}, {"/sys/class/infiniband", true}}), all);
}

TEST_F(GrantTest, DecidingWritesNothing) {
  const Asking asking = asking_for("all", Mode::kExclusive);
  const auto inventory = read_node_for(asking, node_, false);
  const auto ledger = Ledger::open(node_.ledger);
  ASSERT_TRUE(inventory && ledger);
  const Owner owner = container_owner("plan", "/bundle");
  EXPECT_EQ(names(foresee({asking, owner, node_, &*ledger}, *inventory)->plan), "mlx5_0 mlx5_1");
  EXPECT_TRUE(ledger->list()->empty());
  EXPECT_TRUE(give("web-1", asking)) << "and locks nothing any more";
}

// A booking that goes out of scope.
TEST_F(GrantTest, BookingIsUndoneUnlessItIsFinished) {
  const auto ledger = Ledger::open(node_.ledger);
  const NodeRails rails(node_.ledger, nullptr);
  const Log log;
  const Owner owner = container_owner("web-1", "/bundle");
  const Grantee who{owner, {owner.key, "web-1", test_support::myself()}};
  Plan plan;
  plan.hcas = {{"mlx5_0", Mode::kExclusive, 1, std::nullopt}};
  const auto book_it = [&](bool finish) {
    const bool had_before = was_given_before(*ledger, who).value();
    Booking booking(*ledger, who, rails, log, had_before);
    auto locks = ledger->lock({"mlx5_0"});
    EXPECT_TRUE(book(*locks, plan, who, ""));
    if (finish) {
      EXPECT_TRUE(booking.finish());
    }
    return had_before;
  };
  EXPECT_FALSE(book_it(false));
  EXPECT_FALSE(grant_of("web-1"));
  EXPECT_FALSE(book_it(true));
  EXPECT_TRUE(grant_of("web-1"));
  EXPECT_TRUE(book_it(false)) << "had before";
  EXPECT_TRUE(grant_of("web-1"));
}

}  // namespace
}  // namespace hook
