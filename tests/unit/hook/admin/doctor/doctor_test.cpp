// The parsers and pure checks of `rdma-hook doctor`. The whole command: tests/node/test_doctor.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/text.hpp"
#include "hook/admin/doctor/checks.hpp"
#include "hook/admin/doctor/doctor.hpp"
#include "hook/rails/record/store.hpp"
#include "support/inventories.hpp"
#include "support/tree.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

using Strings = std::vector<std::string>;

TEST(Expected, NamesFirstUnusableHcas) {
  PoolCount pool{.pool = "rails", .expected = 10, .usable = 1};
  for (int i = 1; i <= 9; ++i)
    pool.unusable.push_back(fmt::format("mlx5_{}", i));
  const auto findings = check_expected({pool});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(
      findings[0].message,
      "1 of 10 expected HCAs are usable; without a device node or an ACTIVE port: mlx5_1, mlx5_2, mlx5_3, mlx5_4, "
      "mlx5_5, mlx5_6, mlx5_7, mlx5_8 and 1 more");
}

TEST(Doctor, ParsesActiveMtusAndComputesRoceMtu) {
  // ibv_devinfo of rdma-core 44, of two HCAs.
  const auto mtus = parse_ibv_devinfo(
      "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand "
      "(0)\n\tphys_port_cnt:\t\t\t2\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
      "\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t1024 (3)\n\t\tport:\t2\n\t\t\tactive_mtu:\t\t4096 (5)\n\n"
      "hca_id:\trxe0\n\t\t\tactive_mtu:\t\t256 (1)\n\t\tport:\t1\n\t\t\tactive_mtu:\t\tinvalid MTU (0)\n");
  EXPECT_EQ(mtus, (ActiveMtus{{{"mlx5_0", 1}, 1024}, {{"mlx5_0", 2}, 4096}}));
  EXPECT_EQ(roce_mtu(1500), 1024U);
  EXPECT_EQ(roce_mtu(4191), 2048U);
  EXPECT_EQ(roce_mtu(4192), 4096U);
  EXPECT_EQ(roce_mtu(9000), 4096U);
  EXPECT_EQ(roce_mtu(300), 0U);
}

TEST(Doctor, ParsesPfcOfDcbAndNotesRailsWithout) {
  EXPECT_EQ(
      parse_dcb_pfc("pfc-cap 8 macsec-bypass off delay 0 \nprio-pfc 0:off 1:off 2:off 3:on 4:off 5:on 6:off 7:off \n"),
      (std::vector<unsigned>{3, 5}));
  EXPECT_EQ(parse_dcb_pfc("prio-pfc 0:off 1:off"), std::vector<unsigned>());
  EXPECT_EQ(parse_dcb_pfc("Attribute read: Operation not supported\n"), std::nullopt);
  // A rail without PFC is a note.
  const Check without = check_qos({{"rail0", std::vector<unsigned>(), false}, {"rail1", std::vector<unsigned>{3}, {}}});
  ASSERT_EQ(without.findings.size(), 1U);
  EXPECT_EQ(without.findings[0].object, "rail0");
  EXPECT_EQ(worst({without}), std::nullopt);
  EXPECT_TRUE(check_qos({{"rail0", std::vector<unsigned>(), true}}).findings.empty());
  EXPECT_FALSE(check_qos({{"rail0", std::nullopt, std::nullopt}}).looked);
}

TEST(Doctor, NotesATrafficClassWithoutPfc) {
  // As iproute2 6.1 prints it with -N.
  const DcbPriorities mapped = parse_dcb_priorities("default-prio 1 \ndscp-prio 0:0 26:3 48:6 \n");
  EXPECT_EQ(mapped.of_dscp, (std::map<unsigned, unsigned>{{0, 0}, {26, 3}, {48, 6}}));
  EXPECT_EQ(mapped.fallback, 1U);
  const DcbPriorities none = parse_dcb_priorities("");
  EXPECT_TRUE(none.of_dscp.empty());
  const auto note = [](const DcbPriorities& priorities, std::optional<std::vector<unsigned>> pfc,
                       bool may_map = false) {
    RailQos rail{"rail0", std::move(pfc), {}, {{106}}};
    add_priorities(priorities, may_map, rail);
    const Check check = check_qos({rail});
    EXPECT_EQ(worst({check}), std::nullopt) << "a note, because the switches are unknown";
    return check.findings.empty() ? "" : check.findings[0].message + "; " + check.findings[0].remedy;
  };
  using Pfc = std::vector<unsigned>;
  EXPECT_EQ(note(mapped, Pfc{5}),
            "NCCL_IB_TC=106 of config.json has priority 3 here, which has no PFC; run `dcb app replace dev rail0 "
            "dscp-prio 26:5`, or correct \"env\"");
  EXPECT_EQ(note(mapped, Pfc{3}), "");
  EXPECT_EQ(note(mapped, std::nullopt), "") << "unknown is no fault";
  EXPECT_EQ(note(none, Pfc{3}),
            "NCCL_IB_TC=106 of config.json has priority 0 here, which has no PFC, because `dcb app` gives no DSCP a "
            "priority; run `dcb app replace dev rail0 dscp-prio 26:3`, or correct \"env\"");
  EXPECT_EQ(note(none, Pfc{0}), "");
  EXPECT_EQ(note(none, Pfc{3}, true), "") << "MLNX_OFED may map each DSCP by itself";
}

TEST(Doctor, WarnsAboutAnAddressThatAnotherHostHas) {
  fabric::Inventory node = test_support::rails(1);
  node.hcas[0].ports[0].netdev = "rail0";
  node.netdevs[1].addresses[0].dad_failed = true;
  const auto checks = check_rails(node, Config{}, {});
  const auto& findings = std::ranges::find(checks, "addresses", &Check::name)->findings;
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].message, "of rail0 and of another host (dadfailed): the GID is of no use");
  EXPECT_EQ(findings[0].remedy, "assign another address to rail0");
}

TEST(Doctor, KnowsThatIwarpHasOneGid) {
  fabric::Inventory node = test_support::rails(1);
  fabric::Hca& hca = node.hcas[0];
  hca.ports[0].gids = {test_support::v1(0, "202:0:de::"), test_support::v1(1, "202:0:df::")};
  hca.ports[0].gid_tbl_len = 2;
  const auto has_full_table = [&] {
    const auto checks = check_rails(node, Config{}, {});
    return !std::ranges::find(checks, "gids", &Check::name)->findings.empty();
  };
  EXPECT_TRUE(has_full_table());
  hca.node_type = "4: RNIC";
  EXPECT_FALSE(has_full_table());
  hca.node_type = "1: CA";
  hca.ports[0].gids.pop_back();
  hca.ports[0].gid_tbl_len = 1;
  EXPECT_FALSE(has_full_table()) << "a table of one slot by design";
}

TEST(Doctor, JsonHasNoBidirectionalControls) {
  const std::string name = "mlx\u202e5\u0085";
  const std::string json = findings_json({{"ports", {}, {{Grade::kWarning, name, "DOWN", {}}}}});
  EXPECT_NE(json.find("\"mlx\\u202e5\\u0085\""), std::string::npos) << json;
  EXPECT_TRUE(std::all_of(json.begin(), json.end(), [](char c) { return c == '\n' || (c >= ' ' && c < 0x7f); }));
}

TEST(Doctor, FindsProgramsInEngineFile) {
  EXPECT_EQ(our_programs_in("{\"path\": \"/usr/local/bin/rdma-runtime\", \"x\": '/a/rdma-hook'}\n# /b/rdma-hook\n"
                            "BinaryName = \"/usr/local/bin/rdma-runtime\"\n/x/rdma-hook.old /x/my-rdma-hook rdma-hook"),
            (Strings{"/usr/local/bin/rdma-runtime", "/a/rdma-hook"}));
}

TEST(Doctor, ReadsAcsFromConfigurationSpace) {
  std::string space(4096, '\0');
  EXPECT_EQ(fabric::acs_control(space), base::Attr<unsigned>(0U));
  const auto put = [&](std::size_t at, std::initializer_list<int> bytes) {
    for (const int byte : bytes)
      space[at++] = static_cast<char>(byte);
  };
  put(0x100, {0x01, 0x00, 0x81, 0x14});  // AER, version 1, next at 0x148
  put(0x148, {0x0d, 0x00, 0x01, 0x00, 0x5f, 0x00, 0x1d, 0x00});
  EXPECT_EQ(fabric::acs_control(space), base::Attr<unsigned>(0x1dU));
  put(0x148, {0x02, 0x00, 0x01, 0x10});  // another, which leads back
  EXPECT_EQ(fabric::acs_control(space), base::Attr<unsigned>(0U));
  put(0x148, {0x02, 0x00, 0xc1, 0xff});  // the last four bytes: no room for its control
  put(0xffc, {0x0d, 0x00, 0x01, 0x00});
  EXPECT_EQ(fabric::acs_control(space), base::Attr<unsigned>(0U));
  EXPECT_EQ(fabric::acs_control(space.substr(0, 64)), base::Attr<unsigned>(base::Unreadable{EMSGSIZE}));
}

TEST(Doctor, FindsBridgesBetweenGpuAndHca) {
  fabric::Inventory inventory;
  inventory.gpus = {{"0000:20:00.0", 0, Strings{"root", "switch", "down0"}},
                    {"0000:30:00.0", 1, Strings{"other", "down9"}}};
  inventory.hcas.resize(2);
  inventory.hcas[0].pci_path = {"root", "switch", "down1"};
  inventory.hcas[1].pci_path = {"third"};
  EXPECT_EQ(bridges_between(inventory), (Strings{"down0", "down1"}));
}

class DoctorLedger : public test_support::LedgerScene {};

TEST_F(DoctorLedger, WarnsAboutStaleGrant) {
  const test_support::Child alive;
  GrantUser user{"web", "web", alive.identity()};
  ASSERT_EQ(allocate(web_, {test_support::kAlone}, user), "");
  EXPECT_TRUE(check_ledger(read_ledger_facts(path_)).findings.empty());
  GrantUser ended{"db", "db", test_support::dead_process()};
  ASSERT_TRUE(std::filesystem::create_directories(temp_ / "cgroup/db"));
  ended.cgroup = identify_cgroup(temp_ / "cgroup", "/db").value();
  std::filesystem::remove(temp_ / "cgroup/db");
  ASSERT_EQ(allocate(db_, {{"mlx5_1", Mode::kExclusive, 1, std::nullopt}}, ended), "");
  const Check check = check_ledger(read_ledger_facts(path_));
  ASSERT_EQ(check.findings.size(), 1U);
  EXPECT_EQ(check.findings[0].object, db_.label);
  EXPECT_NE(check.findings[0].message.find("mlx5_1"), std::string::npos);
  EXPECT_EQ(worst({check}), Grade::kWarning);
}

TEST(Doctor, FindsMovedGids) {
  fabric::Inventory node = test_support::rails(1);  // 10.1.0.1 is at 2 (v1) and 3
  const auto moved = [&](const char* address, unsigned index) {
    const auto found = moved_gids({{"container web", "mlx5_0", {test_support::address(address)}, index}}, node);
    if (found.empty()) return std::string("no");
    return found.front().index ? fmt::format("to {}", *found.front().index) : std::string("gone");
  };
  EXPECT_EQ(moved("10.1.0.1", 3), "no");
  EXPECT_EQ(moved("10.1.0.1", 2), "no") << "the GID of either type counts";
  EXPECT_EQ(moved("10.1.0.1", 7), "to 3");
  EXPECT_EQ(moved("10.9.9.9", 3), "gone");
  node.hcas[0].ports[0].gids_complete = false;
  EXPECT_EQ(moved("10.9.9.9", 3), "no") << "an incomplete table proves nothing";
  node.hcas.clear();
  EXPECT_EQ(moved("10.1.0.1", 7), "no");
}

// From the record of a container's rails and the GID tables below a root to the finding.
class DoctorMovedGid : public DoctorLedger {
 protected:
  // A container with one rail, 10.1.0.1 at index 3 when it started.
  void book_rail() {
    ASSERT_EQ(allocate(web_, {{"mlx5_0", Mode::kShared, 1, {}}}, {web_.key, "web", test_support::myself()}), "");
    RailRecord rail;
    rail.rail.hca = "mlx5_0";
    rail.rail.kind = RailKind::kMacvlan;
    rail.rail.addresses = {{test_support::address("10.1.0.1"), 24, {}}};
    rail.gid_index = 3;
    const auto records = NetworkRecordStore::open(path_);
    ASSERT_TRUE(records && records->write({web_.key, {}, 1, {rail}}));
  }

  // Returns the finding of the container on a node with the GID at this index; nullopt: in no slot.
  std::string reported(std::optional<unsigned> index) {
    fabric::Inventory inventory = test_support::rails(2, 16);
    auto& gids = inventory.hcas[0].ports[0].gids;
    std::erase_if(gids, [&](const fabric::GidEntry& gid) { return gid.index == 2 || (gid.index == 3 && !index); });
    for (fabric::GidEntry& gid : gids)
      if (gid.index == 3) gid.index = *index;
    NodeSettings node;
    node.root = temp_ / fmt::format("node{}", ++nodes_);
    node.ledger = path_;
    test_support::lay_out(inventory, node.root, {.full = true});
    for (const Check& check : examine_node(node))
      for (const Finding& finding : check.findings)
        if (finding.object == web_.label) return check.name + ": " + finding.message;
    return {};
  }

 private:
  unsigned nodes_ = 0;
};

TEST_F(DoctorMovedGid, NamesTheOwner) {
  book_rail();
  EXPECT_EQ(reported(3), "");
  EXPECT_EQ(reported(5),
            "ledger: its GID 10.1.0.1 of mlx5_0 was at index 3 when the container started, and is at index 5 now");
  EXPECT_EQ(
      reported(std::nullopt),
      "ledger: its GID 10.1.0.1 of mlx5_0 was at index 3 when the container started, and is not in the GID table now");
}

TEST_F(DoctorLedger, ReportsUnreadableRailsOnceForAllGrants) {
  ASSERT_EQ(allocate(web_, {{"mlx5_0", Mode::kShared, 1, {}}}, {web_.key, "web", test_support::myself()}), "");
  ASSERT_EQ(allocate(db_, {{"mlx5_1", Mode::kShared, 1, {}}}, {db_.key, "db", test_support::myself()}), "");
  const std::filesystem::path network = path_ + "/network";
  std::filesystem::create_directories(network);
  for (const Owner& owner : {web_, db_})
    test_support::write_file((network / (owner.key + ".json")).string(), "{}");
  std::filesystem::permissions(network, std::filesystem::perms::all);
  const LedgerFacts facts = read_ledger_facts(path_);
  ASSERT_EQ(facts.unread.size(), 2U) << "each grant's rails are read";
  const Check check = check_ledger(facts);
  ASSERT_EQ(check.findings.size(), 1U);
  EXPECT_NE(check.findings[0].message.find("network"), std::string::npos) << check.findings[0].message;
}

TEST_F(DoctorLedger, ReportsFullOrReadOnlyFileSystem) {
  LedgerFacts facts;
  facts.free_bytes = 4096;
  EXPECT_EQ(worst({check_ledger(facts)}), Grade::kWarning);
  facts.free_files = 0;
  EXPECT_EQ(worst({check_ledger(facts)}), Grade::kBroken);
  facts = {};
  facts.read_only = true;
  EXPECT_EQ(worst({check_ledger(facts)}), Grade::kBroken);
}

TEST(Doctor, ReportsPrivilegedQkeys) {
  const auto check_of = [](std::optional<bool> mode) {
    fabric::KernelFacts facts;
    facts.privileged_qkey = mode;
    for (Check& check : check_kernel(facts, {}, {}))
      if (check.name == "qkey") return check;
    return Check();
  };
  const Check on = check_of(true);
  ASSERT_EQ(on.findings.size(), 1U);
  EXPECT_EQ(on.findings[0].grade, Grade::kWarning);
  EXPECT_EQ(on.findings[0].remedy, "run `rdma system set privileged-qkey off`");
  EXPECT_TRUE(check_of(false).findings.empty());
  EXPECT_TRUE(check_of(false).looked);
  EXPECT_FALSE(check_of(std::nullopt).looked);
}

TEST(Doctor, ReportsInstallationWithoutEngine) {
  struct Row {
    const char* name;
    const char* engine;  // engine of the record; empty: no record
    const char* process;
    bool has_slurm;
    const char* message;
  };
  const Row rows[] = {
      {"no engine", "podman", "", false, "rdma-init is configured for podman, which is not installed"},
      {"beside Slurm", "podman", "", true, "rdma-init is configured for podman, which is not installed"},
      {"runs from another directory", "crio", "crio", false, ""},
      {"a distribution", "k3s", "", false, ""},
      {"Slurm", "slurm", "", true, ""},
      {"Slurm removed", "slurm", "", false, "rdma-init is configured for slurm, which is not installed"},
      {"files only", "", "", false, "rdma-init is configured for docker, which is not installed"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    NodeEngines engines;
    engines.has_slurm = row.has_slurm;
    InstallRecord record;
    record.engine = row.engine;
    record.way = "hook";
    if (row.engine[0] == '\0')
      engines.files = {{"/etc/docker/daemon.json", Engine::kDocker, false, 0, {"/usr/bin/rdma-runtime"}}};
    else
      engines.record = std::optional(record);
    if (row.process[0] != '\0') engines.processes.emplace_back().name = row.process;
    const Check check = check_engines(engines).front();
    ASSERT_EQ(check.findings.size(), row.message[0] == '\0' ? 0U : 1U);
    if (row.message[0] == '\0') continue;
    EXPECT_EQ(check.findings[0].grade, Grade::kBroken);
    EXPECT_EQ(check.findings[0].message, row.message);
    EXPECT_FALSE(check.findings[0].remedy.empty());
  }
}

TEST(Doctor, ReportsInstallationWhoseEngineIsNotTheNodes) {
  const auto findings_of = [](const NodeEngines& engines) { return check_engines(engines).front().findings; };
  NodeEngines engines;
  engines.found = std::vector{FoundEngine{Engine::kPodman, "/usr/bin/podman", 5, 4, {}}};
  InstallRecord record;
  record.engine = "crio";
  engines.record = std::optional(record);
  ASSERT_EQ(findings_of(engines).size(), 1U);
  EXPECT_EQ(findings_of(engines)[0].message, "rdma-init is configured for crio, which is not installed");
  // Apptainer reads CDI too.
  engines = {};
  engines.files = {{"/etc/cdi/rdma-init.json", Engine::kPodman, false, 0, {"/usr/bin/rdma-hook"}}};
  EXPECT_TRUE(findings_of(engines).empty());
}

TEST(Doctor, NamesSlurmOnNodeWithoutEngine) {
  NodeEngines engines;
  engines.has_slurm = true;
  InstallRecord record;
  record.engine = "slurm";
  record.way = "hook";
  engines.record = std::optional(record);
  EXPECT_EQ(check_engines(engines).front().summary, "slurmd; slurm configured, way hook");
  engines = {};
  engines.processes.emplace_back().name = "rdma-nri";
  EXPECT_EQ(check_engines(engines).front().summary, "no engine is installed");
}

TEST(Doctor, ComparesFirstLineOfVersion) {
  const auto findings_of = [](const std::string& version) {
    NodeEngines engines;
    engines.programs = {{"/usr/bin/rdma-runtime", "/etc/docker/daemon.json", 0, version}};
    for (const Check& check : check_engines(engines))
      if (check.name == "programs") return check.findings;
    return std::vector<Finding>();
  };
  const std::string own = "rdma-runtime " RDMA_INIT_VERSION;
  const std::string runc = "\nrunc version 1.1.5\nspec: 1.0.2-dev";
  EXPECT_TRUE(findings_of(own).empty());
  EXPECT_TRUE(findings_of(own + runc).empty());
  const auto old = findings_of("rdma-runtime 0.0.1" + runc);
  ASSERT_EQ(old.size(), 1U);
  EXPECT_EQ(old[0].message, "is rdma-runtime 0.0.1, expected " RDMA_INIT_VERSION);
  EXPECT_EQ(findings_of("runc version 1.1.5\n" + own).size(), 1U) << "another program's first line";
}

TEST(Doctor, ReportsRestartByClockThatIsNotSet) {
  NodeEngines engines;
  engines.processes = {{.name = "containerd", .pid = 7, .memlock = {}, .start_ticks = 500, .started = 1'000'000}};
  const auto report_of = [&](std::int64_t changed, std::optional<std::uint64_t> written) -> std::string {
    engines.files = {{"/etc/containerd/config.toml", Engine::kContainerd, true, changed, {}, written}};
    for (const Check& check : check_engines(engines))
      for (const Finding& finding : check.findings)
        if (finding.object == "containerd")
          return (finding.grade == Grade::kBroken ? "broken: " : "") + finding.message;
    return "";
  };
  EXPECT_EQ(report_of(999'999, 500),
            "broken: has not read `/etc/containerd/config.toml`: its process 7 started before install wrote the file");
  EXPECT_EQ(report_of(1'086'400, 499), "") << "the node's clock was set back";
  EXPECT_EQ(report_of(1'086'400, 0), "") << "written before this boot";
  EXPECT_TRUE(report_of(1'086'400, std::nullopt).starts_with("may not have read `/etc/containerd/config.toml`"));
  EXPECT_EQ(report_of(1'000'001, std::nullopt), "");
}

TEST(Doctor, ReportsRenamedHcaOfAGrant) {
  LedgerFacts facts;
  facts.is_there = true;
  Grant grant;
  grant.hcas = {{"mlx5_0", Mode::kExclusive, 1, {}, false, "0000.10.00.0"},
                {"rxe1", Mode::kShared, 1, {}, false, "guid.5054.00ff.fe12.0001"},
                {"mlx5_2", Mode::kShared, 1, {}, false, "0000.12.00.0"},
                {"mlx5_3", Mode::kShared, 1, {}, false, ""}};
  facts.grants = {grant, grant};
  facts.names = {{"0000.10.00.0", {"mlx5_0"}}, {"guid.5054.00ff.fe12.0001", {"mine"}}, {"0000.13.00.0", {"mlx5_9"}}};
  const Check check = check_ledger(facts);
  ASSERT_EQ(check.findings.size(), 1U) << "mlx5_2 is in a container's namespace, mlx5_3 has no identity";
  EXPECT_EQ(check.findings[0].object, "rxe1");
  EXPECT_NE(check.findings[0].message.find("is now named `mine`"), std::string::npos) << check.findings[0].message;
  EXPECT_NE(check.findings[0].remedy.find("rdma dev set mine name rxe1"), std::string::npos);
}

TEST(Doctor, ReportsClaimsWithoutDriverOrFile) {
  LedgerFacts facts;
  facts.is_there = true;
  Grant claim;
  claim.owner = claim_owner("7b1c-1", {.space = "team", .name = "rails", .token = "t", .pods = {}, .hcas = {}});
  Grant pending = claim;
  pending.pending = true;
  facts.grants = {claim, pending};
  facts.claim_driver = base::ProbedState{true, "registered"};
  EXPECT_TRUE(check_ledger(facts).findings.empty());
  facts.claim_driver = base::ProbedState{false, "no running process has recorded a state"};
  facts.lost_claim_files[claim.owner.key] = "/var/run/cdi/rdma-init.io-claim-7b1c-1.json";
  const Check check = check_ledger(facts);
  ASSERT_EQ(check.findings.size(), 2U) << "a claim that is not prepared yet needs neither";
  EXPECT_EQ(check.findings[0].grade, Grade::kBroken);
  EXPECT_NE(check.findings[0].message.find("rdma-init.io-claim-7b1c-1.json` is missing"), std::string::npos);
  EXPECT_EQ(check.findings[1].object, claim.owner.label);
  EXPECT_NE(check.findings[1].message.find("rdma-dra is not ready (no running process"), std::string::npos);
  EXPECT_NE(check.findings[1].remedy.find("rdma-hook recover --claim"), std::string::npos);
}

TEST_F(DoctorLedger, ReadsTheCdiFileOfAClaim) {
  const Owner claim = claim_owner("7b1c-1", {.space = "team", .name = "rails", .token = "t", .pods = {}, .hcas = {}});
  ASSERT_EQ(allocate(claim, {{"mlx5_0", Mode::kExclusive, 1, {}}}, {claim.key, "7b1c-1", {}}), "");
  const std::string file = path_ + "/var/run/cdi/rdma-init.io-claim-7b1c-1.json";
  LedgerFacts facts = read_ledger_facts(path_, path_);
  EXPECT_EQ(facts.lost_claim_files, (std::map<std::string, std::string>{{claim.key, file}}));
  ASSERT_TRUE(facts.claim_driver);
  EXPECT_FALSE(facts.claim_driver->is_ready);
  std::filesystem::create_directories(path_ + "/var/run/cdi");
  test_support::write_file(file, "{}");
  EXPECT_TRUE(read_ledger_facts(path_, path_).lost_claim_files.empty());
}

TEST(Doctor, WarnsOfTestsThatNriDoesNotRun) {
  Config config;
  config.networks["default"] = {};
  config.networks["gateway"].gateway_test = RailTest::kFail;
  config.networks["duplicate"].duplicate_test = RailTest::kWarn;
  NodeEngines engines;
  EXPECT_TRUE(check_rail_tests(engines, config).empty()) << "rdma-nri does not run";
  engines.processes.emplace_back().name = "rdma-nri";
  const auto findings = check_rail_tests(engines, config);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].object, "network duplicate");
  EXPECT_TRUE(findings[0].message.starts_with("rdma-nri does not run \"duplicate_test\":")) << findings[0].message;
  EXPECT_EQ(findings[1].object, "network gateway");
}

TEST(Doctor, FitsLongNamesIn80Columns) {
  const std::string hca(63, 'h');
  const std::string label = fmt::format("pod {}/{}", std::string(63, 'n'), std::string(200, 'p'));
  Check check{"addresses", {}, {}};
  check.add(Grade::kWarning, hca + ":1", "is DOWN, not ACTIVE", fmt::format("run `ip link set {} up`", hca));
  check.add(Grade::kBroken, label, "has ended but still has " + hca, "run `rdma-hook recover`");
  const Check fine{"memlock", hca + ", " + label, {}};
  const std::string text = findings_text({check, fine}, false);
  std::string joined;
  for (const std::string_view line : base::split(text, '\n')) {
    EXPECT_LE(line.size(), 80U) << text;
    EXPECT_FALSE(line.ends_with(' ')) << text;
    joined += base::trim(line);
  }
  EXPECT_NE(joined.find(label.substr(4) + ": has"), std::string::npos) << "names are whole: " << joined;
  EXPECT_NE(findings_json({check}).find(label), std::string::npos);
}

TEST(Doctor, MergesEqualFindings) {
  Check check{"ports", {}, {}};
  for (int i = 0; i < 20; ++i)
    check.findings.push_back({Grade::kWarning, fmt::format("a{}", i), "down", "up"});
  for (int i = 0; i < 20; ++i)
    check.findings.push_back({Grade::kWarning, fmt::format("b{}", i), fmt::format("down {}", i), "up"});
  const std::string text = findings_text({check}, false);
  EXPECT_NE(text.find("0 broken, 40 warnings"), std::string::npos);
  EXPECT_NE(text.find("a18, a19: down"), std::string::npos);
  EXPECT_NE(text.find("and 13 more"), std::string::npos);
  EXPECT_EQ(findings_text({{"ports", "all", {}}}, true), "");
}

}  // namespace
}  // namespace hook
