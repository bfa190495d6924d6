// What `rdma-hook devices` prints, and that it does not grow with the holders for people.
#include "hook/program/devices.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "hook/base/json/json.hpp"
#include "hook/ledger/grant.hpp"
#include "support/inventories.hpp"

namespace hook {
namespace {

Grant grant_of(unsigned number, const std::vector<std::string>& hcas) {
  Grant grant;
  grant.owner = {Owner::Kind::kContainer, fmt::format("key-{}", number), fmt::format("container c{}", number), {}};
  for (const std::string& name : hcas)
    grant.hcas.push_back({.name = name, .mode = Mode::kSharedMulti, .units = 2, .limit = std::nullopt});
  grant.users.push_back({grant.owner.key, fmt::format("c{}", number), std::nullopt});
  return grant;
}

NetworkRecord record_of(const Grant& grant) {
  RailRecord rail;
  rail.rail.name = "net1";
  rail.rail.hca = grant.hcas.front().name;
  rail.rail.host = "rail_0";
  rail.gid_index = 5;
  return {grant.owner.key, {4, 17, "/var/run/netns/cni-1"}, 0, {rail}};
}

DeviceHolders holders_of(unsigned grants, bool all) {
  DeviceHolders holders(all);
  for (unsigned number = 0; number < grants; ++number) {
    Grant grant = grant_of(number, {"mlx5_0", "mlx5_9"});
    grant.vanished = number % 2 == 1;
    holders.add(grant, holders.shows(grant) ? std::optional(record_of(grant)) : std::nullopt);
  }
  return holders;
}

std::string text_of(const DeviceHolders& holders) {
  std::string all;
  write_devices_text(test_support::rails(2, 4), {}, holders, [&](const std::string& text) { all += text; });
  return all;
}

std::string json_of(const DeviceHolders& holders, unsigned hcas) {
  std::string all;
  write_devices_json(test_support::rails(hcas, 4), {}, holders, [&](const std::string& text) { all += text; });
  return all;
}

TEST(Devices, ThePiecesAreOneDocument) {
  for (const unsigned grants : {0U, 1U, 12U}) {
    for (const unsigned hcas : {0U, 2U}) {
      const std::string text = json_of(holders_of(grants, true), hcas);
      const Json document = Json::parse(text);
      EXPECT_EQ(document.dump(2) + "\n", text);
      EXPECT_EQ(document["grants"], grants);
      EXPECT_EQ(document["hcas"].size(), hcas + (grants == 0 ? 0 : hcas == 0 ? 2 : 1)) << "with what is away";
      for (const Json& hca : document["hcas"])
        EXPECT_EQ(hca["holders"].size(), hca["name"] == "mlx5_1" ? 0 : grants);
    }
  }
}

TEST(Devices, AHolderIsDescribed) {
  const Json document = Json::parse(json_of(holders_of(1, true), 1));
  EXPECT_EQ(document["hcas"][0]["holders"][0], Json::parse(R"({
    "grant": "key-0", "holder": "container c0", "mode": "shared-multi", "units": 2, "containers": ["c0"],
    "since": "1970-01-01T00:00:00Z", "netns": "/var/run/netns/cni-1",
    "rails": [{"name": "net1", "rail": 0, "kind": "macvlan", "host": "rail_0", "addresses": [], "gid_index": 5}],
    "gone": false})"));
  EXPECT_EQ(document["hcas"][1]["away"], true);
  EXPECT_EQ(document["hcas"][1]["holders"][0]["rails"], Json::array());
}

TEST(Devices, MasksTheTokenOfAGrant) {
  const std::string token(32, 'a');
  for (const bool all : {false, true}) {
    DeviceHolders holders(all);
    Grant grant = grant_of(0, {"mlx5_0"});
    grant.owner = token_owner(token);
    holders.add(grant, std::nullopt);
    EXPECT_EQ((all ? json_of(holders, 1) : text_of(holders)).find(token), std::string::npos);
    if (!all) continue;
    EXPECT_EQ(Json::parse(json_of(holders, 1))["hcas"][0]["holders"][0]["grant"], shown_key("token-" + token));
  }
}

TEST(Devices, ManyHoldersAreSums) {
  const std::string few = text_of(holders_of(8, false));
  EXPECT_NE(
      few.find("  held by container c7 since 1970-01-01T00:00:00Z, shared-multi x2; it is gone: `rdma-hook recover` "
               "returns it\n    net1 (macvlan of rail_0) at GID index 5\nmlx5_1 "),
      std::string::npos)
      << few;
  EXPECT_EQ(few.find("more"), std::string::npos);
  const std::string many = text_of(holders_of(1000, false));
  const std::string more =
      "  held by 992 more, shared-multi x1984; 496 are gone: `rdma-hook recover` returns them; --json lists them\n";
  EXPECT_NE(many.find(more + "mlx5_1 "), std::string::npos) << many;
  EXPECT_LE(many.size(), few.size() + 2 * more.size());
  EXPECT_TRUE(many.ends_with(more)) << "and of what is away";
}

TEST(Devices, OnlyWhatIsShownIsKept) {
  EXPECT_EQ(holders_of(1000, false).holders().size(), 8U);
  EXPECT_EQ(holders_of(1000, true).holders().size(), 1000U);
  DeviceHolders holders = holders_of(100, false);
  EXPECT_FALSE(holders.shows(grant_of(0, {"mlx5_0", "mlx5_9"})));
  EXPECT_TRUE(holders.shows(grant_of(0, {"mlx5_0", "mlx5_1"})));
}

}  // namespace
}  // namespace hook
