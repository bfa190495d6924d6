// The reports for users: the checks of doctor, its text and JSON, and the drawing of topo.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "init/bootstrap.hpp"
#include "init/decision.hpp"
#include "init/doctor.hpp"
#include "init/topo.hpp"
#include "support/inventories.hpp"
#include "support/lines_of.hpp"

namespace {

using namespace fabric;
using namespace init;
using namespace test_support;

constexpr std::uint64_t kIpcLock = 1ULL << 14;

const Check* find(const std::vector<Check>& checks, const char* name) {
  const auto found = std::find_if(checks.begin(), checks.end(), [&](const Check& one) { return one.name == name; });
  return found == checks.end() ? nullptr : &*found;
}

std::vector<Check> check_up(const Inventory& node, const Settings& settings = {}) {
  return init::check_up(node, settings, decide(node, settings, {}));
}

TEST(ProviderCheck, IsBadIfItsPortWouldBeUsed) {
  Inventory node = rails(3);
  const auto reject = [&](std::size_t hca) {
    node.hcas[hca].abi_version = 6;
    node.hcas[hca].provider = {"/usr/lib64/libibverbs/libbnxt_re-rdmav34.so", 1, 1};
  };
  const auto checks = [&](const Settings& settings = {}, const Policy& policy = {}) {
    return check_providers(node, settings, policy, decide(node, settings, policy));
  };
  EXPECT_TRUE(checks().empty());
  reject(1);
  reject(2);
  const auto found = checks();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].verdict, Verdict::kBad);
  EXPECT_EQ(
      found[0].message,
      "mlx5_1:1, mlx5_2:1: libibverbs rejects its provider /usr/lib64/libibverbs/libbnxt_re-rdmav34.so: it accepts "
      "kernel ABI 1 to 1, and the driver has 6");
  EXPECT_EQ(found[0].remedy, kProviderRemedy);
  Policy policy;
  policy.hcas = fabric::parse_selectors("mlx5_0").value();
  EXPECT_EQ(checks({}, policy).at(0).verdict, Verdict::kNote) << "excluded by --hca";
  EXPECT_EQ(checks({{"NCCL_IB_HCA", {"=mlx5_0:1", "environment"}}}).at(0).verdict, Verdict::kNote);
  policy = {};
  policy.require = 3;
  EXPECT_TRUE(checks({}, policy).empty()) << "the refusal has the cause and the remedy";
  for (const std::size_t slow : {1U, 2U})
    node.hcas[slow].ports[0].rate = "25 Gb/sec";
  EXPECT_EQ(checks().at(0).verdict, Verdict::kNote) << "slower than the used port";
  reject(0);
  EXPECT_TRUE(checks().empty()) << "the summary has the cause and the remedy";
  const auto all = check_up(node);
  EXPECT_FALSE(is_fit(all));
  EXPECT_EQ(find(all, "ports")->remedy, kProviderRemedy);
  EXPECT_EQ(find(all, "rdma_cm"), nullptr) << "the addresses are not the cause";
}

TEST(Memlock, ReportsTheLimitOfIbvRegMr) {
  const std::tuple<const char*, Limits, Verdict, const char*> rows[] = {
      {"unlimited", {UINT64_MAX, UINT64_MAX, 0, 1000, true}, Verdict::kGood, "RLIMIT_MEMLOCK is unlimited"},
      {"only rdma-init raises soft to hard",
       {65536, UINT64_MAX, 0, 1000, true},
       Verdict::kNote,
       "the soft RLIMIT_MEMLOCK is 64 KiB, the hard one unlimited"},
      {"8 MiB", {8 << 20, 8 << 20, 0, 0, true}, Verdict::kBad, "RLIMIT_MEMLOCK is 8.0 MiB and CAP_IPC_LOCK is not"},
      {"none", {0, 0, 0, 0, true}, Verdict::kBad, "ibv_reg_mr fails with \"Operation not permitted\""},
      {"64 KiB", {65536, 65536, 0, 0, true}, Verdict::kBad, "RLIMIT_MEMLOCK is 64 KiB"},
      {"64 GiB", {64ULL << 30, 64ULL << 30, 0, 0, true}, Verdict::kGood, "RLIMIT_MEMLOCK is 64.0 GiB: enough"},
      {"soft is unknown", {{}, 64ULL << 30, 0, 0, true}, Verdict::kGood, "RLIMIT_MEMLOCK is 64.0 GiB: enough"},
      {"capability", {65536, 65536, kIpcLock, 0, true}, Verdict::kGood, "CAP_IPC_LOCK is effective"},
      {"capability of a user namespace",
       {65536, 65536, kIpcLock, 0, false},
       Verdict::kBad,
       "capabilities of a user namespace do not count"},
      {"other capabilities", {65536, 65536, ~kIpcLock, 0, true}, Verdict::kBad, "CAP_IPC_LOCK is not effective"},
      {"IPC_LOCK has no effect for users other than root",
       {65536, 65536, 0, 1000, true},
       Verdict::kBad,
       "adding IPC_LOCK does not help: the effective set of a user other than root is empty"},
      {"nothing known", {}, Verdict::kNote, "RLIMIT_MEMLOCK and capabilities are not known"}};
  for (const auto& [name, limits, verdict, part] : rows) {
    SCOPED_TRACE(name);
    Inventory node = rails(1);
    node.limits = limits;
    const auto checks = check_up(node);
    const Check* check = find(checks, "memlock");
    ASSERT_NE(check, nullptr);
    EXPECT_EQ(check->verdict, verdict);
    EXPECT_NE(check->message.find(part), std::string::npos) << check->message;
    EXPECT_EQ(check->remedy.empty(), verdict == Verdict::kGood || !limits.memlock_hard);
    EXPECT_EQ(init::is_fit(checks), verdict != Verdict::kBad);
  }
}

TEST(Bootstrap, FollowsNcclsRule) {
  const struct {
    const char* name;
    std::vector<const char*> netdevs;
    const char* fixed;  // NCCL_SOCKET_IFNAME
    const char* expected;
  } rows[] = {{"first of the rest", {"lo", "docker0", "virbr0", "eth0", "eth1"}, nullptr, "eth0"},
              {"ib first", {"eth0", "ib0"}, nullptr, "ib0"},
              {"docker before lo", {"lo", "docker0"}, nullptr, "docker0"},
              {"lo before virbr", {"virbr0", "lo"}, nullptr, "lo"},
              {"virbr at last", {"virbr0"}, nullptr, "virbr0"},
              {"none", {}, nullptr, "none"},
              {"fixed", {"eth0", "eth1"}, "eth1", "eth1"},
              {"fixed by prefix", {"lo", "eth0"}, "eth", "eth0"},
              {"fixed exactly", {"eth0", "eth00"}, "=eth00", "eth00"},
              {"excluded", {"eth0", "eth1"}, "^eth0", "eth1"},
              {"fixed to nothing", {"eth0"}, "ens", "none"},
              {"one character is ignored", {"eth0"}, "x", "eth0"}};
  for (const auto& row : rows) {
    Inventory node;
    for (const char* name : row.netdevs)
      node.netdevs.push_back(netdev(name, {"10.0.0.1"}));
    Settings settings;
    if (row.fixed) settings["NCCL_SOCKET_IFNAME"] = {row.fixed, "environment"};
    EXPECT_EQ(init::bootstrap_netdev(node, settings).value_or("none"), row.expected) << row.name;
  }
  Inventory node;
  node.netdevs = {netdev("eth0", {}), netdev("eth1", {"10.0.0.1"}), netdev("eth2", {"10.0.0.2"}),
                  netdev("lo", {"::1"})};
  node.netdevs[1].carrier = 0;
  EXPECT_EQ(init::bootstrap_netdev(node, {}), "eth2") << "a netdev that is up and has an address";
  node.netdevs[2].in_this_netns = false;
  EXPECT_FALSE(init::bootstrap_netdev(node, {})) << "NCCL ignores ::1";
}

TEST(Bootstrap, PrefersTheSubnetOfTheRootRank) {
  Inventory node;
  node.netdevs = {netdev("eth0", {"10.0.0.1"}), netdev("eth1", {"10.1.0.1", "fd00::1"})};
  node.netdevs[0].addresses[0].prefix = node.netdevs[1].addresses[0].prefix = 24;
  node.netdevs[1].addresses[1].prefix = 64;
  const auto with = [&](const char* root) {
    return init::bootstrap_netdev(node, {{"NCCL_COMM_ID", {root, "environment"}}}).value_or("none");
  };
  EXPECT_EQ(with("10.1.0.7:5000"), "eth1");
  EXPECT_EQ(with("[fd00::7]:5000"), "eth1");
  EXPECT_EQ(with("10.9.0.7:5000"), "eth0") << "not in a subnet of this container";
  for (const char* odd : {"trainer-0:5000", "[", "]", ":", "[%", "10.1.0.7"})
    EXPECT_FALSE(with(odd).empty()) << odd;
  node.netdevs.push_back(netdev("ib0", {"10.2.0.1"}));
  EXPECT_EQ(with("10.1.0.7:5000"), "ib0") << "NCCL prefers names that start with ib";
}

TEST(Bootstrap, TakesNetdevsWithoutCarrierBeforeNccl228AndInTheSubnetOfTheRootRank) {
  Inventory node;
  node.netdevs = {netdev("eth0", {"10.0.0.1"}), netdev("virbr0", {"10.1.0.1"}), netdev("lo", {"127.0.0.1"})};
  node.netdevs[0].addresses[0].prefix = 24;
  node.netdevs[0].carrier = 0;
  const nccl::Version old{2, 27, 7};
  EXPECT_EQ(init::bootstrap_netdev(node, {}, old), "eth0");
  EXPECT_EQ(init::bootstrap_netdev(node, {}), "lo");
  Settings settings{{"NCCL_COMM_ID", {"10.0.0.7:5000", "environment"}},
                    {"NCCL_SOCKET_FAMILY", {"AF_INET6", "environment"}}};
  EXPECT_EQ(init::bootstrap_netdev(node, settings), "eth0") << "the subnet is compared without carrier and family";
  node.netdevs.erase(node.netdevs.begin());
  EXPECT_EQ(init::bootstrap_netdev(node, {}, old), "virbr0");
}

TEST(Bootstrap, NotesARailOrADownNetdev) {
  Inventory node = rails(2);
  std::stable_sort(node.netdevs.begin(), node.netdevs.end(),
                   [](const auto& left, const auto& right) { return left.name > right.name; });
  node.routes = std::vector{fabric::Route{"default", "eth0"}};
  auto checks = check_up(node);
  const Check& check = *find(checks, "bootstrap");
  EXPECT_EQ(check.verdict, Verdict::kNote);
  EXPECT_NE(check.message.find("a rail, for its bootstrap, and the default route uses eth0"), std::string::npos)
      << check.message;
  EXPECT_EQ(check.remedy, "set NCCL_SOCKET_IFNAME to =eth0 (--export bootstrap does)");

  checks = check_up(node, {{"NCCL_SOCKET_IFNAME", {"=eth0", "environment"}}});
  EXPECT_EQ(find(checks, "bootstrap")->verdict, Verdict::kGood);

  Inventory two;
  two.netdevs = {netdev("ens1", {"10.0.0.1"}), netdev("eth0", {"10.0.1.1"})};
  two.netdevs[0].carrier = 0;
  two.routes = std::vector{fabric::Route{"default", "eth0"}};
  checks = check_up(two);
  EXPECT_NE(find(checks, "bootstrap")->message.find("may use ens1, which is down"), std::string::npos);
  checks = check_up(two, {{"NCCL_VERSION", {"2.28.3", "environment"}}});
  EXPECT_EQ(find(checks, "bootstrap")->verdict, Verdict::kGood) << "NCCL 2.28 takes no netdev that is down";
  two.routes = std::vector{fabric::Route{"default", "ens1"}};
  checks = check_up(two);
  EXPECT_EQ(find(checks, "bootstrap")->verdict, Verdict::kGood) << "no better netdev is known";
}

TEST(Checkup, NotesRdmaCmAndLagAndIsUnfitWithoutAPort) {
  Inventory node = rails(1);
  auto checks = check_up(node);
  EXPECT_TRUE(init::is_fit(checks));
  EXPECT_EQ(find(checks, "rdma_cm"), nullptr);
  EXPECT_EQ(find(checks, "memlock")->message, "RLIMIT_MEMLOCK and capabilities are not known");
  EXPECT_EQ(find(checks, "bootstrap")->verdict, Verdict::kGood);

  node.rdma_cm = false;
  checks = check_up(node);
  EXPECT_EQ(find(checks, "rdma_cm")->verdict, Verdict::kNote);
  EXPECT_TRUE(init::is_fit(checks)) << "NCCL does not need it";

  node.hcas[0].name = "mlx5_bond_0";
  EXPECT_EQ(find(check_up(node), "lag")->verdict, Verdict::kSlow);
  EXPECT_EQ(find(check_up(node, {{"NCCL_IB_QPS_PER_CONNECTION", {"2", "environment"}}}), "lag"), nullptr);

  node.hcas[0].accessible = false;
  checks = check_up(node);
  EXPECT_FALSE(init::is_fit(checks));
  EXPECT_EQ(find(checks, "ports")->verdict, Verdict::kBad);
  EXPECT_FALSE(find(checks, "ports")->remedy.empty());
}

TEST(Checkup, JudgesRdmaCmByTheGidsOfThisNamespace) {
  Inventory node = rails(1);
  EXPECT_EQ(find(check_up(node, {{"NCCL_IB_HCA", {"=other", "environment"}}}), "rdma_cm"), nullptr);
  node.netdevs.resize(1);
  EXPECT_NE(find(check_up(node), "rdma_cm"), nullptr);
  node.hcas[0].node_type = "4: RNIC";
  EXPECT_EQ(find(check_up(node), "rdma_cm"), nullptr) << "its GID is no address";
}

TEST(Checkup, GradesAWarningByItsCertaintyAndRefusalsAsBad) {
  const Inventory node = rails(1);
  Settings settings = {{"NCCL_IB_GID_INDEX", {"2", "environment"}}};
  EXPECT_EQ(find(check_up(node, settings), "gid-index")->verdict, Verdict::kNote) << "RoCE v1 works in one subnet";
  settings = {{"NCCL_IB_GID_INDEX", {"9", "environment"}}};
  EXPECT_EQ(find(check_up(node, settings), "gid-index")->verdict, Verdict::kBad) << "the slot is empty";
  EXPECT_EQ(find(check_up(node, settings), "ports")->verdict, Verdict::kNote);
  const auto reports = decide(node, settings, {}).ports;
  EXPECT_EQ(reports[0].reason, "NCCL uses GID 9, which is not an address of this port");
  EXPECT_FALSE(reports[0].gid);
  init::Policy policy;
  policy.strict = true;
  const auto checks = init::check_up(node, settings, decide(node, settings, policy));
  EXPECT_EQ(find(checks, "refusal")->verdict, Verdict::kBad);
  EXPECT_FALSE(init::is_fit(checks));
}

TEST(Doctor, ListsEveryPortWithItsReason) {
  Inventory node = rails(2);
  node.hcas[1].ports[0].state = "1: DOWN";
  const auto decision = decide(node, {}, {});
  const auto checks = init::check_up(node, {}, decision);
  const std::string text = doctor_text(decision, checks);
  for (const char* part :
       {": fit for RDMA\n", "mlx5_0:1  used ", "mlx5_1:1  not used ", "port state 1: DOWN", "NCCL_IB_HCA==mlx5_0:1\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const auto json = nlohmann::json::parse(doctor_json(decision, checks));
  EXPECT_EQ(json["fit"], true);
  EXPECT_EQ(json["status"], "ok");
  EXPECT_EQ(json["ports"].size(), 2U);
  for (const auto& check : json["checks"]) {
    for (const char* key : {"name", "verdict", "message", "remedy"})
      EXPECT_TRUE(check.contains(key)) << key;
  }
}

TEST(Doctor, PrintsTheOrderOfAttention) {
  const auto decision = decide(rails(1), {}, {});
  const std::vector<Check> checks = {{"ports", Verdict::kGood, "1 of 1 ports"},
                                     {"a", Verdict::kNote, "odd"},
                                     {"b", Verdict::kGood, "fine"},
                                     {"c", Verdict::kSlow, "slow one"},
                                     {"d", Verdict::kBad, "broken"}};
  const auto is_in_order = [](const std::string& text, std::initializer_list<const char*> parts) {
    std::size_t last = 0;
    for (const char* part : parts) {
      const std::size_t at = text.find(part);
      if (at == std::string::npos || at < last) return false;
      last = at;
    }
    return true;
  };
  const auto parts = {"NOT fit", "  ok    1 of 1", "  BAD   broken", "  slow  slow one", "  note  odd"};
  EXPECT_TRUE(is_in_order(doctor_text(decision, checks, false), parts)) << doctor_text(decision, checks, false);
  EXPECT_TRUE(is_in_order(doctor_json(decision, checks), {"ports", "broken", "slow one", "odd", "fine"}));
  EXPECT_EQ(doctor_text(decision, checks, false).find("fine"), std::string::npos);
  EXPECT_NE(doctor_text(decision, checks).find("  ok    fine"), std::string::npos);
  EXPECT_NE(doctor_text(decision, {checks[0], checks[3]}).find(": fit for RDMA, but slow\n"), std::string::npos);
}

TEST(Doctor, HasAtMostTwelveLinesWithoutAFault) {
  const Inventory node = rails(8);
  const auto decision = decide(node, {}, {});
  auto checks = init::check_up(node, {}, decision);
  for (int i = 0; i < 9; ++i)
    checks.push_back({"odd", Verdict::kNote, std::string(200, 'x'), "do this"});
  const std::string text = doctor_text(decision, checks, false);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 12) << text;
  EXPECT_NE(text.find("With --all: "), std::string::npos) << text;
}

TEST(Bootstrap, NotesANetdevThatReachesNoOtherNode) {
  Inventory node = rails(1);
  const auto verdict = [&](const char* name) {
    node.netdevs = {netdev(name, {name == std::string("lo") ? "127.0.0.1" : "10.0.0.1"})};
    return find(check_up(node), "bootstrap")->verdict;
  };
  EXPECT_EQ(verdict("lo"), Verdict::kNote);
  EXPECT_EQ(verdict("docker0"), Verdict::kNote);
  EXPECT_EQ(verdict("eth0"), Verdict::kGood);
}

TEST(RailRoutes, NotesRailsThatReachTheirOwnNetworkOnly) {
  Inventory node = rails(2);
  const auto finds = [&](const Settings& settings = {}) {
    const auto checks = check_up(node, settings);
    const Check* found = find(checks, "rail-routes");
    return found ? std::optional(*found) : std::nullopt;
  };
  for (std::size_t i = 0; i < 2; ++i)
    node.netdevs[i + 1].addresses[0].prefix = 24;
  EXPECT_FALSE(finds()) << "the routes are not known";
  node.routes = {{"default", "eth0"}, {"10.1.0.0/24", "rail0"}};
  EXPECT_FALSE(finds()) << "the routes are not complete";
  node.routes->push_back({"10.1.1.0/24", "rail1", 101});
  ASSERT_TRUE(finds());
  EXPECT_TRUE(finds()->message.starts_with("rail0 has no route to the network of rail1")) << finds()->message;
  EXPECT_FALSE(finds({{"NCCL_CROSS_NIC", {"0", "environment"}}}));
  node.routes->push_back({"0.0.0.0/0", "rail0", 100});
  EXPECT_TRUE(finds()->message.starts_with("rail1 has no route to the network of rail0")) << finds()->message;
  node.routes->push_back({"10.1.0.0/16", "rail1", 101});
  EXPECT_FALSE(finds());
}

TEST(HcaChecks, NoteSharedPortsGuidsTransportsAndHcasBesideEfa) {
  const auto names = [](const Inventory& node, const Settings& settings = {}) {
    std::string text;
    for (const Check& check : check_hcas(node, {}, decide(node, settings, {})))
      text += std::string(check.name) + " ";
    return text;
  };
  Inventory node = rails(3);
  EXPECT_EQ(names(node), "");
  node.hcas[1].physfn = node.hcas[2].physfn = "0000:99:00.0";
  EXPECT_EQ(names(node), "shared-port ") << "two VFs of one PF";
  node.hcas[0].pci = "0000:99:00.0";
  EXPECT_EQ(names(node), "shared-port ") << "the PF, too";
  node.hcas[2].ports[0].state = node.hcas[0].ports[0].state = "1: DOWN";
  EXPECT_EQ(names(node), "") << "one function is used";
  node.hcas[1].node_guid = "0000:0000:0000:0000";
  node.hcas[1].driver = "ionic";
  EXPECT_EQ(names(node), "no-guid ucx-transports ");
  node = rails(2);
  node.hcas[0].driver = "efa";
  EXPECT_EQ(names(node), "");
  node.hcas[1].accessible = false;
  EXPECT_EQ(names(node), "beside-efa ");
}

TEST(Doctor, NamesRdmaPingIfPortsAreUsed) {
  const auto names_ping = [](const Inventory& node) {
    const auto decision = decide(node, {}, {});
    return doctor_text(decision, init::check_up(node, {}, decision))
        .ends_with("rdma-ping tests it between the ranks of a job.\n");
  };
  Inventory node = rails(1);
  EXPECT_TRUE(names_ping(node));
  node.hcas[0].ports[0].state = "1: DOWN";
  EXPECT_FALSE(names_ping(node));
}

TEST(Doctor, NamesAMissingRdmaDeviceOnce) {
  Inventory none;
  none.rdma_error = ENOENT;
  init::Policy policy;
  policy.require = 8;
  const auto decision = decide(none, {}, policy);
  const std::string text = doctor_text(decision, init::check_up(none, {}, decision));
  EXPECT_NE(text.find("no RDMA device"), std::string::npos) << text;
  EXPECT_EQ(text.find("no RDMA device"), text.rfind("no RDMA device")) << text;
}

TEST(Doctor, ReportsThatEqualRailsAreNotUsed) {
  Inventory node = rails(8);
  for (std::size_t i = 0; i < 8; ++i) {
    node.hcas[i].pci = fmt::format("0000:{}0:00.0", i);
    node.hcas[i].device_id = "0x1021";
    if (i >= 4) node.hcas[i].ports[0].state = "1: DOWN";
  }
  const auto decision = decide(node, {}, {});
  const std::string text = doctor_text(decision, init::check_up(node, {}, decision));
  EXPECT_NE(text.find(": fit, but 4 of 8 equal rails are not used\n"), std::string::npos) << text;
}

TEST(Doctor, PrintsASharedRemedyOnceAndWrapsLines) {
  Inventory node = rails(8);
  for (std::size_t i = 1; i < 8; ++i)
    node.hcas[i].ports[0].state = i < 3 ? "1: DOWN" : "2: INIT";
  auto decision = decide(node, {}, {});
  decision.ports[7].remedy = "replace it";
  decision.ports[7].device += std::string(90, 'x');
  decision.kept["NCCL_IB_HCA"] = {
      .value = "mlx5_1,mlx5_2", .source = "environment", .problem = "it is wrong for a reason that takes many words"};
  decision.env = {{"NCCL_IB_HCA", "=" + std::string(100, 'a') + ", b"}};
  const std::string text = doctor_text(decision, {{"x", Verdict::kNote, std::string(73, 'm') + " word", "do this"}});
  for (const char* part :
       {"  mlx5_0:1              used      Ethernet  400 Gb/s  GID 3", "xx:1\n                        not used",
        "\n  6 ports:              remedy: run `ip link set NETDEV up`;", "remedy: replace it\n", "  note  mmm",
        "m\n        word\n        remedy: do this\n", "aaa, b\n",
        "  NCCL_IB_HCA=mlx5_1,mlx5_2\n      (environment): it is wrong"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("remedy: run"), text.rfind("remedy: run")) << text;
  EXPECT_LT(text.find("remedy: replace"), text.find("remedy: run")) << "the remedy of one port follows its row";
  decision.ports[7].remedy = "do this";
  const std::string again = doctor_text(decision, {{"x", Verdict::kBad, "message", "do this"}});
  EXPECT_EQ(again.find("do this"), again.rfind("do this")) << "a check has the remedy\n" << again;
}

TEST(Doctor, PrintsOneRowForPortsThatDifferOnlyInName) {
  Inventory node = rails(4);
  for (std::size_t i = 0; i < 3; ++i)
    node.hcas[i].driver = i < 2 ? "efa" : "mlx5_core";
  node.hcas[3].accessible = false;
  const auto decision = decide(node, {}, {});
  const std::string text = doctor_text(decision, init::check_up(node, {}, decision));
  const std::string table = text.substr(text.find("\nPorts\n"));
  EXPECT_EQ(table.substr(0, table.find("\nExported\n")),
            "\nPorts\n"
            "  mlx5_0:1, mlx5_1:1\n"
            "            not used  Ethernet  400 Gb/s  EFA device: NCCL drives it through\n"
            "            aws-ofi-nccl, not through NCCL_IB_*\n"
            "  mlx5_2:1, mlx5_3:1\n"
            "            not used  Ethernet  400 Gb/s  an EFA device is the fabric of this\n"
            "            machine\n")
      << "mlx5_3 cannot be opened, but opening it would not help";
}

bool shows_a_control(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return (c < 0x20 && c != 0x0a) || c == 0x7f; });
}

TEST(Reports, HaveNoControlCharacters) {
  Inventory node = rails(1);
  const std::string evil = "\x1b]0;pwned\x07";
  node.hcas[0].name += evil;
  node.hcas[0].pci = evil;
  node.hcas[0].ports[0].link_layer = base::Attr<std::string>("Ethernet");
  node.hcas.push_back(node.hcas[0]);
  node.hcas[1].ports[0].state = evil;
  node.hcas[1].ports[0].link_layer = evil;
  node.netdevs[1].name += evil;
  node.gpus = {{evil, 0, std::vector<std::string>{evil}}};
  const Settings settings = {
      {"NCCL_IB_" + evil, {evil, evil}}, {"NCCL_IB_HCA", {evil, evil}}, {"NCCL_SOCKET_IFNAME", {evil, evil}}};
  for (const Settings& one : {Settings{}, settings}) {
    const auto decision = decide(node, one, {});
    EXPECT_FALSE(shows_a_control(topo_text(node, decision)));
    EXPECT_FALSE(shows_a_control(doctor_text(decision, init::check_up(node, one, decision))));
    EXPECT_FALSE(shows_a_control(decision.summary + decision.remedy));
    for (const auto& lines : {lines_of(decision.warnings), decision.notes, lines_of(decision.asides)}) {
      for (const std::string& line : lines)
        EXPECT_FALSE(shows_a_control(line)) << line;
    }
  }
}

TEST(Distance, UsesTheTermsOfNccl) {
  using Path = std::vector<std::string>;
  const Path root = {"0000:00:01.0"};
  const Path same_switch_a = {"0000:00:01.0", "0000:01:00.0", "0000:02:00.0"};
  const Path same_switch_b = {"0000:00:01.0", "0000:01:00.0", "0000:02:01.0"};
  const Path deep = {"0000:00:01.0", "0000:01:00.0", "0000:02:02.0", "0000:05:00.0", "0000:06:00.0"};
  const Path other_port = {"0000:00:03.0"};
  const Path other_bus = {"0000:40:01.0"};
  const Path other_domain = {"0001:00:01.0"};
  const std::tuple<const char*, init::PciPlace, init::PciPlace, Distance> rows[] = {
      {"one port", {"0000:01:00.0", 0, &root}, {"0000:01:00.1", 0, &root}, Distance::kPix},
      {"one switch", {"0000:03:00.0", 0, &same_switch_a}, {"0000:04:00.0", 0, &same_switch_b}, Distance::kPix},
      {"two switches", {"0000:03:00.0", 0, &same_switch_a}, {"0000:07:00.0", 0, &deep}, Distance::kPxb},
      {"two root ports", {"0000:03:00.0", 0, &same_switch_a}, {"0000:09:00.0", 0, &other_port}, Distance::kPhb},
      {"two root buses", {"0000:03:00.0", 0, &same_switch_a}, {"0000:41:00.0", 0, &other_bus}, Distance::kNode},
      {"two domains", {"0000:03:00.0", 0, &root}, {"0001:01:00.0", 0, &other_domain}, Distance::kNode},
      {"two NUMA nodes", {"0000:03:00.0", 0, &same_switch_a}, {"0000:41:00.0", 1, &other_bus}, Distance::kSys},
      {"no paths, one node", {"0000:03:00.0", 0, nullptr}, {"0000:41:00.0", 0, nullptr}, Distance::kNode},
      {"no paths, two nodes", {"0000:03:00.0", 0, nullptr}, {"0000:41:00.0", 1, nullptr}, Distance::kSys},
      {"nothing known", {"0000:03:00.0", -1, nullptr}, {"0000:41:00.0", 0, nullptr}, Distance::kUnknown},
      {"software device", {"", 0, nullptr}, {"0000:41:00.0", 0, nullptr}, Distance::kUnknown},
      {"one switch, no NUMA",
       {"0000:03:00.0", -1, &same_switch_a},
       {"0000:04:00.0", -1, &same_switch_b},
       Distance::kPix}};
  for (const auto& [name, left, right, distance] : rows) {
    SCOPED_TRACE(name);
    EXPECT_EQ(distance_between(left, right), distance);
    EXPECT_EQ(distance_between(right, left), distance) << "the distance is symmetric";
  }
}

TEST(Topo, DrawsNodesAndDistances) {
  Inventory node = rails(2);
  node.hcas[0].pci_path = {{"0000:00:01.0"}};
  node.hcas[1].numa_node = 1;
  node.hcas[1].pci_path = {{"0000:80:01.0"}};
  node.gpus = {{"0000:11:00.0", 0, {{"0000:00:01.0"}}}, {"0000:91:00.0", 1, {{"0000:80:03.0"}}}};
  const std::string text = topo_text(node, decide(node, {}, {}));
  for (const char* part :
       {"┌─ NUMA node 0\n", "┌─ NUMA node 1\n", "HCA  mlx5_0           0000:10:00.0  ● port 1 Ethernet 400 Gb/s",
        "GPU  GPU1             0000:91:00.0", "GPU0       PIX     SYS\n", "GPU1       SYS     PHB\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(topo_text(Inventory{}, {}), "no GPU and no RDMA device\n");
}

TEST(Topo, NamesTheNearestUsedHcasOfEachGpu) {
  using Value = nlohmann::json;
  Inventory node = rails(8);
  node.gpus.emplace();
  for (int i = 0; i < 8; ++i) {
    fabric::Hca& own = node.hcas[static_cast<std::size_t>(i)];
    own.pci = fmt::format("0000:{}1:00.0", i);
    own.pci_path = {{fmt::format("0000:{}0:01.0", i)}};
    own.numa_node = i / 4;
    node.gpus->push_back({fmt::format("0000:{}2:00.0", i), i / 4, own.pci_path});
  }
  const auto json = [&] { return Value::parse(topo_json(node, decide(node, {}, {}))); };
  EXPECT_EQ(json()["sglang"], Value::parse(R"({"0": "mlx5_0", "1": "mlx5_1", "2": "mlx5_2", "3": "mlx5_3",
                                               "4": "mlx5_4", "5": "mlx5_5", "6": "mlx5_6", "7": "mlx5_7"})"));
  for (const std::size_t down : {2U, 3U, 6U, 7U})
    node.hcas[down].ports[0].state = "1: DOWN";
  const auto both = Value::parse(R"({"sglang": {"0": "mlx5_0", "1": "mlx5_1", "2": "mlx5_0,mlx5_1",
                                                "3": "mlx5_0,mlx5_1", "4": "mlx5_4", "5": "mlx5_5",
                                                "6": "mlx5_4,mlx5_5", "7": "mlx5_4,mlx5_5"},
    "mooncake": {"cuda:0": [["mlx5_0"], ["mlx5_1", "mlx5_4", "mlx5_5"]],
                 "cuda:1": [["mlx5_1"], ["mlx5_0", "mlx5_4", "mlx5_5"]],
                 "cuda:2": [["mlx5_0", "mlx5_1"], ["mlx5_4", "mlx5_5"]],
                 "cuda:3": [["mlx5_0", "mlx5_1"], ["mlx5_4", "mlx5_5"]],
                 "cuda:4": [["mlx5_4"], ["mlx5_0", "mlx5_1", "mlx5_5"]],
                 "cuda:5": [["mlx5_5"], ["mlx5_0", "mlx5_1", "mlx5_4"]],
                 "cuda:6": [["mlx5_4", "mlx5_5"], ["mlx5_0", "mlx5_1"]],
                 "cuda:7": [["mlx5_4", "mlx5_5"], ["mlx5_0", "mlx5_1"]],
                 "cpu:0": [["mlx5_0", "mlx5_1"], ["mlx5_4", "mlx5_5"]],
                 "cpu:1": [["mlx5_4", "mlx5_5"], ["mlx5_0", "mlx5_1"]]}})");
  EXPECT_EQ(json(), both) << "a GPU without an HCA of its own has several nearest ones";

  for (fabric::Hca& hca : node.hcas)
    hca.pci_path = std::nullopt, hca.numa_node = std::nullopt;
  node.gpus->resize(1);
  node.gpus->front().numa_node = std::nullopt;
  EXPECT_EQ(json(), Value::parse(R"({"sglang": {"0": "mlx5_0,mlx5_1,mlx5_4,mlx5_5"},
                                     "mooncake": {"cuda:0": [["mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"], []],
                                                  "cpu:0": [[], ["mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"]]}})"))
      << "no distance is known";
  node.gpus = std::nullopt;
  EXPECT_TRUE(json()["sglang"].empty() && json()["sglang"].is_object());
  node.hcas.clear();
  EXPECT_EQ(json(), Value::parse(R"({"sglang": {}, "mooncake": {}})"));
}

}  // namespace
