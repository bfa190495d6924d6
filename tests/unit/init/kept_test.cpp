#include "init/kept.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "init/decision.hpp"
#include "init/doctor.hpp"
#include "support/inventories.hpp"
#include "support/lines_of.hpp"

namespace {

using fabric::Inventory;
using namespace init;
using namespace test_support;

// Values that are already set: their problems, and their effect on the decision.

std::string problem_of_list(const char* value, const Inventory& node) {
  const auto problem = check_hca_list(value, init::find_candidates(node, {}), init::nccl::kNewest);
  return problem ? problem->text : "";
}

TEST(CheckHcaList, ReturnsTheGravestProblem) {
  Inventory node = rails(12);
  node.hcas[2].ports[0].state = "1: DOWN";
  node.hcas[3].accessible = false;
  node.hcas[4].ports[0].gids = {v1(0, "10.1.4.1")};
  const std::pair<const char*, const char*> rows[] = {
      {"=mlx5_0:1,mlx5_1:1", ""},
      {"=mlx5_0", ""},
      {"mlx5_11", ""},
      {"^=mlx5_4", ""},
      {"=mlx5_99", "selects no port of this machine"},
      {"=mlx5_0, mlx5_1", "has the entry ` mlx5_1`, which matches nothing: NCCL trims no blanks"},
      {"= mlx5_0", "has the entry ` mlx5_0`, which matches nothing: NCCL trims no blanks"},
      {"=mlx5_0:0", "has the entry `mlx5_0:0`, which matches nothing: ports count from 1"},
      {"none", "selects no port of this machine"},
      {"^mlx5", "selects no port of this machine"},
      {"=mlx5_2", "selects no usable port"},
      {"=mlx5_3", "selects no usable port"},
      {"=mlx5_2,mlx5_0", ""},
      {"mlx5_1", "also selects mlx5_10, mlx5_11, because NCCL compares prefixes; begin the value with `=`"},
      {"mlx5_1,mlx5_10", "also selects mlx5_11, because NCCL compares prefixes; begin the value with `=`"},
      {"mlx5_1,mlx5_10,mlx5_11", ""},
      {"=mlx5_0,mlx5_4", "selects mlx5_4:1, which cannot be used: only RoCE v1 (or iWARP) GIDs, e.g. index 0"},
      {"mlx5", "selects mlx5_4:1, which cannot be used: only RoCE v1 (or iWARP) GIDs, e.g. index 0"},
      {"^mlx5_1", "also excludes mlx5_10, mlx5_11, because NCCL compares prefixes; begin the value with `^=`"}};
  for (const auto& [value, problem] : rows)
    EXPECT_EQ(problem_of_list(value, node), problem) << value;
  EXPECT_EQ(problem_of_list("=mlx5_0", Inventory{}), "selects no port of this machine");
}

TEST(CheckGidIndex, DescribesTheSlot) {
  Inventory node = rails(2);
  node.hcas[0].ports[0].gids.push_back(v2(5, "192.168.9.9"));
  node.hcas[0].ports[0].gids.push_back(test_support::unreadable(6, "10.1.0.1", EINVAL));
  const auto candidates = init::find_candidates(node, {});
  const auto problem = [&](long index) {
    bool unknown = false;
    const auto text = check_gid_index(index, {&candidates[0], &candidates[1]}, unknown);
    EXPECT_FALSE(unknown);
    return text ? text->text : "";
  };
  const std::string end = ", not a RoCE v2 address of this network namespace";
  EXPECT_EQ(problem(3), "");
  EXPECT_EQ(problem(0), "GID 0 of mlx5_0:1 is fe80::a288:c2ff:fe10:1 (IB/RoCE v1)" + end);
  EXPECT_EQ(problem(5), "GID 5 of mlx5_0:1 is 192.168.9.9 (RoCE v2)" + end);
  EXPECT_EQ(problem(6), "GID 6 of mlx5_0:1 is 10.1.0.1 (type unreadable)" + end);
  EXPECT_EQ(problem(7), "GID 7 of mlx5_0:1 is empty" + end);
  node.hcas[0].ports[0].gids_complete = false;
  bool unknown = false;
  EXPECT_FALSE(check_gid_index(9, {&candidates[0]}, unknown));
  EXPECT_TRUE(unknown) << "the unread part of the table decides";
}

TEST(ParseUcxIndex, ReadsDecimalDigitsAtTheBeginning) {
  EXPECT_EQ(init::parse_ucx_index("3"), 3);
  EXPECT_EQ(init::parse_ucx_index(" 3"), 3);
  EXPECT_EQ(init::parse_ucx_index("3,5"), 3);
  EXPECT_EQ(init::parse_ucx_index("0x3"), 0);
  EXPECT_EQ(init::parse_ucx_index("010"), 10);
  EXPECT_EQ(init::parse_ucx_index("Auto"), -1);
  EXPECT_EQ(init::parse_ucx_index("-2"), -1) << "the number that UCX uses for `auto`";
  for (const char* highest : {"-1", "inf", "99999999999999999999"})
    EXPECT_EQ(init::parse_ucx_index(highest), init::kHighestUcxIndex) << highest;
  EXPECT_EQ(init::parse_ucx_index("x3"), std::nullopt);
}

Settings environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
  Settings settings;
  for (const auto& [name, value] : variables)
    settings[name] = {value, "environment"};
  return settings;
}

TEST(FindSetting, IgnoresAnEmptyValue) {
  const Settings settings = environment({{"NCCL_A", ""}, {"NCCL_B", "1"}});
  EXPECT_EQ(find_setting(settings, "NCCL_A"), nullptr);
  EXPECT_EQ(find_setting(settings, "NCCL_C"), nullptr);
  EXPECT_EQ(find_setting(settings, "NCCL_B")->value, "1");
}

TEST(CheckNumber, NamesTheRangeAndTheNumberThatArrives) {
  const auto problem = [](std::string_view name, const char* value, std::optional<nccl::Version> version = {}) {
    const auto text = check_number(*find_number(name), value, version);
    return text ? text->text : "";
  };
  const std::string_view retries = "NCCL_IB_RETRY_CNT";
  EXPECT_EQ(problem(retries, "7"), "");
  EXPECT_EQ(problem(retries, "10"),
            "0 to 7 is the range: mlx5 keeps 3 bits, so that 10 is 2, and other drivers may refuse it");
  EXPECT_EQ(problem("NCCL_IB_TIMEOUT", "276"), "") << "NCCL stores it in a byte";
  EXPECT_EQ(problem("NCCL_IB_TIMEOUT", "auto"), "is no number, and is read as 0");
  EXPECT_EQ(problem("NCCL_IB_QPS_PER_CONNECTION", "0"), "1 to 128 is the range, and with 0 no connection works");
  EXPECT_EQ(problem("NCCL_IB_QPS_PER_CONNECTION", "129"), "1 to 128 is the range, and with 129 no connection works");
  for (const char* fine : {"0", "106", "255", "0xff", "-1"})
    EXPECT_EQ(problem("NCCL_IB_TC", fine), "") << fine;
  EXPECT_EQ(problem("NCCL_IB_TC", "416"), "-1 to 255 is the range: only 8 bits of it are sent, 160");
  EXPECT_EQ(problem("NCCL_IB_FIFO_TC", "-2"), "-1 to 255 is the range: only 8 bits of it are sent, 254");
  EXPECT_EQ(problem("NCCL_IB_TC", "-1", nccl::Version{2, 22, 3}), "NCCL before 2.26 uses 255 for -1");
  EXPECT_EQ(problem("NCCL_IB_SL", "-1", nccl::Version{2, 26, 2}), "");
  EXPECT_EQ(problem("NCCL_IB_SL", "77"),
            "-1 to 15 is the range: mlx5 keeps 4 bits, so that 77 is 13, and other drivers may refuse it");
  EXPECT_EQ(problem("UCX_IB_SL", "auto"), "");
  EXPECT_NE(problem("UCX_IB_SL", "16"), "");
  EXPECT_EQ(neutral_value("NCCL_IB_TIMEOUT", false, {2, 13, 4}), "14");
  EXPECT_EQ(neutral_value("NCCL_IB_TIMEOUT", false, {2, 22, 3}), "18");
  EXPECT_EQ(neutral_value("NCCL_IB_TIMEOUT", false, {2, 23, 4}), "20");
}

// ---- the effect on the decision

std::string exported(const Decision& decision, const char* name) {
  for (const auto& [known, value] : decision.env)
    if (known == name) return value;
  return "(unset)";
}

// Two rails with different indices: 3 and 5.
Inventory uneven() {
  Inventory node = rails(2);
  node.hcas[1].ports[0].gids = {v1(0, "fe80::a288:c2ff:fe10:2"), v1(4, "10.1.1.1"), v2(5, "10.1.1.1")};
  return node;
}

const Policy kOverriding = [] {
  Policy policy;
  policy.override_wrong = true;
  return policy;
}();

TEST(KeptValues, AreKeptWithoutAWarningIfRight) {
  const auto decision = decide(rails(2), environment({{"NCCL_IB_HCA", "=mlx5_1"}, {"NCCL_IB_GID_INDEX", "3"}}), {});
  EXPECT_EQ(decision.status, Status::kOk);
  EXPECT_EQ(exported(decision, "NCCL_IB_HCA"), "(unset)");
  EXPECT_EQ(exported(decision, "NCCL_IB_GID_INDEX"), "(unset)");
  EXPECT_EQ(exported(decision, "UCX_NET_DEVICES"), "mlx5_1:1,rail1") << "the kept list defines the ports";
  EXPECT_FALSE(decision.kept.at("NCCL_IB_HCA").problem);
  EXPECT_EQ(decision.kept.at("NCCL_IB_GID_INDEX").source, "environment");
}

TEST(KeptValues, OfTheNodeAreCheckedAndNeverReplaced) {
  Inventory node = rails(2);
  for (fabric::Hca& hca : node.hcas)
    hca.ports[0].gids[3].index = 7;
  Settings settings;
  settings = with_policy(std::move(settings), read_node_values("NCCL_IB_GID_INDEX=3;NCCL_IB_TC=106"));
  const auto decision = decide(node, settings, kOverriding);
  EXPECT_EQ(lines_of(decision.warnings),
            std::vector<std::string>{"NCCL_IB_GID_INDEX=3 (config.json of the node): GID 3 of mlx5_0:1 is empty, not a "
                                     "RoCE v2 address of this network namespace; kept, correct its \"env\""});
  EXPECT_EQ(exported(decision, "NCCL_IB_GID_INDEX"), "(unset)") << "resolve() exports the node's value";
}

TEST(KeptValues, WarnAboutAWrongIndexAndOverrideReplacesIt) {
  Inventory node = rails(2);
  for (fabric::Hca& hca : node.hcas)
    hca.ports[0].gids[3].index = 7;
  const Settings settings = environment({{"NCCL_IB_GID_INDEX", "3"}});
  auto decision = decide(node, settings, {});
  EXPECT_EQ(decision.status, Status::kOkWarn);
  EXPECT_EQ(lines_of(decision.warnings),
            std::vector<std::string>{"NCCL_IB_GID_INDEX=3 (environment): GID 3 of mlx5_0:1 is empty, not a RoCE v2 "
                                     "address of this network namespace; kept, --override replaces it"});
  EXPECT_EQ(exported(decision, "NCCL_IB_GID_INDEX"), "(unset)");
  EXPECT_FALSE(decision.refusal);

  Policy strict;
  strict.strict = true;
  EXPECT_TRUE(decide(node, settings, strict).refusal);

  decision = decide(node, settings, kOverriding);
  EXPECT_EQ(decision.status, Status::kOk);
  EXPECT_EQ(exported(decision, "NCCL_IB_GID_INDEX"), "7");
  EXPECT_TRUE(decision.kept.empty());

  strict.override_wrong = true;
  EXPECT_FALSE(decide(node, settings, strict).refusal) << "a replaced value causes no refusal";
}

TEST(KeptValues, AreReplacedByOverrideIfWrong) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"NCCL_IB_GID_INDEX", "3", "-1"},
      {"NCCL_IB_GID_INDEX", "auto", "-1"},
      {"NCCL_IB_ADDR_RANGE", "172.31.0.0/16", "0.0.0.0/0"},
      {"NCCL_IB_ROCE_VERSION_NUM", "1", "2"},
      {"NCCL_IB_ADDR_FAMILY", "AF_INET6", "AF_INET"},
      {"UCX_IB_GID_INDEX", "9", "auto"},
      {"NVSHMEM_IB_GID_INDEX", "9", "-1"},
      {"NCCL_IB_HCA", "=mlx5_0, mlx5_1", "=mlx5_0:1,mlx5_1:1"}};
  for (const auto& [name, value, replaced_by] : rows) {
    SCOPED_TRACE(fmt::format("{}={}", name, value));
    const Settings settings = environment({{name, value}});
    const auto kept = decide(uneven(), settings, {});
    ASSERT_TRUE(kept.kept.contains(name));
    EXPECT_TRUE(kept.kept.at(name).problem);
    EXPECT_NE(kept.status, Status::kOk);
    EXPECT_EQ(exported(kept, name), "(unset)");
    const auto replaced = decide(uneven(), settings, kOverriding);
    EXPECT_EQ(exported(replaced, name), replaced_by);
    EXPECT_FALSE(replaced.kept.contains(name));
  }
}

TEST(KeptValues, HaveNoProblemIfNcclChoosesRight) {
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"NCCL_IB_ADDR_RANGE", "10.1.0.0/16"},
                                                        {"NCCL_IB_ROCE_VERSION_NUM", "2"},
                                                        {"NCCL_IB_ADDR_FAMILY", "AF_INET"},
                                                        {"NCCL_IB_GID_INDEX", "-1"},
                                                        {"UCX_IB_GID_INDEX", "auto"}}) {
    SCOPED_TRACE(name);
    const auto decision = decide(uneven(), environment({{name, value}}), {});
    EXPECT_FALSE(decision.kept.at(name).problem);
    EXPECT_EQ(decision.ports.size(), 2U);
    EXPECT_TRUE(decision.ports[0].used && decision.ports[1].used);
  }
}

TEST(KeptValues, AreNotReplacedOutsideOfExport) {
  Policy policy = kOverriding;
  policy.exports = {};
  const auto decision = decide(uneven(), environment({{"NCCL_IB_GID_INDEX", "9"}}), policy);
  EXPECT_TRUE(decision.env.empty());
  ASSERT_TRUE(decision.kept.contains("NCCL_IB_GID_INDEX"));
  EXPECT_EQ(decision.status, Status::kOkWarn);
}

TEST(KeptValues, KeepMinusOneWithAnExportedRange) {
  Inventory node = rails(2);  // equal indices, but a foreign address in front of each
  for (fabric::Hca& hca : node.hcas)
    hca.ports[0].gids = {
        v1(0, "fe80::9"), v2(1, "192.168.9.9"),
        v2(3, hca.ports[0].gids[3].gid == test_support::address("10.1.0.1") ? "10.1.0.1" : "10.1.1.1")};
  const auto decision = decide(node, environment({{"NCCL_IB_GID_INDEX", "-1"}}), {});
  EXPECT_NE(decision.status, Status::kNone);
  EXPECT_EQ(exported(decision, "NCCL_IB_ADDR_RANGE"), "10.1.0.0/23") << "with this range NCCL chooses right";
  EXPECT_TRUE(decision.ports[0].used && decision.ports[1].used);
}

// Returns the warning about P_Keys, empty if there is none.
std::string about_pkeys(const Inventory& node, const Settings& settings = {}) {
  for (const Check& check : decide(node, settings, {}).warnings)
    if (check.name == "pkey") return line_of(check);
  return {};
}

TEST(Pkeys, WarnIfTheIndexHasNoFullMember) {
  Inventory node = rails(2);
  for (fabric::Hca& hca : node.hcas)
    hca.ports[0] = test_support::infiniband_port();
  auto& first = node.hcas[0].ports[0].pkeys;
  auto& second = node.hcas[1].ports[0].pkeys;
  EXPECT_EQ(about_pkeys(node), "") << "not known";
  first = second = {"0xffff"};
  EXPECT_EQ(about_pkeys(node), "");
  first = second = {"0x7fff", "0x8001"};
  EXPECT_EQ(about_pkeys(node),
            "mlx5_0:1 has the P_Key 0x7fff at index 0: it is a limited member there, and two limited members cannot "
            "connect; remedy: set NCCL_IB_PKEY to 1 (0x8001)");
  EXPECT_EQ(about_pkeys(node, environment({{"NCCL_IB_PKEY", "1"}})), "");
  EXPECT_NE(about_pkeys(node, environment({{"NCCL_IB_PKEY", "5"}})).find("mlx5_0:1 has no P_Key at index 5"),
            std::string::npos);
  second = {"0x7fff", "0x0000", "0x8001"};
  EXPECT_NE(
      about_pkeys(node).find("one NCCL_IB_PKEY does not fit all ports (mlx5_0:1 1 (0x8001), mlx5_1:1 2 (0x8001))"),
      std::string::npos)
      << about_pkeys(node);
  first = {"0x7fff", "0x8001", "0x8002"};
  second = {"0x7fff", "0x0000", "0x8002"};
  EXPECT_NE(about_pkeys(node).find("set NCCL_IB_PKEY to 2 (0x8002)"), std::string::npos) << about_pkeys(node);
  second = {"0x7fff", "0x8003"};
  EXPECT_NE(about_pkeys(node).find("different partitions (mlx5_0:1 1 (0x8001), mlx5_1:1 1 (0x8003))"),
            std::string::npos)
      << about_pkeys(node);
  first = second = {"0xffff", "0x8001"};
  const auto key = about_pkeys(node, environment({{"NCCL_IB_PKEY", "0x8001"}}));
  EXPECT_NE(key.find("set NCCL_IB_PKEY to 1 (0x8001)"), std::string::npos) << "the key in place of its index: " << key;
  second = {"0x7fff"};
  EXPECT_NE(about_pkeys(node).find("make the ports full members"), std::string::npos) << about_pkeys(node);
  const auto roce = about_pkeys(rails(1), environment({{"NCCL_IB_PKEY", "1"}}));
  EXPECT_NE(roce.find("mlx5_0:1 is RoCE and has one P_Key, at index 0: no connection works"), std::string::npos)
      << roce;
}

TEST(Pkeys, AreReplacedByAnIndexThatFitsAllPorts) {
  Inventory node = rails(3);
  for (fabric::Hca& hca : node.hcas) {
    hca.ports[0] = test_support::infiniband_port();
    hca.ports[0].pkeys = {"0x7fff", "0x8001"};
  }
  Policy policy;
  policy.override_wrong = true;
  const Settings wrong = environment({{"NCCL_IB_PKEY", "5"}});
  EXPECT_EQ(exported(decide(node, wrong, policy), "NCCL_IB_PKEY"), "1");
  node.hcas[1].ports[0].pkeys = {"0x7fff", "0x0000", "0x8001"};
  const auto decision = decide(node, wrong, policy);
  EXPECT_EQ(exported(decision, "NCCL_IB_PKEY"), "(unset)");
  EXPECT_EQ(decision.kept.at("NCCL_IB_PKEY").effect, Verdict::kBad);
  // The value names an index that only one port has. No port is left out because of it.
  node.hcas[1].ports[0].pkeys = {"0xffff", "0x0000", "0x8001"};
  node.hcas[0].ports[0].pkeys = node.hcas[2].ports[0].pkeys = {"0xffff"};
  const auto all = decide(node, environment({{"NCCL_IB_PKEY", "2"}}), policy);
  EXPECT_EQ(exported(all, "NCCL_IB_HCA"), "=mlx5_0:1,mlx5_1:1,mlx5_2:1");
  EXPECT_EQ(exported(all, "NCCL_IB_PKEY"), "0");
}

TEST(KeptValues, AreReplacedIfEmptyAndReportedIfUnchecked) {
  const auto decision = decide(rails(1),
                               environment({{"NCCL_IB_HCA", ""},
                                            {"NCCL_IB_GID_INDEX", ""},
                                            {"NCCL_IB_TC", "106"},
                                            {"NCCL_SOCKET_IFNAME", "eth0"},
                                            {"NCCL_DEBUG", "INFO"},
                                            {"NCCL_IB_ROCE_VERSION_NUM", "1"}}),
                               {});
  EXPECT_EQ(exported(decision, "NCCL_IB_HCA"), "=mlx5_0:1");
  EXPECT_EQ(exported(decision, "NCCL_IB_GID_INDEX"), "3") << "with an exported index the rules have no effect";
  EXPECT_TRUE(decision.kept.contains("NCCL_IB_TC"));
  EXPECT_TRUE(decision.kept.contains("NCCL_SOCKET_IFNAME"));
  EXPECT_FALSE(decision.kept.contains("NCCL_DEBUG"));
  EXPECT_EQ(decision.status, Status::kOk);
}

TEST(Decision, WarnsIfTheNcclOfTheImageNeedsAnIndex) {
  const auto warned = decide(uneven(), environment({{"NCCL_VERSION", "2.20.5-1"}}), {});
  ASSERT_EQ(warned.warnings.size(), 2U);
  EXPECT_NE(warned.warnings[1].message.find("NCCL 2.20.5 (NCCL_VERSION)"), std::string::npos);
  Policy policy;
  policy.nccl_version = init::nccl::Version{2, 27, 0};
  EXPECT_EQ(decide(uneven(), environment({{"NCCL_VERSION", "2.20.5-1"}}), policy).warnings.size(), 1U)
      << "--nccl-version overrides it";
  EXPECT_EQ(decide(rails(2), environment({{"NCCL_VERSION", "2.18.1"}}), {}).status, Status::kOk)
      << "an explicit index is right for every version";
  EXPECT_EQ(decide(uneven(), environment({{"NCCL_VERSION", "garbage"}}), {}).warnings.size(), 1U);
}

TEST(Decision, CountsForRequireBeforeTheChoice) {
  Inventory node = rails(3);
  node.hcas[2].ports[0].rate = "25 Gb/sec (1X EDR)";
  Policy policy;
  policy.require = 3;
  EXPECT_FALSE(decide(node, {}, policy).refusal) << "the slow HCA counts although it is not chosen";
  policy.require = 4;
  EXPECT_EQ(decide(node, {}, policy).refusal, "--require 4: only 3 HCAs with a usable port: no other HCAs here");
  node.hcas[1].accessible = false;
  policy.require = 3;
  EXPECT_EQ(decide(node, {}, policy).refusal,
            "--require 3: only 2 HCAs with a usable port: mlx5_1:1: no device node /dev/infiniband/uverbs1 here");
  policy.require = 1;
  Inventory none;
  none.rdma_error = ENOENT;
  EXPECT_EQ(decide(none, {}, policy).refusal,
            "--require 1: only 0 HCAs with a usable port: no RDMA device in /sys/class/infiniband");
}

// Values for libraries other than NCCL that are already set.

// Returns an empty text if no problem was found.
std::string problem(const char* name, const char* value) {
  fabric::Inventory node = test_support::rails(2);
  node.hcas[1].ports[0].state = "1: DOWN";
  const init::Settings settings = {{name, {value, "environment"}}};
  const auto checks = init::check_other_values(node, settings, {}, init::decide(node, settings, {}));
  if (checks.empty()) return "";
  EXPECT_NE(checks[0].remedy.find(name), std::string::npos);
  return checks[0].message;
}

TEST(OtherValues, HaveOneProblemEach) {
  // `part` is empty where the value is right.
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"UCX_NET_DEVICES", "mlx5_0:1,eth0", ""},
      {"UCX_NET_DEVICES", "all", ""},
      {"UCX_NET_DEVICES", "^mlx5_1:1", ""},
      {"UCX_NET_DEVICES", "mlx5_[0-3]:1", ""},
      {"UCX_NET_DEVICES", "mlx5_7:1",
       "UCX_NET_DEVICES=mlx5_7:1 (environment): names mlx5_7:1, which does not exist here"},
      {"UCX_NET_DEVICES", "mlx5_0", "without its port: write `mlx5_0:1`"},
      {"UCX_NET_DEVICES", "mlx5_1:1", "names mlx5_1:1, which cannot be used"},
      {"UCX_NET_DEVICES", "mlx5_0:2", "names mlx5_0:2, which does not exist"},
      {"NVSHMEM_HCA_LIST", "mlx5_0:1", ""},
      {"NVSHMEM_HCA_LIST", "=mlx5_0:1", "names =mlx5_0:1, which does not exist"},
      {"MSCCLPP_HCA_DEVICES", "mlx5_0", ""},
      {"MSCCLPP_HCA_DEVICES", "mlx5_0:1", "which does not exist here"},
      {"MC_TE_FILTERS", " mlx5_0 , ", ""},
      {"MC_TE_FILTERS", "mlx5_9", "which does not exist"},
      {"UCCL_IB_HCA", "=mlx5_0", ""},
      {"UCCL_IB_HCA", "=mlx5_9", "selects no port"},
      {"MSCCLPP_IB_GID_INDEX", "3", ""},
      {"MSCCLPP_IB_GID_INDEX", "2", "not a RoCE v2 address"},
      {"MC_GID_INDEX", "0", "not a RoCE v2 address"},
      {"MC_GID_INDEX", "words", ""},
      {"UCCL_IB_GID_INDEX", "-1", ""},
      {"FI_VERBS_GID_IDX", "200", "is empty"}};
  for (const auto& [name, value, part] : rows) {
    const std::string found = problem(name, value);
    EXPECT_EQ(found.empty(), *part == '\0') << name << "=" << value << ": " << found;
    EXPECT_NE(found.find(part), std::string::npos) << name << "=" << value << ": " << found;
  }
}

}  // namespace
