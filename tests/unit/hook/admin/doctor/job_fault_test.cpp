#include "hook/admin/doctor/job_fault.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "support/inventories.hpp"

namespace hook {
namespace {

fabric::KernelFacts healthy_kernel() {
  fabric::KernelFacts facts;
  facts.uverbs = true;
  facts.rdma_cm = true;
  for (unsigned i = 0; i < 2; ++i)
    facts.nodes.push_back({fmt::format("/dev/infiniband/uverbs{}", i), "231:0", fabric::SeenNode{true, "231:0", 0666}});
  return facts;
}

std::string reason_of(const fabric::KernelFacts& facts, const fabric::Inventory& inventory, bool hcas_known = true,
                      const std::set<std::string>& excused = {}) {
  Config config;
  config.pools.emplace_back().name = "rails";
  EXPECT_FALSE(job_fault(facts, inventory, {}, hcas_known)) << "without pools";
  const auto fault = job_fault(facts, inventory, config, hcas_known, excused);
  return fault ? drain_reason(*fault) : "";
}

TEST(JobFault, HealthyNodeAndWarningsAreNone) {
  EXPECT_EQ(reason_of(healthy_kernel(), test_support::rails(2)), "");
  fabric::KernelFacts facts = healthy_kernel();
  facts.rdma_cm = false;
  facts.nodes[0].seen = fabric::SeenNode{true, "231:0", 0600};
  facts.nodes.push_back({"/dev/infiniband/rdma_cm", "10:122", base::Unreadable{ENOENT}});
  auto inventory = test_support::rails(2);
  inventory.hcas[0].ports[0].state = "1: DOWN";
  EXPECT_EQ(reason_of(facts, inventory), "");
}

TEST(JobFault, UnknownIsNone) {
  fabric::KernelFacts facts = healthy_kernel();
  facts.uverbs = base::Unreadable{EACCES};
  facts.nodes[0].seen = base::Unreadable{EPERM};
  auto inventory = test_support::rails(2);
  EXPECT_EQ(reason_of(facts, inventory), "");
  for (fabric::Hca& hca : inventory.hcas)
    hca.ports[0].state = "1: DOWN";
  EXPECT_NE(reason_of(facts, inventory), "");
  EXPECT_EQ(reason_of(facts, inventory, false), "");
}

TEST(JobFault, HcaCanBeInContainer) {
  fabric::KernelFacts facts = healthy_kernel();
  fabric::Inventory inventory;
  inventory.netns_mode = fabric::NetnsMode::kExclusive;
  facts.half_driven = {{"0000:03:00.0", "ice", "irdma", false, true},
                       {"0000:04:00.0", "mlx4_core", "mlx4_ib", true, false}};
  EXPECT_FALSE(may_hide_hca(facts, inventory));
  facts.half_driven.push_back({"0000:05:00.0", "mlx5_core", "mlx5_ib", true, true});
  EXPECT_TRUE(may_hide_hca(facts, inventory));
  facts.half_driven.back().loaded = base::Unreadable{EACCES};
  EXPECT_TRUE(may_hide_hca(facts, inventory));
  inventory.netns_mode = fabric::NetnsMode::kShared;
  EXPECT_FALSE(may_hide_hca(facts, inventory));
}

TEST(JobFault, ContainerCanHaveClosedPort) {
  auto inventory = test_support::rails(2);
  const HcaDevices devices = {{"mlx5_0", "0000:0c:00.0"}, {"mlx5_1", "0000:0d:00.0"}};
  const auto closed = [&](const char* phys_state, const GrantedHcas& granted) {
    for (fabric::Hca& hca : inventory.hcas) {
      hca.ports[0].state = "1: DOWN";
      hca.ports[0].phys_state = phys_state;
    }
    return may_be_closed_by_containers(inventory, granted, devices);
  };
  using Ports = std::set<std::string>;
  EXPECT_EQ(closed("3: Disabled", {}), Ports()) << "no container has the HCAs";
  EXPECT_EQ(closed("3: Disabled", {{"mlx5_1"}, {}, true}), Ports{"mlx5_1:1"});
  EXPECT_EQ(closed("3: Disabled", {{"old_name"}, {"0000:0d:00.0"}, true}), Ports{"mlx5_1:1"}) << "renamed after it";
  EXPECT_EQ(closed("3: Disabled", {{}, {}, false}), (Ports{"mlx5_0:1", "mlx5_1:1"})) << "the ledger cannot be read";
  EXPECT_EQ(closed("3: Disabled", {{"mlx5_7"}, {"0000:ff:00.0"}, true}), Ports());
  EXPECT_EQ(closed("2: Polling", {{"mlx5_0", "mlx5_1"}, {}, true}), Ports()) << "a broken cable";
  EXPECT_EQ(closed("2: Polling", {{}, {}, false}), Ports());
  inventory = test_support::rails(2);
  EXPECT_EQ(may_be_closed_by_containers(inventory, {{"mlx5_0", "mlx5_1"}, {}, true}, devices), Ports()) << "ACTIVE";
}

TEST(JobFault, PortOfContainerExcusesNoOtherPort) {
  auto inventory = test_support::rails(3);
  for (fabric::Hca& hca : inventory.hcas)
    hca.ports[0].state = "1: DOWN";
  const auto excusing = [&](const std::set<std::string>& ports) {
    return reason_of(healthy_kernel(), inventory, true, ports);
  };
  EXPECT_EQ(excusing({"mlx5_0:1", "mlx5_1:1", "mlx5_2:1"}), "");
  EXPECT_TRUE(excusing({"mlx5_0:1"}).starts_with("rdma: mlx5_1:1 and 1 more: is DOWN")) << excusing({"mlx5_0:1"});
  inventory.hcas[1].ports[0].state = "4: ACTIVE";
  EXPECT_EQ(excusing({"mlx5_0:1"}), "") << "a job can use mlx5_1";
}

TEST(JobFault, NamesModuleNodeAndPorts) {
  fabric::KernelFacts facts = healthy_kernel();
  facts.uverbs = false;
  EXPECT_EQ(reason_of(facts, test_support::rails(2)),
            "rdma: ib_uverbs: not loaded: no HCA has a device node; remedy: run 'modprobe ib_uverbs'");
  facts = healthy_kernel();
  for (fabric::ExpectedNode& node : facts.nodes)
    node.seen = base::Unreadable{ENOENT};
  const auto reason = reason_of(facts, test_support::rails(2));
  EXPECT_TRUE(reason.starts_with("rdma: /dev/infiniband/uverbs0 and 1 more: missing")) << reason;
  auto inventory = test_support::rails(2);
  for (fabric::Hca& hca : inventory.hcas)
    hca.ports[0].state = "1: DOWN";
  EXPECT_TRUE(reason_of(healthy_kernel(), inventory).starts_with("rdma: mlx5_0:1 and 1 more: is DOWN, not ACTIVE"));
}

TEST(JobFault, FullGidTableIsNone) {
  auto inventory = test_support::rails(2);
  for (fabric::Hca& hca : inventory.hcas)
    hca.ports[0].gid_tbl_len = 1;  // as of iWARP HCAs
  EXPECT_EQ(reason_of(healthy_kernel(), inventory), "");
}

TEST(JobFault, NodeWithoutHcaNeedsNicThatAlwaysHasRdma) {
  const fabric::KernelFacts none;
  EXPECT_EQ(reason_of(none, {}), "");
  fabric::KernelFacts facts;
  facts.half_driven = {{"0000:01:00.0", "ice", "irdma", false, false},
                       {"0000:02:00.0", "", "mlx5_core", false},
                       {"0000:03:00.0", "mlx5_core", "mlx5_ib", true, base::Unreadable{EACCES}},
                       {"0000:04:00.0", "mlx4_core", "mlx4_ib", true, true}};
  EXPECT_EQ(reason_of(facts, {}), "");
  facts.half_driven.push_back({"0000:05:00.0", "mlx5_core", "mlx5_ib", true, false});
  EXPECT_EQ(reason_of(facts, {}),
            "rdma: mlx5_ib: not loaded: 0000:05:00.0 (mlx5_core) has no HCA; remedy: run 'modprobe mlx5_ib' and add it "
            "to /etc/modules-load.d/rdma.conf");
  fabric::KernelFacts beside = healthy_kernel();
  beside.half_driven = facts.half_driven;
  EXPECT_EQ(reason_of(beside, test_support::rails(2)), "");
}

TEST(JobFault, ReasonIsOneShortLineOfAscii) {
  const std::string reason =
      drain_reason({Grade::kBroken, "mlx5_\n\x1b[31m\u202e`id`", std::string(300, 'x'), "reboot"});
  EXPECT_EQ(reason.size(), kLongestReason);
  EXPECT_TRUE(reason.starts_with("rdma: mlx5_\?\?[31m\?\?\?'id': xxx")) << reason;
  EXPECT_TRUE(reason.ends_with("x...")) << reason;
}

}  // namespace
}  // namespace hook
