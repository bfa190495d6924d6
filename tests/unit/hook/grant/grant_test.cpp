// Grants on a node of files with its own ledger: read, decide, book, apply, settle and roll back.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/failure.hpp"
#include "base/json/json.hpp"
#include "hook/apply/edit_spec.hpp"
#include "hook/grant/foresee.hpp"
#include "hook/grant/grant.hpp"
#include "hook/grant/hcas.hpp"
#include "support/inventories.hpp"
#include "support/provider_file.hpp"
#include "support/results.hpp"
#include "support/tree.hpp"
#include "unit/hook/ledger/scene.hpp"
#include "unit/hook/rails/network_scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using base::Result;
using namespace test_support;
using Strings = std::vector<std::string>;

ContainerRequest asking_for(const std::string& selection, Mode mode = Mode::kHca) {
  ContainerRequest requesting;
  requesting.request.emplace();
  requesting.request->selection = *parse_selection(selection, "annotation rdma-init.io/devices");
  requesting.request->mode = mode;
  requesting.admin.sysfs_view = true;
  return requesting;
}

std::string names(const Plan& plan) {
  std::string text;
  for (const PlannedHca& hca : plan.hcas)
    text += (text.empty() ? "" : " ") + hca.name;
  return text;
}

Owner owner_of(const std::string& id) {
  return container_owner(id, "/bundle");
}

Grantee grantee(const std::string& id) {
  const Owner owner = owner_of(id);
  return {owner, {owner.key, id, myself()}};
}

class GrantTest : public testing::Test {
 protected:
  GrantTest() {
    auto inventory = test_support::rails(2, 4);
    for (fabric::Hca& hca : inventory.hcas)
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    lay_out(inventory, directory_ / "node");
    node_.root = directory_ / "node";
    node_.ledger = directory_ / "ledger";
  }

  // Grants in a call of its own, as each stage does. applied_: the HCAs that reached the way.
  Result<void> allocate(const std::string& id, const ContainerRequest& requesting, Result<void> answer = {},
                        std::string_view event = "granted", const std::function<Result<void>()>& meanwhile = {}) {
    applied_.clear();
    outcome_ = {};
    Log log;
    Call call{node_, log};
    call.container = id;
    const Grantee who = grantee(id);
    const OpenLedger& open = *TRY(OpenLedger::keep(call));
    const auto write_and_finish = [&]() -> Result<void> {
      const auto booking = TRY(grant(requesting, who, {.event = event}, call));
      applied_.push_back(names(booking->plan));
      const auto grant = open.ledger.find(who.owner.key);
      was_pending_ = grant && *grant && (*grant)->pending;
      has_view_ = fs::exists(open.ledger.view_directory() + "/" + view_name(booking->plan.view) + "/infiniband");
      TRY_VOID(meanwhile ? meanwhile() : answer);
      return booking->finish();
    };
    auto done = write_and_finish();
    outcome_ = call.outcome;
    return done;
  }
  // Returns the error of the request; "": it is granted.
  std::string refusal(const std::string& selection, Mode mode = Mode::kExclusive, const std::string& id = "web-2") {
    return error_message(allocate(id, asking_for(selection, mode)));
  }
  // Books as rdma-runtime or rdma-nri, and grants as createRuntime. `between` may change the request in between.
  Result<void> book_and_bind(
      ContainerRequest requesting, const std::function<void(ContainerRequest&)>& between,
      const std::function<void(const Booking&)>& apply = [](const Booking&) {}) {
    Log log;
    Call call{node_, log};
    call.container = "web-1";
    (void)TRY(OpenLedger::keep(call));
    const Grantee booked = TRY(grantee_of(requesting.spec, {"", "web-1", myself()}, std::nullopt));
    const auto finished = [&](const Grantee& who, const Way& way) -> Result<void> {
      const auto booking = TRY(grant(requesting, who, way, call));
      if (booking->adjustment != Adjustment()) apply(*booking);
      return booking->finish();
    };
    TRY_VOID(finished(booked, {.event = "booked"}));
    requesting.spec.annotations[kGrantAnnotation] = booked.token;
    between(requesting);
    return finished(grantee("web-1"), {.event = "granted", .binds_token = true});
  }
  bool leave(const std::string& id) {
    const Owner owner = owner_of(id);
    return Ledger::open(node_.ledger)->leave(owner, owner.key).has_value();
  }
  // Return the directories of the PCI functions of the first and the second HCA.
  fs::path pf() const { return fs::canonical(sys_ + "/class/infiniband/mlx5_0/device"); }
  fs::path vf() const { return fs::canonical(sys_ + "/class/infiniband/mlx5_1/device"); }
  static void make_vf(const fs::path& pf, const fs::path& vf) {
    write_file((pf / "sriov_numvfs").string(), "1\n");
    fs::create_directory_symlink(vf, pf / "virtfn0");
    fs::create_directory_symlink(pf, vf / "physfn");
  }

  std::optional<Grant> grant_of(const std::string& id) {
    const auto ledger = Ledger::open(node_.ledger);
    return ledger ? ledger->find(owner_of(id).key).value() : std::nullopt;
  }

  TempDir directory_;
  // held: the HCA that is allocated to web-1, then renamed.
  void expect_held_under_any_name(const std::string& other, const std::string& held);

  const std::string sys_ = directory_ / "node/sys";
  NodeSettings node_;
  Outcome outcome_;
  Strings applied_;
  bool was_pending_ = false;
  bool has_view_ = false;
};

TEST_F(GrantTest, BooksBeforeApplyAndSettlesAfter) {
  ContainerRequest requesting = asking_for("mlx5_0");
  requesting.caller.engine = Engine::kCrio;
  ASSERT_OK(allocate("web-1", requesting));
  EXPECT_EQ(applied_, Strings{"mlx5_0"});
  EXPECT_TRUE(was_pending_ && has_view_);
  const auto grant = must(grant_of("web-1"));
  EXPECT_FALSE(grant.pending);
  EXPECT_EQ(grant.users.at(0).id, "web-1");
  EXPECT_EQ(grant.users.at(0).view.substr(0, 4), "set-");
  EXPECT_EQ(outcome_.granted_mode, "hca");
  EXPECT_EQ(outcome_.engine, Engine::kCrio);
}

TEST_F(GrantTest, FreesHcasWhenApplyFails) {
  EXPECT_EQ(error_message(
                allocate("web-1", asking_for("all", Mode::kExclusive), base::make_error("no room in the container"))),
            "no room in the container");
  EXPECT_FALSE(grant_of("web-1"));
  EXPECT_FALSE(outcome_.granted_mode);
  EXPECT_TRUE(outcome_.released.empty()) << "a failed start is no release";
  EXPECT_EQ(ledger_problems(node_.ledger), "");
  EXPECT_TRUE(allocate("web-2", asking_for("all", Mode::kExclusive)));
}

TEST_F(GrantTest, CountsGrantOnceAndKeepsItWhenLaterCallFails) {
  ASSERT_TRUE(allocate("web-1", asking_for("mlx5_0"), {}, "booked"));
  EXPECT_FALSE(outcome_.granted_mode) << "the container has not started yet";
  ASSERT_TRUE(allocate("web-2", asking_for("mlx5_0")));
  ASSERT_TRUE(allocate("web-2", asking_for("mlx5_0")));
  EXPECT_FALSE(outcome_.granted_mode) << "counted once";
  EXPECT_FALSE(allocate("web-2", asking_for("mlx5_0"), base::make_error("gone")));
  EXPECT_FALSE(must(grant_of("web-2")).pending) << "the container may be running with it";
}

// The next call rolls back a grant that is pending. A settled one would be a valid grant.
TEST_F(GrantTest, KeepsGrantPendingThatCannotBeUndone) {
  const auto damage = [&]() -> Result<void> {
    fs::create_directory(node_.ledger + "/network");
    fs::permissions(node_.ledger + "/network", fs::perms::owner_all);
    std::ofstream(node_.ledger + "/network/" + owner_of("web-1").key + ".json") << "no record";
    return base::make_error("no room in the container");
  };
  ASSERT_FALSE(allocate("web-1", asking_for("all", Mode::kExclusive), {}, "granted", damage));
  EXPECT_TRUE(must(grant_of("web-1")).pending);
}

TEST_F(GrantTest, ErrorsHaveReason) {
  ASSERT_TRUE(allocate("web-1", asking_for("mlx5_0", Mode::kExclusive)));
  for (const auto& [selection, reason] : {std::pair("mlx5_0", FailureReason::kBusy),
                                          {"2", FailureReason::kBusy},
                                          {"3", FailureReason::kRefused},
                                          {"mlx5_9", FailureReason::kNoHca},
                                          {"gpu", FailureReason::kRefused}}) {
    const auto done = allocate("web-2", asking_for(selection, Mode::kHca));
    ASSERT_FALSE(done) << selection;
    EXPECT_EQ(failure_reason(done.error()), reason) << selection << ": " << error_message(done);
    EXPECT_TRUE(applied_.empty());
    EXPECT_FALSE(grant_of("web-2"));
  }
}

TEST_F(GrantTest, ExclusivePhysicalFunctionExcludesUsersOfItsVirtualFunctions) {
  fs::create_directory_symlink(vf(), pf() / "virtfn0");
  write_file(pf() / "sriov_numvfs", "1\n");
  // The physical function first.
  ASSERT_EQ(refusal("mlx5_0", Mode::kExclusive, "web-1"), "");
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 2U);
  for (const Mode mode : {Mode::kExclusive, Mode::kShared, Mode::kHca})
    EXPECT_TRUE(has_text(refusal("mlx5_1", mode), "`mlx5_1` is held by container web-1"));
  EXPECT_EQ(refusal("mlx5_0", Mode::kExclusive, "web-1"), "") << "a second call of their owner";
  ASSERT_TRUE(leave("web-1"));
  // The virtual one first.
  for (const Mode mode : {Mode::kExclusive, Mode::kShared, Mode::kHca}) {
    ASSERT_EQ(refusal("mlx5_1", mode, "web-1"), "");
    EXPECT_TRUE(has_text(refusal("mlx5_0"), "`mlx5_0` has the VF mlx5_1, which is "));
    EXPECT_FALSE(grant_of("web-2"));
    EXPECT_EQ(refusal("mlx5_0", Mode::kShared, "web-3"), "") << "they are separate functions";
    ASSERT_TRUE(leave("web-3") && leave("web-1"));
  }
  // The virtual function is in another network namespace, or the number of functions is unknown.
  fs::remove_all(vf() / "infiniband" / "mlx5_1");
  EXPECT_TRUE(has_text(refusal("mlx5_0"), "VF virtfn0 with its HCA in another"));
  write_file(pf() / "sriov_numvfs", "?\n");
  EXPECT_TRUE(has_text(refusal("mlx5_0"), "sriov_numvfs"));
  EXPECT_EQ(refusal("mlx5_0", Mode::kShared), "");
}

// A device plugin adds all nodes, each with its own rule: their number does not make the container privileged.
TEST_F(GrantTest, EightOfEightGrantedNodesAreBooked) {
  lay_out(test_support::rails(8, 4), directory_ / "eight");
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
  ASSERT_OK(allocate("web-1", ask()));
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 8U);
  // In a container that may use all devices, the engine added the nodes.
  config["linux"]["resources"]["devices"] = Json::parse(R"([{"allow": true, "access": "rwm"}])");
  EXPECT_FALSE(ask().request);
}

// A virtual function is made, bound or renamed after the physical function was booked.
TEST_F(GrantTest, LaterVirtualFunctionBelongsToOwnerOfPhysicalFunction) {
  const fs::path physical = pf();
  ContainerRequest with_node = asking_for("none");
  with_node.request->mode.reset();
  with_node.request->granted_nodes = {{"/dev/infiniband/uverbs1", 'c', 231, 193}};
  ASSERT_EQ(refusal("mlx5_1", Mode::kExclusive, "web-3"), "");
  ASSERT_TRUE(leave("web-3"));
  write_file(physical / "sriov_numvfs", "0\n");
  ASSERT_EQ(refusal("mlx5_0", Mode::kExclusive, "web-1"), "");
  fs::create_directory_symlink(vf(), physical / "virtfn0");
  fs::create_directory_symlink(physical, vf() / "physfn");
  const std::string held = "`mlx5_1` is a VF of mlx5_0, which is held by container web-1";
  for (const Mode mode : {Mode::kExclusive, Mode::kShared, Mode::kHca})
    EXPECT_EQ(refusal("mlx5_1", mode), "annotation rdma-init.io/devices: " + held);
  EXPECT_EQ(error_message(allocate("web-2", with_node)), held + ", but the container already has its device node");
  EXPECT_FALSE(grant_of("web-2"));
  EXPECT_EQ(refusal("mlx5_1", Mode::kHca, "web-1"), "") << "its own";
  // With an exclusive RDMA subsystem, the HCA is in its netdev's namespace.
  fs::rename(physical / "infiniband/mlx5_0", physical / "away");
  ASSERT_TRUE(leave("web-1"));
  EXPECT_EQ(refusal("mlx5_1", Mode::kHca), "annotation rdma-init.io/devices: `mlx5_1` is a VF of " +
                                               physical.filename().string() +
                                               ", which is in another network namespace");
  fs::rename(physical / "away", physical / "infiniband/mlx5_0");
  EXPECT_EQ(refusal("mlx5_1", Mode::kHca), "");
}

// For example that of a virtual machine, or of a container with a netdev only.
TEST_F(GrantTest, RefusesExclusivePhysicalFunctionWhileAnotherDriverHasVirtualFunction) {
  write_file(pf() / "sriov_numvfs", "1\n");
  fs::create_directory(pf() / "virtfn0");
  fs::create_directory_symlink("../../../../bus/pci/drivers/vfio-pci", pf() / "virtfn0/driver");
  EXPECT_EQ(refusal("mlx5_0"),
            "annotation rdma-init.io/devices: `mlx5_0` has the VF virtfn0, for which `vfio-pci` created no HCA");
  fs::remove(pf() / "virtfn0/driver");
  EXPECT_EQ(refusal("mlx5_0"), "");
}

// A function that is held with another one cannot meet a request, and the log does not list it.
TEST_F(GrantTest, SecondCallKeepsHeldAndGrantedFunctionsApart) {
  make_vf(vf(), pf());
  write_file(sys_ + "/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  for (const char* call : {"prestart", "createRuntime"}) {
    ASSERT_EQ(refusal("1", Mode::kExclusive, "web-1"), "") << call;
    EXPECT_EQ(applied_, Strings{"mlx5_1"}) << call;
  }
  EXPECT_EQ(must(grant_of("web-1")).hcas,
            (std::vector<PlannedHca>{{"mlx5_1", Mode::kExclusive, 1, std::nullopt, false, "0000.11.00.0",
                                      OpenState{.index = {}, .contexts = {}, .node = DeviceNumber{231, 193}}},
                                     {"mlx5_0", Mode::kExclusive, 1, std::nullopt, true, "0000.10.00.0"}}));
  ASSERT_TRUE(leave("web-1"));
  // createRuntime binds the booking, and needs no second read of the node.
  ContainerRequest requesting = asking_for("1", Mode::kExclusive);
  requesting.admin.memlock.reset();
  testing::internal::CaptureStderr();
  const auto bound = book_and_bind(requesting, [](ContainerRequest& later) {
    later.request->granted_nodes = {{"/dev/infiniband/uverbs1", 'c', 231, 193}};
    (void)testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
  });
  const std::string output = testing::internal::GetCapturedStderr();
  ASSERT_OK(bound);
  EXPECT_TRUE(has_text(output, "allocated mlx5_1: "));
  EXPECT_TRUE(has_text(output, " hcas=mlx5_1 "));
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 2U);
}

// Renames an HCA as `rdma dev set` does: any container with CAP_NET_ADMIN can, if the RDMA subsystem is shared.
void rename_hca(const std::string& sys, const std::string& from, const std::string& to) {
  const fs::path hca = fs::canonical(sys + "/class/infiniband/" + from);
  const fs::path renamed = hca.parent_path() / to;
  fs::rename(hca, renamed);
  fs::remove(sys + "/class/infiniband/" + from);
  fs::create_directory_symlink(fs::relative(renamed, fs::canonical(sys + "/class/infiniband")),
                               sys + "/class/infiniband/" + to);
  for (const auto& verbs : fs::directory_iterator(sys + "/class/infiniband_verbs")) {
    const std::string ibdev = verbs.path() / "ibdev";
    if (fs::exists(ibdev) && read_file(ibdev) == from + "\n") write_file(ibdev, to + "\n");
  }
}

void swap_hcas(const std::string& sys, const std::string& one, const std::string& other) {
  rename_hca(sys, one, "x");
  rename_hca(sys, other, one);
  rename_hca(sys, "x", other);
}

void GrantTest::expect_held_under_any_name(const std::string& other, const std::string& held) {
  const auto expect_held = [&](const std::string& selection, Mode mode = Mode::kExclusive) {
    const std::string hca = selection == "all" ? "hca_9" : selection;
    EXPECT_TRUE(has_text(refusal(selection, mode), "`" + hca + "` is held by container web-1")) << selection;
  };
  ASSERT_EQ(refusal(held, Mode::kExclusive, "web-1"), "");
  rename_hca(sys_, held, "hca_9");
  for (const Mode mode : {Mode::kExclusive, Mode::kShared, Mode::kHca}) {
    expect_held("hca_9", mode);
    expect_held("all", mode);
  }
  ASSERT_EQ(refusal("1"), "") << "a request by count gets the other HCA";
  EXPECT_EQ(applied_, Strings{other});
  ASSERT_TRUE(leave("web-2"));
  // A second call of its owner, then another rename.
  ASSERT_EQ(refusal("1", Mode::kExclusive, "web-1"), "");
  EXPECT_EQ(applied_, Strings{"hca_9"});
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 1U);
  rename_hca(sys_, "hca_9", "hca_8");
  expect_held("hca_8");
  // After a swap of names, each device keeps its owner.
  swap_hcas(sys_, other, "hca_8");
  expect_held(other);
  EXPECT_EQ(refusal("hca_8"), "");
  ASSERT_TRUE(leave("web-2") && leave("web-1"));
  EXPECT_EQ(refusal("all"), "");
  EXPECT_EQ(ledger_problems(node_.ledger), "");
}

TEST_F(GrantTest, RenamedHcaStaysWithItsOwner) {
  expect_held_under_any_name("mlx5_0", "mlx5_1");
}

// A process that renames the first or second HCA and restores its name, again and again. Only the link in the class
// directory gets another name, in one step, as in the kernel.
class Renamer {
 public:
  Renamer(const std::string& sys, const std::string& hca) : parent_(getpid()), pid_(fork()) {
    if (pid_ != 0) return;
    const std::string link = sys + "/class/infiniband/" + hca;
    const std::string other = sys + "/class/infiniband/hca_9";
    while (getppid() == parent_) {  // ends with its parent
      rename(link.c_str(), other.c_str());
      rename(other.c_str(), link.c_str());
    }
    _exit(0);
  }
  Renamer(const Renamer&) = delete;
  Renamer& operator=(const Renamer&) = delete;
  ~Renamer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t parent_;
  pid_t pid_;
};

TEST_F(GrantTest, HcaThatIsRenamedDuringTheReadIsNotBookedTwice) {
  constexpr int kStarts = 400;
  const char* const selections[] = {"mlx5_1", "hca_9", "all", "mlx5_0,mlx5_1"};
  const auto device_of = [](const PlannedHca& hca) { return hca.device; };
  int free = 0;
  for (const bool is_held : {true, false}) {
    if (is_held) {
      ASSERT_EQ(refusal("mlx5_1", Mode::kExclusive, "web-1"), "");
    }
    const Renamer renamer(sys_, "mlx5_1");
    for (int i = 0; i < kStarts; ++i) {
      if (!refusal(selections[i % 4]).empty()) continue;
      const auto hcas = must(grant_of("web-2")).hcas;
      for (const PlannedHca& hca : hcas)
        ASSERT_NE(device_of(hca), "") << hca.name << " is booked under its name";
      ASSERT_TRUE(!is_held || std::ranges::find(hcas, "0000.11.00.0", device_of) == hcas.end()) << "given twice";
      free += is_held ? 0 : 1;
      ASSERT_TRUE(leave("web-2"));
    }
    if (is_held) {
      ASSERT_TRUE(leave("web-1"));
    }
  }
  EXPECT_GT(free, 0) << "a rename does not refuse every container";
}

TEST_F(GrantTest, HcaThatCannotBeFoundIsHeld) {
  fabric::Inventory inventory;
  inventory.hcas.emplace_back().name = "mlx5_0";
  EXPECT_TRUE(devices_of({"mlx5_0"}, inventory, node_.root).unknown.empty()) << "a file tree without links";
  const KnownDevices known = devices_of({"mlx5_0", "hca_9"}, inventory, node_.root);
  EXPECT_EQ(*known.booked_under("mlx5_0"), "0000.10.00.0");
  EXPECT_EQ(known.booked_under("hca_9"), nullptr);
  inventory.hcas.clear();
  EXPECT_EQ(devices_of({"hca_9"}, inventory, node_.root).booked_under("hca_9"), nullptr);
  // No HCA can take the name of another one's device.
  PlannedHca booked{"mlx5_1", Mode::kHca, 1, {}};
  booked.device = "0000.11.00.0";
  EXPECT_TRUE(named_by_now({booked}, {"0000.11.00.0"}, inventory, node_.root).empty());
}

// A node with two rxe devices. They have no device link, and their node GUIDs derive from the MAC addresses of their
// netdevs.
class SoftwareHcaTest : public GrantTest {
 protected:
  SoftwareHcaTest() { lay_out({"5054:00ff:fe12:0000", "5054:00ff:fe12:0001"}); }

  void lay_out(const Strings& guids) {
    fs::remove_all(node_.root);
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
};

TEST_F(SoftwareHcaTest, RenamedHcaIsStillHeldByItsOwner) {
  ASSERT_EQ(refusal("rxe1", Mode::kExclusive, "web-1"), "");
  EXPECT_EQ(grant_of("web-1")->hcas.at(0).device, "guid.5054.00ff.fe12.0001");
  ASSERT_TRUE(leave("web-1"));
  expect_held_under_any_name("rxe0", "rxe1");
}

TEST_F(SoftwareHcaTest, HcasOfOneGuidAreHeldAsOne) {
  lay_out({"5054:00ff:fe12:0001", "5054:00ff:fe12:0001"});
  ASSERT_EQ(refusal("rxe0", Mode::kExclusive, "web-1"), "");
  EXPECT_TRUE(has_text(refusal("rxe1"), "`rxe1` is held by container web-1"));
  ASSERT_TRUE(leave("web-1"));
  ASSERT_EQ(refusal("all", Mode::kExclusive, "web-1"), "");
  EXPECT_EQ(applied_, Strings{"rxe0 rxe1"});
  EXPECT_EQ(ledger_problems(node_.ledger), "");
}

TEST_F(SoftwareHcaTest, HcasWithoutGuidAreHeldByName) {
  lay_out({"0000:0000:0000:0000", "0000:0000:0000:0000"});
  ASSERT_EQ(refusal("rxe0", Mode::kExclusive, "web-1"), "");
  EXPECT_EQ(grant_of("web-1")->hcas.at(0).device, "");
  EXPECT_TRUE(has_text(refusal("rxe0"), "`rxe0` is held by container web-1"));
  EXPECT_EQ(refusal("rxe1"), "");
}

TEST_F(SoftwareHcaTest, HcaWithUnreadableGuidIsNotAllocated) {
  const std::string guid = sys_ + "/class/infiniband/rxe0/node_guid";
  fs::remove(guid);
  fs::create_directory(guid);
  EXPECT_TRUE(has_text(refusal("rxe0"), "an unknown owner (its node GUID cannot be read)"));
  EXPECT_EQ(refusal("rxe1"), "");
}

TEST_F(GrantTest, HcaThatWasRenamedIsStillShared) {
  ASSERT_EQ(refusal("mlx5_1", Mode::kShared, "web-1"), "");
  rename_hca(sys_, "mlx5_1", "mlx5_9");
  EXPECT_TRUE(has_text(refusal("mlx5_9"), "`mlx5_9` is shared with 1 other user"));
  EXPECT_EQ(refusal("mlx5_9", Mode::kShared), "");
}

// For a request of either function by name, which alone does not read the other one.
TEST_F(GrantTest, RenamedFunctionsStillExcludeEachOther) {
  make_vf(vf(), pf());
  ASSERT_EQ(refusal("mlx5_0", Mode::kExclusive, "web-1"), "");
  rename_hca(sys_, "mlx5_0", "v9");
  EXPECT_NE(refusal("mlx5_1"), "");
  EXPECT_NE(refusal("1"), "");
  ASSERT_TRUE(leave("web-1"));
  ASSERT_EQ(refusal("mlx5_1", Mode::kExclusive, "web-1"), "");
  rename_hca(sys_, "mlx5_1", "rail1");
  rename_hca(sys_, "v9", "v8");
  EXPECT_NE(refusal("v8"), "");
  EXPECT_NE(refusal("1", Mode::kHca), "");
}

// A rename between rdma-runtime or rdma-nri and createRuntime.
// Another component adds the node of an HCA that now has the name of the booked one.
TEST_F(GrantTest, NodeOfHcaThatTookTheNameOfTheBookedOneIsNotBooked) {
  ASSERT_EQ(refusal("mlx5_1"), "");
  ContainerRequest requesting = asking_for("1", Mode::kShared);
  requesting.admin.sysfs_view = false;
  requesting.admin.memlock.reset();
  const auto bound = book_and_bind(requesting, [&](ContainerRequest& later) {
    swap_hcas(sys_, "mlx5_0", "mlx5_1");
    later.request->granted_nodes = {{"/dev/infiniband/uverbs1", 'c', 231, 193}};
  });
  EXPECT_TRUE(has_text(error_message(bound), "but the container already has its device node")) << error_message(bound);
}

// The drivers of both HCAs were bound anew in the other order, so the booked number leads to the other HCA.
TEST_F(GrantTest, NodeWithTheBookedNumberOfAnotherHcaIsNotBooked) {
  ASSERT_EQ(refusal("mlx5_1", Mode::kExclusive), "");
  ContainerRequest requesting = asking_for("mlx5_0", Mode::kExclusive);
  requesting.admin.sysfs_view = false;
  requesting.admin.memlock.reset();
  const auto bound = book_and_bind(requesting, [&](ContainerRequest& later) {
    later.request->granted_nodes = {{"/dev/infiniband/uverbs0", 'c', 231, 192}};
    const std::string verbs = sys_ + "/class/infiniband_verbs/uverbs";
    fs::rename(verbs + "0", verbs + "2");
    fs::rename(verbs + "1", verbs + "0");
    fs::rename(verbs + "2", verbs + "1");
    write_file(verbs + "0/dev", "231:192\n");
    write_file(verbs + "1/dev", "231:193\n");
  });
  ASSERT_FALSE(bound);
  EXPECT_EQ(failure_reason(bound.error()), FailureReason::kBusy) << bound.error().message;
}

// Only in a file tree without links the name identifies an HCA. A link can be gone because its HCA moved to a pod, and
// the number can belong to another HCA that has the name by now.
TEST(FindByNode, UsesTheNameOnlyIfThereIsNoLink) {
  const TempDir root;
  write_file(root / "sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
  const std::vector<PlannedHca> booked{{"mlx5_0", Mode::kShared, 1, std::nullopt}};
  for (const int code : {0, EINVAL, ENOENT, EIO}) {
    const auto is_found = [&] {
      if (code != 0) deny(SYS_readlinkat, code, 0, static_cast<std::uint32_t>(AT_FDCWD));
      return find_by_node(booked, root.path(), 0) ? 1 : 0;
    };
    EXPECT_EQ(in_child(is_found), code == 0 || code == EINVAL ? 1 : 0) << code;
  }
}

TEST_F(GrantTest, AppliesBookedHcaUnderItsCurrentName) {
  ASSERT_EQ(refusal("mlx5_1"), "");
  std::string nodes;
  const auto apply = [&](const Booking& booking) {
    for (const auto& [node, present] : booking.adjustment.nodes)
      nodes += fmt::format("{}:{} ", node.major.value_or(0), node.minor.value_or(0));
  };
  for (const char* selection : {"1", "mlx5_0"}) {
    ContainerRequest requesting = asking_for(selection, Mode::kShared);
    requesting.admin.sysfs_view = false;
    bool is_booked = false;
    const auto swap = [&](ContainerRequest&) {
      is_booked = true;
      nodes.clear();
      swap_hcas(sys_, "mlx5_0", "mlx5_1");
    };
    const auto bound = book_and_bind(requesting, swap, apply);
    ASSERT_TRUE(is_booked) << error_message(bound);
    // The requested name now belongs to an HCA of another owner.
    EXPECT_EQ(bound.has_value(), selection == std::string_view("1")) << error_message(bound);
    EXPECT_EQ(nodes.find("231:193"), std::string::npos) << nodes;
    EXPECT_EQ(nodes.empty(), !bound) << nodes;
    (void)leave("web-1");
    swap_hcas(sys_, "mlx5_0", "mlx5_1");
  }
  EXPECT_EQ(ledger_problems(node_.ledger), "");
}

// Its driver was bound again, or it has returned from a pod's network namespace while the release still runs.
TEST_F(GrantTest, HcaWithAnotherNodeNumberIsStillHeld) {
  ASSERT_EQ(refusal("mlx5_1", Mode::kExclusive, "web-1"), "");
  write_file(sys_ + "/class/infiniband_verbs/uverbs1/dev", "231:199\n");
  EXPECT_NE(refusal("mlx5_1"), "");
  ASSERT_EQ(refusal("1", Mode::kExclusive, "web-1"), "");
  EXPECT_EQ(applied_, Strings{"mlx5_1"});
}

TEST_F(GrantTest, KeepsMountsOfSpec) {
  ContainerRequest requesting = asking_for("mlx5_0");
  requesting.spec.mounts = {{"/sys/class/infiniband"}, {"/sys/class/infiniband_verbs"}};
  ASSERT_TRUE(allocate("web-1", requesting));
  EXPECT_FALSE(has_view_);
}

// At a restore, config.json already has the mounts, and no user has named their source since the checkpoint.
TEST_F(GrantTest, MakesViewOfSpecMountAgain) {
  for (const bool is_overlay : {false, true}) {
    ASSERT_TRUE(allocate("web-1", asking_for("mlx5_0")));
    const std::string view = grant_of("web-1")->users.at(0).view;
    const auto ledger = Ledger::open(node_.ledger);
    const std::string path = ledger->view_directory() + "/" + view;
    const Owner owner = owner_of("web-1");
    ASSERT_TRUE(ledger->leave(owner, owner.key) && ledger->recover());
    ASSERT_NE(::access(path.c_str(), F_OK), 0);

    Json config = Json::parse(R"({"mounts": [{"destination": "/sys/class/infiniband", "options": ["ro"]},
                                             {"destination": "/sys/class/infiniband_verbs", "type": "bind"}]})");
    config["mounts"][0]["source"] = is_overlay ? "overlay" : path + "/infiniband";
    if (is_overlay) config["mounts"][0]["options"].push_back("lowerdir=" + path + "/infiniband:/none");
    ContainerRequest requesting = asking_for("mlx5_0");
    requesting.spec = read_container_spec(config).value();
    ASSERT_OK(allocate("web-1", requesting));
    EXPECT_TRUE(has_view_);
    EXPECT_EQ(grant_of("web-1")->users.at(0).view, view);
    ASSERT_TRUE(ledger->recover());
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  }
}

// The first call writes the nodes and mounts of its plan into config.json, and the runtime makes them. createRuntime
// then decides again, and must neither mount another view nor forget this one.
class BoundContainer : public GrantTest {
 protected:
  // change: before createRuntime. Returns the parts that createRuntime adds.
  Adjustment bind(const ContainerRequest& requesting, const std::function<void(ContainerRequest&)>& change) {
    Adjustment adjustment;
    const auto apply = [&](const Booking& booking) {
      plan_ = booking.plan;
      adjustment = booking.adjustment;
    };
    const auto edit = [&](ContainerRequest& later) {
      view_ = plan_.view_name;
      for (const PlannedMount& mount : plan_.mounts)
        later.spec.mounts.push_back({.destination = mount.destination, .source = mount.source});
      for (const PlannedNode& node : plan_.nodes)
        later.spec.devices.push_back({node.path, 'c', node.major.value_or(0), node.minor.value_or(0)});
      change(later);
      adjustment = {};
    };
    EXPECT_OK(book_and_bind(requesting, edit, apply));
    EXPECT_EQ(adjustment.mounts, std::vector<PlannedMount>());
    EXPECT_EQ(grant_of("web-1")->users.at(0).view, view_);
    EXPECT_TRUE(Ledger::open(node_.ledger)->recover());
    EXPECT_TRUE(fs::is_symlink(view_path() + "/infiniband/mlx5_0"));
    return adjustment;
  }
  std::string view_path() const { return node_.ledger + "/views/" + view_; }
  // The spec lacks this limit, so createRuntime decides again.
  static void demand_memlock(ContainerRequest& later) { later.admin.memlock = UINT64_MAX; }

  Plan plan_;  // plan of the last call
  std::string view_;
};

TEST_F(BoundContainer, KeepsViewIfNodeGetsAnotherClass) {
  bind(asking_for("mlx5_0"), [&](ContainerRequest& later) {
    demand_memlock(later);
    fs::create_directories(sys_ + "/class/infiniband_mad");
  });
  EXPECT_EQ(plan_.warnings, Strings());
}

// crun ignores linux.resources.rdma, so createRuntime decides again for the limits.
TEST_F(BoundContainer, KeepsViewIfOnlyLimitsAreLeft) {
  write_file(node_.root + "/proc/sys/kernel/osrelease", "7.3.4\n");
  write_file(node_.root + "/sys/fs/cgroup/cgroup.controllers", "rdma\n");
  ContainerRequest requesting = asking_for("mlx5_0", Mode::kShared);
  Pool& pool = requesting.admin.pools.emplace_back();
  pool.name = "limited";
  pool.rdma_limits.objects = 4096;
  requesting.admin.memlock.reset();  // the runtime sets it
  const Adjustment added = bind(requesting, [](ContainerRequest&) {});
  EXPECT_EQ(added, (Adjustment{.rdma_limits = {{"mlx5_0", {std::nullopt, 4096}}}}));
}

TEST_F(BoundContainer, KeepsCopiesIfLibraryIsUpdated) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make files of root";
  const std::string format = "lib%s-rdmav65.so";
  const std::string verbs = provider_library({}) + '\0' + format + '\0' + "/usr/lib64/libibverbs/" + format + '\0';
  const std::string provider = node_.root + "/usr/lib64/libibverbs/libmlx5-rdmav65.so";
  write_file(node_.root + "/usr/lib64/libibverbs.so.1", verbs);
  write_file(provider, provider_library({{"mlx5", 1, 1}}));
  ContainerRequest requesting = asking_for("mlx5_0");
  requesting.admin.pools.emplace_back().name = "lending";
  requesting.admin.pools.back().lend_providers = true;
  bind(requesting, [&](ContainerRequest& later) {
    demand_memlock(later);
    write_file(provider, provider_library({{"mlx5", 6, 8}}));
  });
  // This provider needs no libibverbs, so it is not beside it in lib.
  std::ifstream copy(view_path() + "/needed/libmlx5-rdmav65.so");
  EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(copy), {}) == provider_library({{"mlx5", 1, 1}}));
}

// A second system that hands out devices added the node of another HCA after the first call. The container starts, as
// it does if that system comes first, and the HCA is held.
TEST_F(BoundContainer, StartsWithHcaThatItsViewDoesNotShow) {
  bind(asking_for("mlx5_0"), [&](ContainerRequest& later) {
    demand_memlock(later);
    later.request->granted_nodes = {{"/dev/infiniband/uverbs1", 'c', 231, 193}};
  });
  ASSERT_EQ(plan_.warnings.size(), 1U);
  EXPECT_TRUE(plan_.warnings[0].starts_with(
      "`mlx5_1` is booked for the container, but its /sys/class/infiniband does not show it"))
      << plan_.warnings[0];
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 2U);
  EXPECT_TRUE(has_text(refusal("mlx5_1"), "`mlx5_1` is shared with 1 other user")) << refusal("mlx5_1");
}

// The hook plans for a container without a grant, whose config.json mounts a view, for example at a restore.
TEST_F(GrantTest, GrantNamesViewsOfSpecBesideItsOwn) {
  ASSERT_TRUE(allocate("other", asking_for("mlx5_1")));
  const std::string mounted = grant_of("other")->users.at(0).view;
  const auto ledger = Ledger::open(node_.ledger);
  const std::string path = ledger->view_directory() + "/" + mounted;
  ContainerRequest requesting = asking_for("mlx5_0");
  requesting.spec.mounts = {{.destination = "/elsewhere", .source = path + "/infiniband"}};
  ASSERT_OK(allocate("web-1", requesting));
  EXPECT_NE(grant_of("web-1")->users.at(0).view, mounted);
  EXPECT_EQ(grant_of("web-1")->users.at(0).more_views, Strings{mounted});
  ASSERT_TRUE(leave("other") && ledger->recover());
  EXPECT_TRUE(fs::exists(path));
}

// Another NRI plugin added a node after rdma-nri, or the HCA's mode has changed.
TEST_F(GrantTest, DecidesAgainIfBindingNeedsMore) {
  const auto bind = [&](bool with_another, Mode mode) {
    ContainerRequest requesting = asking_for("mlx5_0", Mode::kShared);
    // The spec lacks this limit, so createRuntime decides again.
    requesting.admin.memlock = with_another ? std::nullopt : std::optional(UINT64_MAX);
    return book_and_bind(requesting, [=](ContainerRequest& later) {
      later.request->granted_nodes = {{"/dev/infiniband/uverbs0", 'c', 231, 192}};
      if (with_another) later.request->granted_nodes.push_back({"/dev/infiniband/uverbs1", 'c', 231, 193});
      later.request->mode = mode;
    });
  };
  ASSERT_TRUE(bind(false, Mode::kExclusive));
  ASSERT_EQ(grant_of("web-1")->hcas.size(), 1U);
  EXPECT_EQ(grant_of("web-1")->hcas.at(0).mode, Mode::kExclusive);
  ASSERT_TRUE(leave("web-1"));
  ASSERT_TRUE(bind(true, Mode::kShared));
  EXPECT_EQ(grant_of("web-1")->hcas.size(), 2U);
  ASSERT_TRUE(leave("web-1"));
  ASSERT_EQ(refusal("mlx5_1"), "");
  const auto refused = bind(true, Mode::kShared);
  ASSERT_FALSE(refused);
  EXPECT_EQ(failure_reason(refused.error()), FailureReason::kBusy) << refused.error().message;
}

// Process 4711 of another container has a uverbs descriptor that was passed to it, without a context. /dev/full stands
// for the node.
class PassedDescriptor : public GrantTest {
 protected:
  PassedDescriptor() {
    for (const char* number : {"0", "1"})
      write_file(node_.root + "/sys/class/infiniband_verbs/uverbs" + number + "/dev", "1:7\n");
    write_file(process_ + "/cgroup", "0::/lab/other\n");
    write_file(process_ + "/comm", "python3\n");
    fs::create_directories(process_ + "/fd");
    fs::create_symlink("/dev/full", process_ + "/fd/3");
  }
  Result<void> leave(const std::string& id) {
    Log log;
    Call call{node_, log};
    const Owner owner = container_owner(id, "/bundle");
    return TRY(OpenLedger::open(call)).ledger.leave(owner, owner.key);
  }
  const std::string process_ = directory_ / "node/proc/4711";
};

TEST_F(PassedDescriptor, KeepsExclusiveHcaUntilDescriptorIsClosed) {
  ASSERT_OK(allocate("web-1", asking_for("mlx5_0", Mode::kExclusive)));
  const auto noted = grant_of("web-1")->hcas.at(0).open;
  EXPECT_EQ(noted, (OpenState{.index = {}, .contexts = {}, .node = DeviceNumber{1, 7}}));
  EXPECT_EQ(error_code(leave("web-1")), EBUSY);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto refused = allocate("web-2", asking_for("mlx5_0", Mode::kExclusive));
    EXPECT_EQ(failure_reason(refused.error()), FailureReason::kBusy);
    for (const char* part : {"mlx5_0", "process 4711 (`python3`) has it open", "end that process or its container"})
      EXPECT_TRUE(has_text(error_message(refused), part));
  }
  fs::remove_all(process_);
  EXPECT_TRUE(allocate("web-2", asking_for("mlx5_0", Mode::kExclusive)));
  EXPECT_FALSE(grant_of("web-1"));
  EXPECT_EQ(ledger_problems(node_.ledger), "");
}

TEST_F(PassedDescriptor, DoesNotKeepSharedHcaOrFailedStart) {
  EXPECT_FALSE(allocate("web-1", asking_for("mlx5_0", Mode::kExclusive), base::make_error("no room in the container")));
  EXPECT_FALSE(grant_of("web-1"));
  ASSERT_TRUE(allocate("web-1", asking_for("mlx5_0", Mode::kShared)));
  EXPECT_FALSE(grant_of("web-1")->hcas.at(0).open);
  EXPECT_TRUE(leave("web-1"));
}

class GrantInSpec : public GrantTest {
 protected:
  GrantInSpec() {
    call_.container = "web-1";
    asking_.document = std::make_shared<Json>(Json::parse(R"({"ociVersion": "1.0.2", "process": {"args": ["true"]}})"));
  }
  Log log_;
  Call call_{node_, log_};
  ContainerRequest asking_ = asking_for("mlx5_1");
};

TEST_F(GrantInSpec, ReturnsTokenAndDevices) {
  const auto booking = must(grant_in_spec(asking_, myself(), call_));
  EXPECT_EQ(names(booking->plan), "mlx5_1");
  ASSERT_OK(edit_spec(booking->adjustment, *asking_.document));
  ASSERT_OK(booking->finish());
  const Json& published = *asking_.document;
  const auto token = published["annotations"]["rdma-init.io/grant"].get<std::string>();
  EXPECT_EQ(published["linux"]["devices"][0]["path"], "/dev/infiniband/uverbs1");
  const auto grant = must(must(Ledger::open(node_.ledger)).find(token_owner(token).key));
  EXPECT_EQ(must(grant).users.at(0).process, myself());
}

// The container owns the grant from the start: no token exists that another container could use.
TEST_F(GrantInSpec, ContainerOwnsGrantWithoutHook) {
  call_.bundle = "/bundle";
  call_.state = identify_runtime_state(RuntimeState::Kind::kRunc, directory_.path()).value();
  const auto booking = must(grant_in_spec(asking_, myself(), call_));
  EXPECT_EQ(booking->adjustment.token, "");
  ASSERT_OK(booking->finish());
  EXPECT_EQ(call_.outcome.granted_mode, "hca") << "counted here, because no hook follows";
  const Owner owner = container_owner("web-1", root_name(*call_.state));
  const auto user = must(must(must(Ledger::open(node_.ledger)).find(owner.key))).users.at(0);
  EXPECT_EQ(user.key, owner.key);
  EXPECT_EQ(user.process, myself());
  EXPECT_EQ(user.state, call_.state);
  EXPECT_EQ(user.bundle, "/bundle");
}

TEST_F(GrantTest, EndedContainerHasNoEarlierGrant) {
  const Owner owner = owner_of("web-1");
  const Grantee who{owner, {owner.key, "web-1", dead_process()}};
  ASSERT_TRUE(allocate("web-1", asking_for("mlx5_0")));
  const auto ledger = Ledger::open(node_.ledger);
  EXPECT_TRUE(was_allocated_before(*ledger, who).value());
  ASSERT_TRUE(ledger->leave(owner, owner.key));
  ASSERT_TRUE(test_support::book(*ledger, owner, {{"mlx5_0", Mode::kHca, 1, std::nullopt}}, who.user));
  ASSERT_TRUE(ledger->settle(owner.key));
  EXPECT_FALSE(was_allocated_before(*ledger, who).value()) << "poststop did not run";
}

TEST_F(GrantTest, LeavesOutExistingAndUselessMounts) {
  ContainerRequest requesting = asking_for("mlx5_0");
  const auto inventory = must(read_node_for(requesting, node_, true));
  const Owner owner;
  const auto mounts = [&](bool in_spec, std::vector<SpecMount> has) {
    requesting.spec.mounts = std::move(has);
    std::string at;
    const auto foreseen = foresee({requesting, owner, node_, nullptr, in_spec}, inventory);
    EXPECT_OK(foreseen);
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

TEST_F(GrantTest, ForeseeWritesNothing) {
  const ContainerRequest requesting = asking_for("all", Mode::kExclusive);
  const auto inventory = read_node_for(requesting, node_, false);
  const auto ledger = Ledger::open(node_.ledger);
  ASSERT_TRUE(inventory && ledger);
  const Owner owner = owner_of("plan");
  EXPECT_EQ(names(foresee({requesting, owner, node_, &*ledger}, *inventory)->plan), "mlx5_0 mlx5_1");
  EXPECT_TRUE(ledger->list()->empty());
  EXPECT_TRUE(allocate("web-1", requesting)) << "no lock remains";
}

// The destructor of a Booking.
TEST_F(GrantTest, BookingIsRolledBackUnlessFinished) {
  Log log;
  Call call{node_, log};
  const Ledger& ledger = must(OpenLedger::keep(call))->ledger;
  const ContainerRequest requesting = asking_for("mlx5_0", Mode::kExclusive);
  const Grantee who = grantee("web-1");
  Plan plan;
  plan.hcas = {{"mlx5_0", Mode::kExclusive, 1, std::nullopt}};
  const auto book_it = [&](bool finish) {
    const bool had_before = was_allocated_before(ledger, who).value();
    Booking booking(requesting, who, {.event = "granted"}, call);
    EXPECT_OK(booking.begin());
    auto locks = ledger.lock({"mlx5_0"});
    EXPECT_TRUE(book(*locks, plan, who, {}));
    if (finish) {
      EXPECT_TRUE(booking.finish());
    }
    return had_before;
  };
  EXPECT_FALSE(book_it(false));
  EXPECT_FALSE(grant_of("web-1"));
  EXPECT_FALSE(book_it(true));
  EXPECT_TRUE(grant_of("web-1"));
  EXPECT_TRUE(book_it(false)) << "it had a grant before";
  EXPECT_TRUE(grant_of("web-1"));
}

}  // namespace
}  // namespace hook
