// Who holds what, for Kubernetes: its own pods, and others.
#include <gtest/gtest.h>

#include "shim/device_plugin/node_reader.hpp"
#include "support/inventories.hpp"
#include "unit/ledger/scene.hpp"

namespace shim {
namespace {

using hook::Mode;
using test_support::myself;

hook::Grant grant_of(Mode mode, unsigned units) {
  hook::Grant grant;
  grant.owner = hook::container_owner("web", "/run/web");
  grant.hcas = {{"mlx5_0", mode, units, std::nullopt}};
  return grant;
}

TEST(DevicePluginGrant, WhatAGrantAdds) {
  HcaHolds holds;
  add_grant(grant_of(Mode::kShared, 1), false, holds);
  EXPECT_EQ(holds["mlx5_0"].units, 1U);
  EXPECT_EQ(holds["mlx5_0"].foreign.others, 0U);
  add_grant(grant_of(Mode::kSharedMulti, 3), true, holds);
  EXPECT_EQ(holds["mlx5_0"].units, 4U);
  EXPECT_EQ(holds["mlx5_0"].foreign.others, 3U);
  EXPECT_EQ(holds["mlx5_0"].foreign.exclusive_holder, std::nullopt);
  add_grant(grant_of(Mode::kExclusive, 1), true, holds);
  EXPECT_EQ(holds["mlx5_0"].foreign.exclusive_holder, "container web");
  hook::Grant gone = grant_of(Mode::kExclusive, 1);
  gone.vanished = true;
  add_grant(gone, true, holds);
  EXPECT_EQ(holds["mlx5_0"].units, 5U);
  hook::Grant device = grant_of(Mode::kShared, 1);
  device.hcas[0].device = "0000.10.00.0";
  add_grant(device, true, holds);
  EXPECT_EQ(holds["0000.10.00.0"].foreign.others, 1U) << "by what it is booked as";
}

class DevicePluginHolders : public test_support::LedgerScene {
 protected:
  std::string held(HoldReader& holders) {
    std::vector<fabric::Error> unread;
    const auto read = holders.read(unread);
    if (!read || !unread.empty()) return "not read";
    const HcaHolds holds = holders.of(test_support::rails(2), "");
    const auto found = holds.find("mlx5_0");
    if (found == holds.end()) return "nobody";
    return fmt::format("{} of {}", found->second.foreign.others, found->second.units) +
           (found->second.foreign.exclusive_holder ? " " + *found->second.foreign.exclusive_holder : "");
  }
  HoldReader holders_{path_};
};

TEST_F(DevicePluginHolders, NoLedgerIsNobody) {
  HoldReader none(temp_ / "none");
  EXPECT_EQ(held(none), "nobody");
}

TEST_F(DevicePluginHolders, AContainerThatIsNoPods) {
  EXPECT_EQ(held(holders_), "nobody");
  test_support::Child child;
  ASSERT_EQ(give(web_, {test_support::kAlone}, {web_.key, "web", child.identity()}), "");
  EXPECT_EQ(held(holders_), "1 of 1 container web");
  child.kill();
  EXPECT_EQ(held(holders_), "nobody") << "it ended, and nobody wrote so";
}

TEST_F(DevicePluginHolders, APodsStaysOne) {
  hook::GrantUser user{pod_.key, "c1", myself()};
  user.pod = "sandbox";
  ASSERT_EQ(give(pod_, {test_support::kAlone}, user), "");
  EXPECT_EQ(held(holders_), "0 of 1");
  ASSERT_EQ(give(pod_, {test_support::kAlone}, {"other", "c2", myself()}), "");
  ASSERT_TRUE(ledger_.leave(pod_, user.key));
  EXPECT_EQ(held(holders_), "0 of 1");
  HoldReader another(path_);
  EXPECT_EQ(held(another), "0 of 1") << "the pod stays as the user";
  ASSERT_TRUE(ledger_.leave(pod_, hook::container_owner("sandbox", "").key));
  ASSERT_TRUE(ledger_.leave(pod_, "other"));
  ASSERT_EQ(give(pod_, {test_support::kAlone}, {"another", "c3", myself()}), "");
  EXPECT_EQ(held(holders_), "0 of 1") << "also while no user says so";
  HoldReader third(path_);
  EXPECT_EQ(held(third), "1 of 1 " + pod_.label) << "what cannot be seen to be a pod is held";
}

TEST_F(DevicePluginHolders, ADamagedGrantIsSaid) {
  ASSERT_EQ(give(web_, {test_support::kAlone}, {web_.key, "web", myself()}), "");
  test_support::write_file(path_ + "/grants/" + test_support::entries(path_ + "/grants"), "x");
  std::vector<fabric::Error> unread;
  EXPECT_TRUE(holders_.read(unread));
  EXPECT_EQ(unread.size(), 1U);
}

}  // namespace
}  // namespace shim
