// Rails on InfiniBand, step by step: a VF with GUIDs that moves, an ipoib child. By a model of the kernel that was
// written from headers and source (hook_infiniband_node.hpp), never run on InfiniBand hardware: what these tests show
// is which requests the program makes, in which order, and that it undoes them from any point.
//
// Macvlan and ipvlan on IPoIB are refused when rails are planned: PlanRails.ChildrenOfTheOtherLinkLayer.
#include <gtest/gtest.h>

#include <cerrno>

#include "unit/hook_infiniband_scene.hpp"

namespace hook {
namespace {

using test_support::InfinibandNode;
using test_support::kContainerNetns;
using test_support::kNodeNetns;

const Steps kVfIn = {
    "node: ibp0: VF 3 node GUID 0x0011223344550001",
    "node: ibp0: VF 3 port GUID 0x0011223344550002",
    "node: mlx5_4 -> container; ibp0v3 ends; ib0 begins (node)",
    "node: ib0 -> container as net1",
};

// GUIDs before the RDMA device: the netdev that is made anew on the node then has the right one.
const Steps kVfOut = {
    "container: net1 -> node as ibp0v3",
    "node: ibp0: VF 3 node GUID 0x0002c90000aa0004",
    "node: ibp0: VF 3 port GUID 0x0002c90000bb0004",
    "container: mlx5_4 -> node; ibp0v3 ends; ib0 begins (node)",
    "node: ib0, mtu 2044 as ibp0v3",
    "node: ibp0v3, up",
};

TEST(Infiniband, AVfMovesIn) {
  InfinibandNode kernel;
  const RailRecord rail = vf_rail();
  EXPECT_EQ(rail.host.kind, "ipoib");
  EXPECT_EQ(rail.host.bus_address, "0000:1a:00.4");
  EXPECT_EQ(rail.host.mac.size(), 20U);
  EXPECT_EQ(rail.host.pf, "ibp0");
  EXPECT_EQ(rail.host.vf, 3U);
  EXPECT_EQ(rail.host.vf_attributes.node_guid, 0x0002c90000aa0004U);
  EXPECT_EQ(rail.host.vf_attributes.port_guid, 0x0002c90000bb0004U);
  EXPECT_EQ(kernel.take_steps(), Steps()) << "describing changes nothing";
  const auto ifindex = place(rail);
  ASSERT_TRUE(ifindex) << ifindex.error().message;
  EXPECT_EQ(kernel.take_steps(), kVfIn);
  const auto& link = kernel.link(kContainerNetns, "net1");
  EXPECT_EQ(*ifindex, link.ifindex);
  EXPECT_EQ(link.guid, kPortGuid);
  EXPECT_FALSE(link.up);
}

TEST(Infiniband, AVfComesBack) {
  InfinibandNode kernel;
  const std::string start = kernel.picture();
  const RailRecord rail = vf_rail();
  EXPECT_DONE(place(rail));
  kernel.link(kContainerNetns, "net1").up = true;
  kernel.take_steps();
  EXPECT_DONE(put_back(rail));
  EXPECT_EQ(kernel.take_steps(), kVfOut);
  EXPECT_EQ(kernel.picture(), start);
  EXPECT_DONE(put_back(rail));
  EXPECT_EQ(kernel.take_steps(), Steps()) << "once is enough";
}

// RDMA/ipoib: Use parent rdma device net namespace (Linux 6.16, and stable kernels that took it).
TEST(Infiniband, ANetdevMayBeMadeWhereItsRdmaDeviceIs) {
  InfinibandNode kernel;
  const std::string start = kernel.picture();
  kernel.state().netdev_follows = true;
  const RailRecord rail = vf_rail();
  EXPECT_DONE(place(rail));
  EXPECT_EQ(kernel.take_steps(),
            (Steps{kVfIn[0], kVfIn[1], "node: mlx5_4 -> container; ibp0v3 ends; ib0 begins (container)",
                   "container: ib0 as net1"}));
  EXPECT_DONE(put_back(rail));
  EXPECT_EQ(kernel.take_steps(), kVfOut);
  EXPECT_EQ(kernel.picture(), start);
}

// Without GUIDs of its own nothing is said to the physical function; a PF has none.
TEST(Infiniband, ANetdevWithoutVfAttributes) {
  InfinibandNode kernel;
  const std::string start = kernel.picture();
  RailRecord rail = vf_rail();
  rail.rail.vf = {};
  rail.host.vf_attributes = {};
  rail.host.pf.clear();
  EXPECT_DONE(place(rail));
  EXPECT_EQ(kernel.take_steps(), (Steps{kVfIn[2], kVfIn[3]}));
  EXPECT_DONE(put_back(rail));
  EXPECT_EQ(kernel.take_steps(), (Steps{kVfOut[0], kVfOut[3], kVfOut[4], kVfOut[5]}));
  EXPECT_EQ(kernel.picture(), start);
}

// Of a physical function's hardware address that somebody had set, the GUID alone can be set again.
TEST(Infiniband, AnAddressThatWasSetIsSetAgain) {
  InfinibandNode kernel;
  kernel.link(kNodeNetns, "ibp0").guid = 0x42;
  const std::string start = kernel.picture();
  const RailRecord rail = pf_rail();
  EXPECT_DONE(place(rail));
  EXPECT_DONE(put_back(rail));
  EXPECT_EQ(kernel.picture(), start);
}

// SIGKILL before any change of the way in or of the way back; another process undoes the rest.
TEST(Infiniband, AVfIsUndoneFromEveryPoint) {
  for (const bool follows : {false, true}) {
    for (int count = 0; count <= static_cast<int>(kVfIn.size()); ++count) {
      SCOPED_TRACE(testing::Message() << "in, " << count << " changes, netdev follows: " << follows);
      InfinibandNode kernel;
      const std::string start = kernel.picture();
      kernel.state().netdev_follows = follows;
      const RailRecord rail = vf_rail();
      EXPECT_TRUE(is_killed_after(kernel, count, [&] { static_cast<void>(place(rail)); }));
      EXPECT_DONE(put_back(rail));
      EXPECT_EQ(kernel.picture(), start);
    }
    for (int count = 0; count <= static_cast<int>(kVfOut.size()); ++count) {
      SCOPED_TRACE(testing::Message() << "out, " << count << " changes, netdev follows: " << follows);
      InfinibandNode kernel;
      const std::string start = kernel.picture();
      kernel.state().netdev_follows = follows;
      const RailRecord rail = vf_rail();
      EXPECT_DONE(place(rail));
      EXPECT_TRUE(is_killed_after(kernel, count, [&] { static_cast<void>(put_back(rail)); }));
      EXPECT_DONE(put_back(rail));
      EXPECT_EQ(kernel.picture(), start);
    }
  }
}

// The kernel has brought the RDMA device back, and made its netdev, before anybody could restore the GUIDs. Nothing
// that the program may do makes it anew: its hardware address has the container's GUID until the driver is bound again.
TEST(Infiniband, AVfWhoseNamespaceHasEnded) {
  for (int count = 0; count <= static_cast<int>(kVfIn.size()); ++count) {
    SCOPED_TRACE(count);
    InfinibandNode kernel;
    const std::string start = kernel.picture();
    const RailRecord rail = vf_rail();
    EXPECT_TRUE(is_killed_after(kernel, count, [&] { static_cast<void>(place(rail)); }));
    kernel.end_container();
    EXPECT_DONE(put_back(rail, Namespace::kGone));
    auto& link = kernel.link(kNodeNetns, "ibp0v3");
    EXPECT_EQ(link.guid, count < 3 ? 0x0002c90000bb0004U : kPortGuid);
    link.guid = 0x0002c90000bb0004;
    EXPECT_EQ(kernel.picture(), start);
  }
}

// The kernel takes its time: what comes home later would undo what is put right now.
TEST(Infiniband, AVfWhoseNamespaceIsEnding) {
  InfinibandNode kernel;
  const RailRecord rail = vf_rail();
  EXPECT_TRUE(is_killed_after(kernel, 3, [&] { static_cast<void>(place(rail)); }));
  const auto done = put_back(rail, Namespace::kGone);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "RDMA device `mlx5_4` has not come back to the node");
  EXPECT_EQ(done.error().code, EAGAIN);
}

TEST(Infiniband, ARefusedMoveLeavesTheNodeAsItWas) {
  for (const bool is_shared : {false, true}) {
    InfinibandNode kernel;
    const std::string start = kernel.picture();
    const RailRecord rail = vf_rail();
    kernel.state().is_shared = is_shared;
    kernel.state().rdma_move_refusal = EBUSY;  // a driver's; a shared subsystem says EOPNOTSUPP before
    const auto placed = place(rail);
    ASSERT_FALSE(placed);
    EXPECT_EQ(placed.error().code, is_shared ? EOPNOTSUPP : EBUSY);
    EXPECT_NE(placed.error().hint.find(is_shared ? "netns_mode=0" : "rdma resource show"), std::string::npos);
    EXPECT_EQ(kernel.take_steps(), (Steps{kVfIn[0], kVfIn[1]}));
    EXPECT_DONE(put_back(rail));
    EXPECT_EQ(kernel.take_steps(), (Steps{kVfOut[1], kVfOut[2]}));
    EXPECT_EQ(kernel.picture(), start);
  }
}

// The kernel moves before it renames.
TEST(Infiniband, ANameThatIsTakenInside) {
  for (const bool follows : {false, true}) {
    InfinibandNode kernel;
    kernel.state().netdev_follows = follows;
    kernel.add_ethernet(kContainerNetns, "net1");
    const std::string start = kernel.picture();
    const RailRecord rail = vf_rail();
    const auto placed = place(rail);
    ASSERT_FALSE(placed);
    EXPECT_EQ(placed.error().code, EEXIST);
    EXPECT_DONE(put_back(rail));
    EXPECT_EQ(kernel.picture(), start);
  }
}

}  // namespace
}  // namespace hook
