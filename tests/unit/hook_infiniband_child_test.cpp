// Ipoib children: made on the node, then moved. By the model of hook_infiniband_node.hpp, which was written from
// headers and source and never run on InfiniBand hardware.
#include <gtest/gtest.h>

#include <cerrno>

#include "unit/hook_infiniband_scene.hpp"

namespace hook {
namespace {

using test_support::InfinibandNode;
using test_support::kContainerNetns;
using test_support::kNodeNetns;

const Steps kIn = {
    "node: ipoib child net1 of ibp0, pkey 0x8001",
    "node: net1 -> container, mtu 2044",
};
const Steps kOut = {"container: net1 ends"};

TEST(IpoibChild, ComesAndGoes) {
  InfinibandNode kernel;
  const std::string start = kernel.picture();
  const RailRecord rail = child_rail();
  const auto ifindex = place(rail);
  ASSERT_TRUE(ifindex) << ifindex.error().message;
  EXPECT_EQ(kernel.take_steps(), kIn);
  const auto& link = kernel.link(kContainerNetns, "net1");
  EXPECT_EQ(*ifindex, link.ifindex);
  EXPECT_EQ(link.pkey, 0x8001);
  EXPECT_EQ(link.group, kGroup);
  EXPECT_EQ(link.mtu, 2044U) << "that of the request that made it is lost";
  EXPECT_DONE(put_back(rail));
  EXPECT_EQ(kernel.take_steps(), kOut);
  EXPECT_EQ(kernel.picture(), start);
  EXPECT_DONE(put_back(rail));
  EXPECT_EQ(kernel.take_steps(), Steps()) << "once is enough";
}

TEST(IpoibChild, WithoutAPkeyHasItsParents) {
  InfinibandNode kernel;
  RailRecord rail = child_rail();
  rail.rail.pkey.reset();
  EXPECT_DONE(place(rail));
  EXPECT_EQ(kernel.link(kContainerNetns, "net1").pkey, 0xffff);
}

TEST(IpoibChild, IsUndoneFromEveryPoint) {
  for (const Namespace netns : {Namespace::kAlive, Namespace::kGone}) {
    for (int count = 0; count <= static_cast<int>(kIn.size()); ++count) {
      SCOPED_TRACE(testing::Message() << count << " changes, namespace gone: " << (netns == Namespace::kGone));
      InfinibandNode kernel;
      const std::string start = kernel.picture();
      const RailRecord rail = child_rail();
      EXPECT_TRUE(is_killed_after(kernel, count, [&] { static_cast<void>(place(rail)); }));
      if (netns == Namespace::kGone) kernel.end_container();
      EXPECT_DONE(put_back(rail, netns));
      EXPECT_EQ(kernel.picture(), start);
    }
  }
}

// The node has a netdev of its name: the child is made under another one, and comes back under yet another when its
// namespace ends.
TEST(IpoibChild, WhoseNameTheNodeHasToo) {
  for (const int count : {1, 2}) {
    InfinibandNode kernel;
    kernel.add_ethernet(kNodeNetns, "net1");
    const std::string start = kernel.picture();
    const RailRecord rail = child_rail();
    EXPECT_TRUE(is_killed_after(kernel, count, [&] { static_cast<void>(place(rail)); }));
    kernel.end_container();
    EXPECT_NE(kernel.picture(), start);
    EXPECT_DONE(put_back(rail, Namespace::kGone));
    EXPECT_EQ(kernel.picture(), start);
  }
}

// Another container's, which is on the node only for the moment between being made and being moved.
TEST(IpoibChild, OfAnotherContainerStays) {
  InfinibandNode kernel;
  const RailRecord rail = child_rail();
  EXPECT_TRUE(is_killed_after(kernel, 1, [&] { static_cast<void>(place(rail, kGroup + 1)); }));
  const std::string others = kernel.picture();
  for (const Namespace netns : {Namespace::kAlive, Namespace::kGone})
    EXPECT_DONE(put_back(rail, netns));
  EXPECT_EQ(kernel.picture(), others);
}

TEST(IpoibChild, RefusalsLeaveTheNodeAsItWas) {
  InfinibandNode kernel;
  kernel.add_ethernet(kContainerNetns, "net1");
  const std::string start = kernel.picture();
  const RailRecord rail = child_rail();
  const auto taken = place(rail);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, EEXIST);
  EXPECT_EQ(kernel.picture(), start);
  kernel.state().has_ipoib_module = false;
  const auto unknown = place(rail);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message,
            "cannot make ipoib `net1` of `ibp0`: Operation not supported (Unknown device type)");
  EXPECT_EQ(unknown.error().hint, "`modprobe ib_ipoib`: the kernel lacks it");
  EXPECT_EQ(kernel.picture(), start);
}

}  // namespace
}  // namespace hook
