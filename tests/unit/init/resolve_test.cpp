#include "init/resolve.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

namespace fs = std::filesystem;
using namespace fabric;
using namespace init;
using namespace test_support;

// Reading, waiting and deciding together, on file trees that change during the wait.

constexpr const char* kGid = "sys/class/infiniband/mlx5_0/ports/1/gids/3";

class Resolve : public testing::Test {
 protected:
  Resolve() {
    options_.command = init::Command::kEnv;
    options_.root = root_.path();
    options_.wait_seconds = 30;  // longer than any test: every pending resource appears
  }

  init::Resolved resolve(std::vector<const char*> environment = {}) {
    environment.push_back(nullptr);
    auto resolved = init::resolve(options_, environment.data(), init::Log(init::LogLevel::kQuiet));
    EXPECT_TRUE(resolved);
    return std::move(resolved).value();
  }

  // Runs the change in another process, after a short delay.
  void soon(const std::function<void()>& change) {
    child_ = fork();
    if (child_ == 0) {
      usleep(100000);
      change();
      _exit(0);
    }
  }

  void TearDown() override {
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }

  TempDir root_;
  Options options_;
  pid_t child_ = -1;
};

TEST_F(Resolve, WaitsForALateGid) {
  lay_out(rails(2), root_.path());
  const std::string gid = fs::canonical(root_ / kGid);
  const std::string aside = root_ / "gid";
  fs::rename(gid, aside);
  options_.policy.gids.cidrs = {*fabric::parse_cidr("10.1.0.0/16")};
  soon([&] { fs::rename(aside, gid); });
  const auto resolved = resolve();
  EXPECT_EQ(resolved.decision.status, Status::kOk);
  EXPECT_TRUE(resolved.decision.ports.at(0).used);
  EXPECT_EQ(resolved.decision.ports.at(0).gid_index, 3U);
}

TEST_F(Resolve, WaitsForALateHcaIfRequired) {
  lay_out(rails(2), root_.path());
  const std::string link = root_ / "sys/class/infiniband/mlx5_1";
  const std::string aside = root_ / "sys/class/mlx5_1";
  fs::rename(link, aside);
  options_.policy.require = 2;
  soon([&] { fs::rename(aside, link); });
  EXPECT_FALSE(resolve().decision.refusal);
}

TEST_F(Resolve, NamesTheResourceThatNeverAppears) {
  lay_out(rails(1), root_.path());
  options_.policy.require = 2;
  options_.wait_seconds = 0.05;
  EXPECT_TRUE(resolve().decision.refusal);
}

// A wait of thirty seconds would be visible: no resource is pending here.
TEST_F(Resolve, DoesNotWaitIfNothingIsPending) {
  lay_out(rails(2), root_.path());
  fs::remove(root_ / kGid);
  EXPECT_EQ(resolve().decision.status, Status::kOk);
  options_.policy.require = 3;
  options_.wait_seconds = 0;
  EXPECT_TRUE(resolve().decision.refusal);
}

TEST_F(Resolve, ReadsCompleteTablesIfTheDecisionNeedsThem) {
  lay_out(rails(2), root_.path(), {.full = true});
  const auto resolved = resolve({"NCCL_IB_GID_INDEX=200"});
  EXPECT_EQ(resolved.decision.kept.at("NCCL_IB_GID_INDEX").problem,
            "GID 200 of mlx5_0:1 is empty, not a RoCE v2 address of this network namespace");
  EXPECT_FALSE(resolved.decision.needs_full && !resolved.inventory.hcas[0].ports[0].gids_complete);
}

TEST_F(Resolve, ReadsConfFilesBelowTheRoot) {
  lay_out(rails(2), root_.path());
  test_support::write_file(root_ / "etc/nccl.conf", "NCCL_IB_HCA==mlx5_1\n");
  test_support::write_file(root_ / "etc/other.conf", "NCCL_IB_HCA==mlx5_0\n");
  EXPECT_EQ(resolve().decision.kept.at("NCCL_IB_HCA").source, "/etc/nccl.conf");
  EXPECT_EQ(resolve({"NCCL_CONF_FILE=/etc/other.conf"}).decision.kept.at("NCCL_IB_HCA").source, "/etc/other.conf");
  EXPECT_EQ(resolve({"NCCL_IB_HCA==mlx5_1"}).decision.kept.at("NCCL_IB_HCA").source, "environment");
}

TEST_F(Resolve, ReadsTheFilesOfRcclAfterThoseOfNccl) {
  lay_out(rails(2), root_.path());
  test_support::write_file(root_ / "etc/rccl.conf", "NCCL_IB_HCA==mlx5_1\nNCCL_IB_TC=104\n");
  EXPECT_EQ(resolve().decision.kept.at("NCCL_IB_HCA").source, "/etc/rccl.conf");
  test_support::write_file(root_ / "etc/nccl.conf", "NCCL_IB_HCA==mlx5_0\n");
  const auto resolved = resolve({"NCCL_IB_SL=1"});
  EXPECT_EQ(resolved.decision.kept.at("NCCL_IB_HCA").source, "/etc/nccl.conf");
  EXPECT_EQ(resolved.decision.kept.at("NCCL_IB_TC").source, "/etc/rccl.conf");
}

TEST_F(Resolve, SetsTheTopologyFileOfTheNodeIfItIsThere) {
  lay_out(rails(2), root_.path());
  const std::string file = "/run/rdma-init/topology/topology.xml";
  ASSERT_EQ(setenv("RDMA_INIT_SITE", ("NCCL_IB_TC=106;NCCL_TOPO_FILE=" + file).c_str(), 1), 0);
  const auto without = resolve().decision;
  test_support::write_file(root_ / file.substr(1), "<system/>");
  const auto with = resolve().decision;
  ASSERT_EQ(unsetenv("RDMA_INIT_SITE"), 0);
  EXPECT_FALSE(without.kept.contains("NCCL_TOPO_FILE"));
  EXPECT_EQ(without.kept.at("NCCL_IB_TC").value, "106");
  EXPECT_EQ(without.warnings, std::vector<std::string>{"NCCL_TOPO_FILE=" + file +
                                                       " (config.json of the node) is not set: No such file or "
                                                       "directory"});
  EXPECT_EQ(with.kept.at("NCCL_TOPO_FILE").value, file);
  EXPECT_TRUE(with.warnings.empty());
}

TEST_F(Resolve, ReadsTheFilesOfTheHomeThatTheVersionUses) {
  const char* home = getenv("HOME");
  const std::string former = home ? home : "";
  ASSERT_EQ(setenv("HOME", "/a", 1), 0);
  lay_out(rails(2), root_.path());
  test_support::write_file(root_ / "a/.nccl.conf", "NCCL_IB_TC=1\n");
  const auto warnings = [&](std::vector<const char*> environment) { return resolve(environment).decision.warnings; };
  EXPECT_NE(warnings({}).at(0).find("in the home of /etc/passwd (none), later versions only in $HOME (/a)"),
            std::string::npos);
  test_support::write_file(root_ / "etc/passwd", "u:x:" + std::to_string(getuid()) + ":0::/b:/bin/sh\n");
  test_support::write_file(root_ / "b/.nccl.conf", "NCCL_IB_TC=2\nNCCL_IB_SL=2\n");
  const auto unknown = resolve();
  EXPECT_EQ(unknown.decision.kept.at("NCCL_IB_TC").value, "1");
  EXPECT_EQ(unknown.decision.kept.at("NCCL_IB_SL").value, "2") << "an export would override this value for NCCL 2.29";
  ASSERT_EQ(unknown.decision.warnings.size(), 1U);
  EXPECT_EQ(
      unknown.decision.warnings[0],
      "/a/.nccl.conf, /b/.nccl.conf: NCCL before 2.30 reads such a file only in the home of /etc/passwd (/b), later "
      "versions only in $HOME (/a); remedy: name the file in NCCL_CONF_FILE, or the version with --nccl-version");
  const auto known = [&](const char* version) { return resolve({version}).decision; };
  EXPECT_EQ(known("NCCL_VERSION=2.29.7-1").kept.at("NCCL_IB_TC").value, "2");
  EXPECT_EQ(known("NCCL_VERSION=2.30.4-1").kept.at("NCCL_IB_TC").value, "1");
  EXPECT_FALSE(known("NCCL_VERSION=2.30.4-1").kept.contains("NCCL_IB_SL"));
  EXPECT_TRUE(known("NCCL_VERSION=2.29.7-1").warnings.empty());
  options_.policy.nccl_version = nccl::Version{2, 30, 0};
  EXPECT_EQ(known("NCCL_VERSION=2.29.7-1").kept.at("NCCL_IB_TC").value, "1");
  options_.policy.nccl_version.reset();
  ASSERT_EQ(setenv("HOME", "/b", 1), 0);
  EXPECT_TRUE(warnings({}).empty());
  ASSERT_EQ(home ? setenv("HOME", former.c_str(), 1) : unsetenv("HOME"), 0);
}

TEST_F(Resolve, UsesTheSettingsOfTheSnapshot) {
  test_support::write_file(root_ / "s.json", R"({"env": {"NCCL_IB_HCA": "=x"},
    "conf": {"/etc/nccl.conf": "NCCL_IB_TC=1\nNCCL_IB_SL=1\n", "/home/u/.nccl.conf": "NCCL_IB_TC=2\n",
    "/etc/rccl.conf": "NCCL_IB_SL=5\nNCCL_NET=IB\n", "/home/u/.rccl.conf": "NCCL_NET=Socket\n"}})");
  options_.snapshot = root_ / "s.json";
  const auto resolved = resolve({"NCCL_IB_HCA==mine", "NCCL_IB_PKEY=3"});
  EXPECT_EQ(resolved.settings.at("NCCL_IB_HCA").value, "=x");
  EXPECT_EQ(resolved.settings.at("NCCL_IB_TC").source, "/home/u/.nccl.conf");
  EXPECT_EQ(resolved.settings.at("NCCL_IB_SL").source, "/etc/nccl.conf");
  EXPECT_EQ(resolved.settings.at("NCCL_NET").source, "/home/u/.rccl.conf");
  EXPECT_FALSE(resolved.settings.contains("NCCL_IB_PKEY"))
      << "the environment of this process belongs to another machine";
}

// Pending resources. A start without a pending resource must not wait.

Netdev of_kind(Netdev device, const char* kind, int lower = 0, std::optional<int> netns = std::nullopt) {
  device.kind = kind;
  device.lower_ifindex = lower;
  device.lower_netns_id = netns;
  return device;
}

// A pod with these netdevs and one port, with only the host's GIDs in its table.
Inventory pod(std::vector<Netdev> netdevs) {
  Inventory node;
  node.hcas = {
      test_support::hca("mlx5_0", 0, {test_support::ethernet_port({v2(0, "fe80::99"), v2(3, "192.168.9.9")})})};
  int ifindex = 2;
  for (Netdev& device : netdevs)
    device.ifindex = ifindex++;
  node.netdevs = std::move(netdevs);
  return node;
}

std::string pending(const Inventory& node, const Policy& policy = {}, const init::Settings& settings = {}) {
  return find_pending(node, settings, policy).value_or("nothing");
}

// Stacks the netdev on a netdev of the node.
Netdev child(std::initializer_list<std::string_view> addresses, const char* kind = "macvlan") {
  return of_kind(netdev("net1", addresses), kind, 70, 0);
}

TEST(Pending, WaitsForAGidOfAChildsAddress) {
  for (const char* kind : {"macvlan", "ipvlan", "macvtap", "vlan"})
    EXPECT_EQ(pending(pod({child({"10.0.0.1"}, kind)})), "a GID for 10.0.0.1 on mlx5_0:1") << kind;
  Inventory veth = pod({of_kind(netdev("eth0", {"10.0.0.1"}), "veth", 9, 0)});
  veth.hcas[0].ports[0].netdev = "eth0";
  EXPECT_EQ(pending(veth), "a GID for 10.0.0.1 on mlx5_0:1") << "the port's own netdev";
  Inventory bond = pod({of_kind(netdev("eth1", {}), ""), of_kind(netdev("bond0", {"10.0.0.1"}), "bond")});
  bond.netdevs[0].master_ifindex = bond.netdevs[1].ifindex;
  bond.netdevs[0].master = "bond0";
  bond.hcas[0].ports[0].netdev = "eth1";
  EXPECT_EQ(pending(bond), "a GID for 10.0.0.1 on mlx5_0:1") << "a bond over the port";
}

TEST(Pending, WaitsForTheEndOfATestForDuplicates) {
  Inventory node = rails(1);
  node.hcas[0].ports[0].netdev = "rail0";
  for (fabric::InterfaceAddress& own : node.netdevs[1].addresses)
    own.tentative = true;
  EXPECT_EQ(pending(node), "a GID for 10.1.0.1 on mlx5_0:1");
  for (fabric::InterfaceAddress& own : node.netdevs[1].addresses)
    own.dad_failed = true;
  EXPECT_EQ(pending(node), "nothing") << "it has failed";
  Inventory peer = pod({child({"10.0.0.1"}, "macvlan")});
  peer.netdevs[0].addresses[0].peer = fabric::parse_address("10.0.0.2");
  EXPECT_EQ(pending(peer), "nothing") << "the GID is that of the peer";
}

TEST(Pending, IgnoresIwarp) {
  Inventory node = pod({child({"10.0.0.1"}, "macvlan")});
  Policy named;
  named.hcas = fabric::parse_selectors("mlx5_0").value();
  node.hcas[0].ports[0].netdev = "net1";
  ASSERT_NE(pending(node), "nothing");
  node.hcas[0].node_type = "4: RNIC";
  EXPECT_EQ(pending(node), "nothing");
  EXPECT_EQ(pending(node, named), "nothing");
}

// The IPv4 address will not be used.
TEST(Pending, IgnoresAnHcaWhoseProviderIsRejected) {
  Inventory node = pod({child({"10.0.0.1"}, "macvlan")});
  ASSERT_NE(pending(node), "nothing");
  node.hcas[0].abi_version = 6;
  node.hcas[0].provider = {"/usr/lib64/libibverbs/libbnxt_re-rdmav34.so", 1, 1};
  EXPECT_EQ(pending(node), "nothing");
}

TEST(Pending, WaitsForAGidOfTheKeptFamily) {
  Inventory node = rails(1);
  node.netdevs[1].addresses.push_back({*fabric::parse_address("fd00::1"), 64, {}});
  node.hcas[0].ports[0].netdev = "rail0";
  node.netdevs[1].ifindex = 3;
  node.netdevs[1].kind = "vlan";
  init::Settings settings = {{"NCCL_IB_ADDR_FAMILY", {"AF_INET6", "environment"}}};
  EXPECT_EQ(pending(node), "nothing");
  EXPECT_EQ(pending(node, {}, settings), "a GID for fd00::1 on mlx5_0:1");
  settings["NCCL_IB_GID_INDEX"] = {"3", "environment"};
  EXPECT_EQ(pending(node, {}, settings), "nothing") << "a fixed index voids the family";
  node.netdevs[1].addresses.pop_back();
  EXPECT_EQ(pending(node, {}, {{"NCCL_IB_ADDR_FAMILY", {"AF_INET6", "environment"}}}), "nothing")
      << "no address of the family can get a GID";
}

TEST(Pending, IgnoresNetdevsThatCannotBeOnThePort) {
  Netdev down = child({"10.0.0.1"});
  down.carrier = 0;
  Netdev elsewhere = child({"10.0.0.1"});
  elsewhere.in_this_netns = false;
  const auto changed = [](const std::function<void(Inventory&)>& change) {
    Inventory node = pod({child({"10.0.0.1"})});
    change(node);
    return node;
  };
  const std::pair<const char*, Inventory> rows[] = {
      {"veth", pod({of_kind(netdev("eth0", {"10.0.0.1"}), "veth", 9, 0)})},
      {"bridge", pod({of_kind(netdev("br0", {"10.0.0.1"}), "bridge")})},
      {"tunnel", pod({of_kind(netdev("tun0", {"10.0.0.1"}), "vxlan")})},
      {"vlan over a veth of ours",
       pod({of_kind(netdev("eth0", {}), "veth", 9, 0), of_kind(netdev("eth0.5", {"10.0.0.1"}), "vlan", 2)})},
      {"down", pod({down})},
      {"another netns", pod({elsewhere})},
      {"no address", pod({child({})})},
      {"loopback address", pod({child({"127.0.0.1"})})},
      {"port down", changed([](Inventory& node) { node.hcas[0].ports[0].state = "1: DOWN"; })},
      {"no node", changed([](Inventory& node) { node.hcas[0].accessible = false; })},
      {"InfiniBand", changed([](Inventory& node) { node.hcas[0].ports[0] = test_support::infiniband_port(); })},
      {"its GID is on another port", changed([](Inventory& node) {
         node.hcas.push_back(test_support::hca("mlx5_1", 1, {test_support::ethernet_port({v2(7, "10.0.0.1")})}));
       })},
      {"no netdev", pod({})},
      {"a node that is ready", rails(8)},
      {"no HCA", {}}};
  for (const auto& [name, node] : rows)
    EXPECT_EQ(pending(node), "nothing") << name;
}

TEST(Pending, WaitsForAGlobalGidAfterALinkLocalOne) {
  Inventory node = pod({child({"10.0.0.1", "fe80::1"})});
  node.hcas[0].ports[0].gids.push_back(v2(5, "fe80::1"));
  EXPECT_EQ(pending(node), "a GID for 10.0.0.1 on mlx5_0:1") << "the netdev is on this port and has an address";
  node.netdevs[0] = child({"fe80::1"});
  EXPECT_EQ(pending(node), "nothing") << "the netdev has link-local addresses only";
  node.hcas[0].ports[0].gids.push_back(v2(6, "10.0.0.1"));
  EXPECT_EQ(pending(node), "nothing");
}

TEST(Pending, WaitsForRequiredHcas) {
  Policy policy;
  policy.require = 2;
  EXPECT_EQ(pending(rails(2), policy), "nothing");
  EXPECT_EQ(pending(rails(1), policy), "1 of 2 HCAs with a usable port");
  EXPECT_EQ(pending(Inventory{}, policy), "2 of 2 HCAs with a usable port") << "device nodes may appear later";
  Inventory down = rails(2);
  down.hcas[1].ports[0].state = "1: DOWN";
  EXPECT_EQ(pending(down, policy), "1 of 2 HCAs with a usable port") << "carrier may appear later";
  Inventory none;
  none.rdma_error = ENOENT;
  EXPECT_EQ(pending(none, policy), "nothing") << "without an RDMA driver no HCA appears";
  policy.require = 0;
  policy.require_used = 2;
  EXPECT_EQ(pending(rails(1), policy), "1 of 2 HCAs with a usable port");
}

Policy for_cidr(const char* cidr) {
  Policy policy;
  policy.gids.cidrs = {*fabric::parse_cidr(cidr)};
  return policy;
}

Inventory with_own_netdevs(unsigned count) {
  Inventory node = rails(count);
  for (unsigned i = 0; i < count; ++i)
    node.hcas[i].ports[0].netdev = fmt::format("rail{}", i);
  return node;
}

TEST(Pending, WaitsForAnAddressInTheCidr) {
  const std::string awaited = "a GID on mlx5_0:1 (rail0) that the options allow";
  Inventory node = with_own_netdevs(1);
  EXPECT_EQ(pending(node, for_cidr("10.1.0.0/16")), "nothing");
  EXPECT_EQ(pending(node, for_cidr("172.16.0.0/12")), awaited) << "a missing address may appear";
  node.hcas[0].ports[0].netdev.reset();
  EXPECT_EQ(pending(node, for_cidr("172.16.0.0/12")), "nothing") << "its netdev is in another netns";

  node = with_own_netdevs(2);
  EXPECT_EQ(pending(node, for_cidr("10.1.1.0/24")), "nothing") << "the other port has its addresses: a storage NIC";
  node.hcas[0].ports[0].gids.clear();
  node.netdevs[1].addresses.clear();
  EXPECT_EQ(pending(node, for_cidr("10.1.1.0/24")), awaited) << "a port without an address is pending";
}

TEST(Pending, WaitsForAGidOfTheRequestedFamily) {
  Policy policy;
  policy.gids.family = fabric::Family::kIpv6;
  policy.gids.link_local = false;
  EXPECT_EQ(pending(with_own_netdevs(1), policy), "a GID on mlx5_0:1 (rail0) that the options allow");
  policy.gids.family = fabric::Family::kIpv4;
  EXPECT_EQ(pending(with_own_netdevs(1), policy), "nothing");
}

TEST(Pending, WaitsForTheNamedHcas) {
  Inventory node = with_own_netdevs(2);
  node.hcas[1].ports[0].gids.clear();
  node.netdevs[2].addresses.clear();
  Policy policy;
  EXPECT_EQ(pending(node, policy), "nothing") << "a missing address is pending only if requested";
  policy.hcas = *fabric::parse_selectors("mlx5_1");
  EXPECT_EQ(pending(node, policy), "a GID on mlx5_1:1 (rail1) that the options allow");
  policy.hcas = *fabric::parse_selectors("mlx5_0");
  EXPECT_EQ(pending(node, policy), "nothing") << "the other HCA is not requested";
  policy.hcas = *fabric::parse_selectors("^mlx5_0");
  EXPECT_EQ(pending(node, policy), "nothing") << "an exclude list requests no HCA";
  EXPECT_EQ(pending(pod({child({"10.0.0.1"})}), policy), "nothing") << "an excluded HCA is not pending";
}

}  // namespace
