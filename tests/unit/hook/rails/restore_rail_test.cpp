// Rails on InfiniBand, step by step: a VF with GUIDs that moves, an ipoib child that is made on the node and then
// moved. The kernel is a model that was written from headers and source (infiniband_node.hpp) and never run on
// InfiniBand hardware. These tests show which requests the program makes, in which order, and that it undoes them from
// any point.
//
// Macvlan and ipvlan on IPoIB are refused when rails are planned: PlanRails.RefusesRailsThatTheNetworkCannotProvide.
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.hpp"
#include "hook/rails/place_rail.hpp"
#include "hook/rails/restore_rails.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"
#include "unit/hook/rails/infiniband_node.hpp"

namespace hook {
namespace {

using base::Result;
using namespace test_support;
using Strings = std::vector<std::string>;
using Steps = Strings;

constexpr std::uint32_t kGroup = 0x40000007;
constexpr std::uint64_t kNodeGuid = 0x0011223344550001;  // GUID of the container's VF
constexpr std::uint64_t kPortGuid = 0x0011223344550002;
constexpr std::uint64_t kOwnPortGuid = 0x0002c90000bb0004;  // GUID of the same VF on the node

Netlink open_scripted(int protocol, int netns) {
  auto socket = Netlink::adopt(InfinibandNode::open_socket(protocol, netns), protocol);
  if (!socket) ADD_FAILURE() << socket.error().message;
  return std::move(socket).value();
}

NodeSockets open_node() {
  return {open_scripted(NETLINK_ROUTE, kNodeNetns), open_scripted(NETLINK_RDMA, kNodeNetns),
          InfinibandNode::open_netns(kNodeNetns)};
}

NetworkNamespace open_container() {
  return {InfinibandNode::open_netns(kContainerNetns), open_scripted(NETLINK_ROUTE, kContainerNetns),
          open_scripted(NETLINK_RDMA, kContainerNetns), base::UniqueFd(), base::UniqueFd()};
}

// Returns a record of the node's present state.
RailRecord described(const Rail& rail, const fabric::Hca* hca = nullptr, const std::string& sys = "/nowhere") {
  NodeSockets node = open_node();
  Strings warnings;
  RailRecord record;
  record.rail = rail;
  record.host = must(describe_host(node, rail, hca, sys, warnings));
  return record;
}

Rail moving(const char* hca, const char* netdev) {
  Rail rail;
  rail.hca = hca;
  rail.host = netdev;
  rail.name = "net1";
  rail.kind = RailKind::kMove;
  rail.move_rdma = true;
  return rail;
}

// VF 3 with its netdev, its RDMA device and GUIDs.
RailRecord vf_rail() {
  const TempDir sys;
  const std::string devices = sys / "bus/pci/devices/";
  write_file(devices + "0000:1a:00.0/net/ibp0/mtu", "2044\n");
  EXPECT_EQ(::symlink("../0000:1a:00.4", (devices + "0000:1a:00.0/virtfn3").c_str()), 0);
  Rail rail = moving("mlx5_4", "ibp0v3");
  rail.vf.node_guid = kNodeGuid;
  rail.vf.port_guid = kPortGuid;
  fabric::Hca hca;
  hca.pci = "0000:1a:00.4";
  hca.physfn = "0000:1a:00.0";
  return described(rail, &hca, sys.path());
}

RailRecord child_rail() {
  Rail rail = moving("mlx5_0", "ibp0");
  rail.kind = RailKind::kIpoib;
  rail.move_rdma = false;
  rail.pkey = 0x8001;
  rail.mtu = 2044;
  return described(rail);
}

Result<int> place(const RailRecord& rail, std::uint32_t group = kGroup) {
  NodeSockets node = open_node();
  NetworkNamespace inside = open_container();
  return place_rail(node, inside, rail, group);
}

enum class Namespace { kAlive, kAbsent };

// Returns the rail of an HCA and a netdev, which can belong to another HCA.
RailRecord function_rail(const char* hca = "mlx5_4", const char* netdev = "ibp0v3") {
  return described(moving(hca, netdev));
}

// Restores the rail without waiting. warned: the expected number of warnings.
Result<void> restore(const RailRecord& rail, Namespace netns = Namespace::kAlive, std::size_t warned = 0) {
  NodeSockets node = open_node();
  std::optional<NetworkNamespace> inside = open_container();
  if (netns == Namespace::kAbsent) inside.reset();
  NetworkRecord record;
  record.group = kGroup;
  Strings warnings;
  auto done = RailRestorer(std::move(node), record, Deadline(), warnings, std::move(inside)).restore(rail);
  EXPECT_EQ(warnings.size(), warned) << testing::PrintToString(warnings);
  return done;
}

struct Scene {
  InfinibandNode kernel;
  std::string start = kernel.picture();

  // Runs the function as if the process were killed before its change number count + 1.
  void kill_after(int count, const std::function<void()>& function) {
    kernel.take_steps();
    kernel.state().most_changes = count;
    function();
    EXPECT_EQ(kernel.take_steps().size(), static_cast<std::size_t>(count));
    kernel.state().most_changes = -1;
  }
  void kill_placing(const RailRecord& rail, int count) {
    kill_after(count, [&] { static_cast<void>(place(rail)); });
  }
  void expect_undone(const RailRecord& rail, Namespace netns = Namespace::kAlive) {
    EXPECT_OK(restore(rail, netns));
    EXPECT_EQ(kernel.picture(), start);
  }
};

const Steps kVfIn = {"node: ibp0: VF 3 node GUID 0x0011223344550001", "node: ibp0: VF 3 port GUID 0x0011223344550002",
                     "node: mlx5_4 -> container; ibp0v3 ends; ib0 begins (node)", "node: ib0 -> container as net1"};

// GUIDs before the RDMA device, so that the netdev that the kernel makes on the node has the right one.
const Steps kVfOut = {"container: net1 -> node as ibp0v3",
                      "node: ibp0: VF 3 node GUID 0x0002c90000aa0004",
                      "node: ibp0: VF 3 port GUID 0x0002c90000bb0004",
                      "container: mlx5_4 -> node; ibp0v3 ends; ib0 begins (node)",
                      "node: ib0 as ibp0v3",
                      "node: ibp0v3, mtu 2044",
                      "node: ibp0v3, up"};

TEST(Infiniband, MovesVfInAndRestoresIt) {
  Scene scene;
  InfinibandNode& kernel = scene.kernel;
  const RailRecord rail = vf_rail();
  EXPECT_EQ(rail.host.kind, "ipoib");
  EXPECT_EQ(rail.host.bus_address, "0000:1a:00.4");
  EXPECT_EQ(rail.host.mac.size(), 20U);
  EXPECT_EQ(rail.host.pf, "ibp0");
  EXPECT_EQ(rail.host.vf, 3U);
  EXPECT_EQ(rail.host.vf_attributes.node_guid, 0x0002c90000aa0004U);
  EXPECT_EQ(rail.host.vf_attributes.port_guid, kOwnPortGuid);
  EXPECT_EQ(kernel.take_steps(), Steps()) << "reading the state changes nothing";
  const int ifindex = must(place(rail));
  EXPECT_EQ(kernel.take_steps(), kVfIn);
  auto& link = kernel.link(kContainerNetns, "net1");
  EXPECT_EQ(ifindex, link.ifindex);
  EXPECT_EQ(link.guid, kPortGuid);
  EXPECT_FALSE(link.up);
  link.up = true;
  scene.expect_undone(rail);
  EXPECT_EQ(kernel.take_steps(), kVfOut);
  scene.expect_undone(rail);
  EXPECT_EQ(kernel.take_steps(), Steps()) << "once is enough";
}

// Commit "RDMA/ipoib: Use parent rdma device net namespace" (Linux 6.16, and stable kernels that have it).
TEST(Infiniband, MovesVfIfTheKernelMakesTheNetdevInside) {
  Scene scene;
  scene.kernel.state().netdev_follows = true;
  const RailRecord rail = vf_rail();
  EXPECT_OK(place(rail));
  EXPECT_EQ(scene.kernel.take_steps(),
            (Steps{kVfIn[0], kVfIn[1], "node: mlx5_4 -> container; ibp0v3 ends; ib0 begins (container)",
                   "container: ib0 as net1"}));
  scene.expect_undone(rail);
  EXPECT_EQ(scene.kernel.take_steps(), kVfOut);
}

// Without GUIDs in the network the program sends no request to the physical function. A PF has no GUIDs to set.
TEST(Infiniband, SetsNoGuidsWithoutVfAttributes) {
  Scene scene;
  const RailRecord rail = function_rail();
  EXPECT_OK(place(rail));
  EXPECT_EQ(scene.kernel.take_steps(), (Steps{kVfIn[2], kVfIn[3]}));
  scene.expect_undone(rail);
  EXPECT_EQ(scene.kernel.take_steps(), (Steps{kVfOut[0], kVfOut[3], kVfOut[4], kVfOut[5], kVfOut[6]}));
}

// Only the GUID of a physical function's hardware address can be set again.
TEST(Infiniband, RestoresGuidThatTheNodeHadSet) {
  Scene scene;
  scene.kernel.link(kNodeNetns, "ibp0").guid = 0x42;
  scene.start = scene.kernel.picture();
  const RailRecord rail = function_rail("mlx5_0", "ibp0");
  EXPECT_OK(place(rail));
  scene.expect_undone(rail);
}

TEST(Infiniband, RestoresGuidsOfTheVfsOfAMovedPhysicalFunction) {
  Scene scene;
  const RailRecord rail = function_rail("mlx5_0", "ibp0");
  ASSERT_EQ(rail.host.vfs.size(), 4U);
  EXPECT_OK(place(rail));
  scene.kernel.state().functions[1].node_guid = 0x42;  // VF 0
  scene.kernel.state().functions[4].port_guid = 0x43;  // VF 3, the last
  scene.expect_undone(rail);
}

// SIGKILL before any change of the move or of its roll back. Another process restores the node.
TEST(Infiniband, RestoresVfAfterAKillAtAnyChange) {
  for (const bool follows : {false, true}) {
    for (int count = 0; count <= static_cast<int>(kVfIn.size() + kVfOut.size()); ++count) {
      SCOPED_TRACE(testing::Message() << count << " changes, netdev follows: " << follows);
      Scene scene;
      scene.kernel.state().netdev_follows = follows;
      const RailRecord rail = vf_rail();
      scene.kill_after(count, [&] {
        if (place(rail)) static_cast<void>(restore(rail));
      });
      scene.expect_undone(rail);
    }
  }
}

// The kernel moves the RDMA device to the node and makes its netdev before the program can restore the GUIDs. The
// hardware address of the netdev then has the container's GUID until the driver is bound again.
TEST(Infiniband, RestoresVfIfTheNamespaceHasEnded) {
  for (int count = 0; count <= static_cast<int>(kVfIn.size()); ++count) {
    SCOPED_TRACE(count);
    Scene scene;
    const RailRecord rail = vf_rail();
    scene.kill_placing(rail, count);
    scene.kernel.end_container();
    EXPECT_OK(restore(rail, Namespace::kAbsent));
    auto& link = scene.kernel.link(kNodeNetns, "ibp0v3");
    EXPECT_EQ(link.guid, count < 3 ? kOwnPortGuid : kPortGuid);
    link.guid = kOwnPortGuid;
    EXPECT_EQ(scene.kernel.picture(), scene.start);
  }
}

// The kernel returns the hardware later, which would undo an earlier restoration.
TEST(Infiniband, FailsWhileTheNamespaceIsEnding) {
  Scene scene;
  const RailRecord rail = vf_rail();
  scene.kill_placing(rail, 3);
  const auto done = restore(rail, Namespace::kAbsent);
  EXPECT_EQ(error_message(done), "RDMA device `mlx5_4` has not returned to the node");
  EXPECT_EQ(error_code(done), EAGAIN);
}

// `rdma dev set mlx5_4 name x` by a container with CAP_NET_ADMIN.
TEST(Infiniband, RestoresNameOfDeviceThatItsContainerRenamed) {
  for (const Namespace netns : {Namespace::kAlive, Namespace::kAbsent}) {
    Scene scene;
    const RailRecord rail = function_rail();
    EXPECT_OK(place(rail));
    ASSERT_EQ(scene.kernel.rename_rdma(4, "x"), 0);
    if (netns == Namespace::kAbsent) scene.kernel.end_container();
    scene.expect_undone(rail, netns);
    scene.kernel.take_steps();
    scene.expect_undone(rail, netns);
    EXPECT_EQ(scene.kernel.take_steps(), Steps()) << "once is enough";
  }
}

void swap_names(Scene& scene, std::size_t one, std::size_t other) {
  const std::string first = scene.kernel.state().functions.at(one).name.data();
  const std::string second = scene.kernel.state().functions.at(other).name.data();
  ASSERT_EQ(scene.kernel.rename_rdma(one, "x"), 0);
  ASSERT_EQ(scene.kernel.rename_rdma(other, first), 0);
  ASSERT_EQ(scene.kernel.rename_rdma(one, second), 0);
}

// A container that shares the node's RDMA devices renames them between the record and the move.
TEST(Infiniband, MovesDeviceOfTheRecordIfItWasRenamed) {
  Scene scene;
  const RailRecord rail = function_rail();
  swap_names(scene, 3, 4);
  EXPECT_OK(place(rail));
  EXPECT_EQ(scene.kernel.state().functions.at(3).netns, kNodeNetns);
  EXPECT_EQ(scene.kernel.state().functions.at(4).netns, kContainerNetns);
}

TEST(Infiniband, DeletesSoftwareDeviceOfTheRecordIfItWasRenamed) {
  Scene scene;
  Rail rail = moving("mlx5_4", "ibp0v3");
  rail.move_rdma = false;
  rail.recreate = "rxe";
  fabric::Hca hca;
  hca.node_guid = "0002:c900:00aa:0004";
  const RailRecord record = described(rail, &hca);
  swap_names(scene, 3, 4);
  EXPECT_OK(place(record));
  const auto steps = scene.kernel.take_steps();
  EXPECT_EQ(std::count(steps.begin(), steps.end(), "node: mlx5_3 is deleted"), 1) << base::join(steps, "\n");
  NodeSockets node = open_node();
  Strings warnings;
  ASSERT_FALSE(describe_host(node, rail, &hca, "/nowhere", warnings)) << "renamed between the inventory and the record";
}

TEST(Infiniband, RestoresNamesOfTwoDevicesThatSwappedThem) {
  for (const Namespace netns : {Namespace::kAlive, Namespace::kAbsent}) {
    Scene scene;
    const RailRecord one = function_rail("mlx5_3", "ibp0v2");
    RailRecord other = function_rail();
    other.rail.name = "net2";
    EXPECT_OK(place(one));
    EXPECT_OK(place(other));
    swap_names(scene, 3, 4);
    if (netns == Namespace::kAbsent) scene.kernel.end_container();
    EXPECT_OK(restore(other, netns, 1));
    scene.expect_undone(one, netns);
  }
}

// Names are unique among all namespaces. The program cannot rename a device in a third namespace.
TEST(Infiniband, RestoresNameLaterIfAnotherContainersDeviceHasIt) {
  constexpr int kThirdNetns = 77;
  Scene scene;
  const RailRecord rail = function_rail();
  EXPECT_OK(place(rail));
  ASSERT_EQ(scene.kernel.rename_rdma(4, "x"), 0);
  ASSERT_EQ(scene.kernel.rename_rdma(3, "mlx5_4"), 0);
  scene.kernel.state().functions[3].netns = kThirdNetns;
  EXPECT_EQ(error_message(restore(rail)),
            "RDMA device `mlx5_4` returned as `x`: a device of another container has its name");
  ASSERT_EQ(scene.kernel.rename_rdma(3, "mlx5_3"), 0);
  EXPECT_OK(restore(rail));
  EXPECT_STREQ(scene.kernel.state().functions[4].name.data(), "mlx5_4");
}

// A driver that is bound again registers another device on the node, with a name that the kernel chooses.
TEST(Infiniband, FindsDeviceWithNewIndexByItsNodeGuid) {
  Scene scene;
  const RailRecord rail = function_rail();
  EXPECT_OK(place(rail));
  scene.kernel.end_container();
  scene.kernel.state().functions[4].index = 9;
  ASSERT_EQ(scene.kernel.rename_rdma(4, "rocep1s0"), 0);
  scene.expect_undone(rail, Namespace::kAbsent);
}

// A node GUID identifies no device if it is made of a MAC address, or if another device has it too.
TEST(Infiniband, DoesNotMistakeDeviceWithTheSameNodeGuid) {
  for (const std::uint64_t guid : {0x0002c9fffeaa0004U, 0x0002c90000aa0003U}) {
    Scene scene;
    scene.kernel.state().functions[4].node_guid = guid;
    const RailRecord rail = function_rail();
    EXPECT_OK(place(rail));
    scene.kernel.state().functions[3].node_guid = guid;
    EXPECT_EQ(error_message(restore(rail, Namespace::kAbsent)), "RDMA device `mlx5_4` has not returned to the node");
  }
}

TEST(Infiniband, FindsDeviceWithoutRecordedIndexByItsName) {
  Scene scene;
  RailRecord rail = function_rail();
  rail.host.rdma.reset();
  EXPECT_OK(place(rail));
  scene.expect_undone(rail);
}

// An Ethernet netdev does not end when the RDMA device moves: it is restored even if the device stays inside.
TEST(Infiniband, RestoresNetdevIfTheRdmaDeviceStaysInside) {
  Scene scene;
  const RailRecord rail = function_rail("mlx5_4", "ibp0");
  scene.kernel.state().functions[4].netns = kContainerNetns;
  scene.kernel.link(kNodeNetns, "ibp0").rename("owned");
  scene.kernel.state().rdma_move_refusal = EBUSY;
  EXPECT_EQ(error_code(restore(rail)), EBUSY);
  EXPECT_TRUE(scene.kernel.link(kNodeNetns, "ibp0").up);
}

TEST(Infiniband, RestoresNodeAfterARefusedMove) {
  for (const bool is_shared : {false, true}) {
    Scene scene;
    const RailRecord rail = vf_rail();
    scene.kernel.state().is_shared = is_shared;
    scene.kernel.state().rdma_move_refusal = EBUSY;  // a driver's errno; a shared subsystem returns EOPNOTSUPP before
    const auto placed = place(rail);
    EXPECT_EQ(error_code(placed), is_shared ? EOPNOTSUPP : EBUSY);
    EXPECT_TRUE(has_text(error_hint(placed), is_shared ? "netns_mode=0" : "rdma resource show"));
    EXPECT_EQ(scene.kernel.take_steps(), (Steps{kVfIn[0], kVfIn[1]}));
    scene.expect_undone(rail);
    EXPECT_EQ(scene.kernel.take_steps(), (Steps{kVfOut[1], kVfOut[2]}));
  }
}

// The kernel moves before it renames.
TEST(Infiniband, RestoresVfIfTheNameIsTakenInside) {
  for (const bool follows : {false, true}) {
    Scene scene;
    scene.kernel.state().netdev_follows = follows;
    scene.kernel.add_ethernet(kContainerNetns, "net1");
    scene.start = scene.kernel.picture();
    const RailRecord rail = vf_rail();
    EXPECT_EQ(error_code(place(rail)), EEXIST);
    scene.expect_undone(rail);
  }
}

TEST(IpoibChild, IsMadeAndRemoved) {
  Scene scene;
  InfinibandNode& kernel = scene.kernel;
  const RailRecord rail = child_rail();
  const auto ifindex = must(place(rail));
  EXPECT_EQ(kernel.take_steps(),
            (Steps{"node: ipoib child net1 of ibp0, pkey 0x8001", "node: net1 -> container, mtu 2044"}))
      << "the kernel ignores the MTU of the first request";
  EXPECT_EQ(ifindex, kernel.link(kContainerNetns, "net1").ifindex);
  EXPECT_EQ(kernel.link(kContainerNetns, "net1").group, kGroup);
  scene.expect_undone(rail);
  EXPECT_EQ(kernel.take_steps(), Steps{"container: net1 ends"});
  scene.expect_undone(rail);
  EXPECT_EQ(kernel.take_steps(), Steps()) << "once is enough";
}

// If a netdev of the node has the child's name, the child has another name there, and a third one when it comes back
// after its namespace ended.
TEST(IpoibChild, IsRemovedAfterAKillAtAnyChange) {
  for (const bool is_name_taken : {false, true}) {
    for (const Namespace netns : {Namespace::kAlive, Namespace::kAbsent}) {
      for (const int count : {0, 1, 2}) {
        SCOPED_TRACE(testing::Message() << count << " changes, namespace gone: " << (netns == Namespace::kAbsent)
                                        << ", name taken: " << is_name_taken);
        Scene scene;
        if (is_name_taken) scene.kernel.add_ethernet(kNodeNetns, "net1");
        scene.start = scene.kernel.picture();
        const RailRecord rail = child_rail();
        scene.kill_placing(rail, count);
        if (netns == Namespace::kAbsent) scene.kernel.end_container();
        EXPECT_EQ(scene.kernel.picture() == scene.start, count == 0);
        scene.expect_undone(rail, netns);
      }
    }
  }
}

// The child of another container is on the node for a moment, between making and moving it.
TEST(IpoibChild, IsKeptIfItBelongsToAnotherContainer) {
  Scene scene;
  const RailRecord rail = child_rail();
  scene.kill_after(1, [&] { static_cast<void>(place(rail, kGroup + 1)); });
  scene.start = scene.kernel.picture();
  for (const Namespace netns : {Namespace::kAlive, Namespace::kAbsent})
    scene.expect_undone(rail, netns);
}

TEST(IpoibChild, LeavesTheNodeUnchangedIfTheKernelRefuses) {
  Scene scene;
  scene.kernel.add_ethernet(kContainerNetns, "net1");
  scene.start = scene.kernel.picture();
  const RailRecord rail = child_rail();
  EXPECT_EQ(error_code(place(rail)), EEXIST);
  EXPECT_EQ(scene.kernel.picture(), scene.start);
  scene.kernel.state().has_ipoib_module = false;
  const auto unknown = place(rail);
  EXPECT_EQ(error_message(unknown), "cannot make ipoib `net1` of `ibp0`: Operation not supported");
  EXPECT_EQ(error_hint(unknown), "run `modprobe ib_ipoib`");
  EXPECT_EQ(scene.kernel.picture(), scene.start);
}

}  // namespace
}  // namespace hook
