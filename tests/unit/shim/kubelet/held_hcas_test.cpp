// The HCAs that Kubernetes' own pods hold, and those of foreign containers.
#include "shim/kubelet/held_hcas.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>

#include "support/inventories.hpp"
#include "support/tree.hpp"
#include "unit/hook/ledger/scene.hpp"

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

TEST(HcaHolds, AddsHoldsOfGrant) {
  HcaHolds holds;
  add_grant(grant_of(Mode::kShared, 1), false, holds);
  EXPECT_EQ(holds["mlx5_0"].units, 1U);
  EXPECT_EQ(holds["mlx5_0"].foreign.others, 0U);
  add_grant(grant_of(Mode::kSharedMulti, 3), true, holds);
  EXPECT_EQ(holds["mlx5_0"].units, 4U);
  EXPECT_EQ(holds["mlx5_0"].foreign.others, 3U);
  EXPECT_EQ(holds["mlx5_0"].foreign.exclusive_owner, std::nullopt);
  add_grant(grant_of(Mode::kExclusive, 1), true, holds);
  EXPECT_EQ(holds["mlx5_0"].foreign.exclusive_owner, "container web");
  hook::Grant stale = grant_of(Mode::kExclusive, 1);
  stale.stale = true;
  add_grant(stale, true, holds);
  EXPECT_EQ(holds["mlx5_0"].units, 5U);
  hook::Grant device = grant_of(Mode::kShared, 1);
  device.hcas[0].device = "0000.10.00.0";
  add_grant(device, true, holds);
  EXPECT_EQ(holds["0000.10.00.0"].foreign.others, 1U) << "by the name of the booking";
}

class HeldHcas : public test_support::LedgerScene {
 protected:
  std::string held(HeldHcaReader& held_hcas) {
    std::vector<base::Error> unread;
    const auto read = held_hcas.read(unread);
    if (!read || !unread.empty()) return "not read";
    const HcaHolds holds = held_hcas.of(test_support::rails(2), "");
    const auto found = holds.find("mlx5_0");
    if (found == holds.end()) return "none";
    return fmt::format("{} of {}", found->second.foreign.others, found->second.units) +
           (found->second.foreign.exclusive_owner ? " " + *found->second.foreign.exclusive_owner : "");
  }
  HeldHcaReader held_hcas_{path_};
};

TEST_F(HeldHcas, CountsContainerOutsideOfPods) {
  HeldHcaReader none(temp_ / "none");
  EXPECT_EQ(held(none), "none") << "no ledger";
  EXPECT_EQ(held(held_hcas_), "none");
  test_support::Child child;
  ASSERT_EQ(allocate(web_, {test_support::kAlone}, {web_.key, "web", child.identity()}), "");
  EXPECT_EQ(held(held_hcas_), "1 of 1 container web");
  child.kill();
  EXPECT_EQ(held(held_hcas_), "none") << "it ended without a change of the ledger";
}

TEST_F(HeldHcas, ClaimIsForeignToTheDevicePluginOnly) {
  HeldHcaReader of_dra(path_, HeldHcaReader::Foreign::kOutsideOfClaims);
  hook::Owner claim =
      hook::claim_owner("3f2a", {.space = "team", .name = "nics", .token = "t", .pods = {}, .hcas = {}});
  ASSERT_EQ(allocate(claim, {test_support::kAlone}, {claim.key, "3f2a", std::nullopt}), "");
  EXPECT_EQ(held(held_hcas_), "1 of 1 claim team/nics");
  EXPECT_FALSE(held_hcas_.has_foreign()) << "it ends only by a change of the ledger";
  EXPECT_EQ(held(of_dra), "0 of 1");
  // A pod that uses the HCA by its claim holds none, but has the rail.
  pod_.claims = {claim.key};
  ASSERT_EQ(allocate(pod_, {test_support::kAlone}, {pod_.key, "c1", myself()}), "");
  EXPECT_EQ(held(of_dra), "0 of 1");
  EXPECT_FALSE(of_dra.has_foreign());
  hook::Grant grant = *find(pod_);
  EXPECT_EQ(grant.hcas[0].claim, claim.key);
  ASSERT_EQ(allocate(web_, {test_support::kOtherAlone}), "");
  EXPECT_EQ(held(of_dra), "0 of 1");
  EXPECT_TRUE(of_dra.has_foreign());
}

TEST_F(HeldHcas, RemembersGrantOfPod) {
  hook::GrantUser user{pod_.key, "c1", myself()};
  user.pod = "sandbox";
  ASSERT_EQ(allocate(pod_, {test_support::kAlone}, user), "");
  EXPECT_EQ(held(held_hcas_), "0 of 1");
  ASSERT_EQ(allocate(pod_, {test_support::kAlone}, {"other", "c2", myself()}), "");
  ASSERT_TRUE(ledger_.leave(pod_, user.key));
  EXPECT_EQ(held(held_hcas_), "0 of 1");
  HeldHcaReader another(path_);
  EXPECT_EQ(held(another), "0 of 1") << "the pod remains the user";
  ASSERT_TRUE(ledger_.leave(pod_, hook::container_owner("sandbox", "").key));
  ASSERT_TRUE(ledger_.leave(pod_, "other"));
  ASSERT_EQ(allocate(pod_, {test_support::kAlone}, {"another", "c3", myself()}), "");
  EXPECT_EQ(held(held_hcas_), "0 of 1") << "without a user of the pod";
  HeldHcaReader third(path_);
  EXPECT_EQ(held(third), "1 of 1 " + pod_.label) << "an unknown pod counts as foreign";
}

// The clock of the file system has not advanced between two grants.
TEST_F(HeldHcas, SeesChangeThatLeavesTheTimeAsItWas) {
  const std::string grants = path_ + "/grants";
  hook::GrantUser user{pod_.key, "c1", myself()};
  user.pod = "sandbox";
  EXPECT_EQ(held(held_hcas_), "none");
  timespec times[2];
  do {
    ::clock_gettime(CLOCK_REALTIME, &times[0]);
    times[1] = times[0];
    ASSERT_EQ(::utimensat(AT_FDCWD, grants.c_str(), times, 0), 0);
    EXPECT_EQ(held(held_hcas_), "none");
  } while (!held_hcas_.read_again_at());  // this machine was too slow
  ASSERT_EQ(allocate(pod_, {test_support::kAlone}, user), "");
  ASSERT_EQ(::utimensat(AT_FDCWD, grants.c_str(), times, 0), 0);
  EXPECT_EQ(held(held_hcas_), "0 of 1");
  // At rest nothing is read again.
  times[0].tv_sec = times[1].tv_sec = 1;
  ASSERT_EQ(::utimensat(AT_FDCWD, grants.c_str(), times, 0), 0);
  EXPECT_EQ(held(held_hcas_), "0 of 1");
  EXPECT_FALSE(held_hcas_.read_again_at());
  times[0].tv_sec = times[1].tv_sec = 1LL << 33;
  ASSERT_EQ(::utimensat(AT_FDCWD, grants.c_str(), times, 0), 0);
  EXPECT_EQ(held(held_hcas_), "0 of 1");
  EXPECT_FALSE(held_hcas_.read_again_at()) << "after the clock was set back";
}

TEST_F(HeldHcas, ReportsDamagedGrant) {
  ASSERT_EQ(allocate(web_, {test_support::kAlone}, {web_.key, "web", myself()}), "");
  test_support::write_file(path_ + "/grants/" + test_support::entries(path_ + "/grants"), "x");
  std::vector<base::Error> unread;
  EXPECT_TRUE(held_hcas_.read(unread));
  EXPECT_EQ(unread.size(), 1U);
}

}  // namespace
}  // namespace shim
