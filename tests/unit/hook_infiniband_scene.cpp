#include "unit/hook_infiniband_scene.hpp"

#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/temp_dir.hpp"

namespace hook {

using fabric::Result;
using test_support::InfinibandNode;
using test_support::kContainerNetns;
using test_support::kNodeNetns;

namespace {

Netlink open(int protocol, int netns) {
  auto socket = Netlink::adopt(InfinibandNode::open_socket(protocol, netns), protocol);
  if (!socket) ADD_FAILURE() << socket.error().message;
  return std::move(socket).value();
}

NodeSockets open_node() {
  return {open(NETLINK_ROUTE, kNodeNetns), open(NETLINK_RDMA, kNodeNetns), InfinibandNode::open_netns(kNodeNetns)};
}

NetworkNamespace open_container() {
  return {InfinibandNode::open_netns(kContainerNetns), open(NETLINK_ROUTE, kContainerNetns),
          open(NETLINK_RDMA, kContainerNetns), fabric::UniqueFd(), fabric::UniqueFd()};
}

HostNetdev describe(const Rail& rail, const fabric::Hca* hca, const std::string& sys) {
  NodeSockets node = open_node();
  std::vector<std::string> warnings;
  auto host = describe_host(node, rail, hca, sys, warnings);
  if (!host) ADD_FAILURE() << host.error().message;
  return std::move(host).value();
}

}  // namespace

RailRecord vf_rail() {
  const test_support::TempDir sys;
  const std::string devices = sys / "bus/pci/devices/";
  test_support::write_file(devices + "0000:1a:00.0/net/ibp0/mtu", "2044\n");
  EXPECT_EQ(::symlink("../0000:1a:00.4", (devices + "0000:1a:00.0/virtfn3").c_str()), 0);
  RailRecord record;
  record.rail.hca = "mlx5_4";
  record.rail.host = "ibp0v3";
  record.rail.name = "net1";
  record.rail.kind = RailKind::kMove;
  record.rail.move_rdma = true;
  record.rail.vf.node_guid = kNodeGuid;
  record.rail.vf.port_guid = kPortGuid;
  fabric::Hca hca;
  hca.pci = "0000:1a:00.4";
  hca.physfn = "0000:1a:00.0";
  record.host = describe(record.rail, &hca, sys.path());
  return record;
}

RailRecord pf_rail() {
  RailRecord record;
  record.rail.hca = "mlx5_0";
  record.rail.host = "ibp0";
  record.rail.name = "net1";
  record.rail.kind = RailKind::kMove;
  record.rail.move_rdma = true;
  record.host = describe(record.rail, nullptr, "/nowhere");
  return record;
}

RailRecord child_rail() {
  RailRecord record;
  record.rail.hca = "mlx5_0";
  record.rail.host = "ibp0";
  record.rail.name = "net1";
  record.rail.kind = RailKind::kIpoib;
  record.rail.pkey = 0x8001;
  record.rail.mtu = 2044;
  record.host = describe(record.rail, nullptr, "/nowhere");
  return record;
}

Result<int> place(const RailRecord& rail, std::uint32_t group) {
  NodeSockets node = open_node();
  NetworkNamespace inside = open_container();
  return place_rail(node, inside, rail, group);
}

Result<void> put_back(const RailRecord& rail, Namespace netns) {
  NodeSockets node = open_node();
  NetworkNamespace inside = open_container();
  std::vector<std::string> warnings;
  auto done = put_back_rail(node, netns == Namespace::kAlive ? &inside : nullptr, rail, 0, warnings, kGroup);
  EXPECT_EQ(warnings, std::vector<std::string>());
  return done;
}

bool is_killed_after(InfinibandNode& kernel, int count, const std::function<void()>& function) {
  kernel.take_steps();
  kernel.state().kill_after = count;
  const pid_t child = ::fork();
  if (child == 0) {
    function();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  const int made = static_cast<int>(kernel.take_steps().size());
  EXPECT_LE(made, count);
  kernel.state().kill_after = -1;
  return WIFEXITED(status) && (WEXITSTATUS(status) == InfinibandNode::kKilled || made == count);
}

}  // namespace hook
