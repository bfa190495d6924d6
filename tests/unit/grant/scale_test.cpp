// One more container costs the same, however many HCAs and grants the node has: system calls are counted.
#include <gtest/gtest.h>
#include <unistd.h>

#include "hook/grant/node.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"
#include "hook/program/commands.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"
#include "unit/ledger/scene.hpp"

namespace hook {
namespace {

using test_support::run_traced;
using test_support::TempDir;

constexpr unsigned kFew = 8;
constexpr unsigned kMany = 128;

// RoCE rails, each with a netdev, as VFs are.
std::string node_of(const TempDir& directory, unsigned hcas) {
  constexpr unsigned kSlots = 16;
  const std::string root = directory / std::to_string(hcas);
  test_support::lay_out(test_support::rails(hcas, kSlots), root, {.full = true});
  return root;
}

// System calls until it is known what the container gets; -1: nothing, or it cannot be counted here.
long calls_to_decide(const std::string& root, const Request& request, const Config& config) {
  NodeSettings settings;
  settings.root = root;
  const auto counted = run_traced(
      [&] {
        const auto inventory = read_node_for({.admin = config, .request = request}, settings, false);
        if (!inventory) return 1;
        const Candidates among(*inventory, request, config);
        return make_plan({among, {}, "/views/key", false}) ? 0 : 1;
      },
      -1);
  return counted.possible && counted.exit_code == 0 ? counted.calls : -1;
}

Request request_for(const std::string& list) {
  Request request;
  request.wish = *parse_wish(list, "a test");
  return request;
}

Request given_nodes() {
  Request request = request_for("all");
  request.given_is_the_grant = true;
  request.given = {{"/dev/infiniband/uverbs3", 'c', 231, 195}};
  return request;
}

Request narrowed() {
  Request request = given_nodes();
  request.narrowed_by = {*parse_wish("index:3", "a test")};
  return request;
}

// Names alone are read of the others: 32 bytes of a listing each.
constexpr long kListing = (kMany - kFew) * 48 / 8192 + 1;

TEST(Scale, ANamedHcaCostsTheSameAmongMany) {
  Config selecting;
  selecting.pools.push_back({"rails", {}, {}, {}, {}});
  selecting.pools.front().selectors.vendors = {"15b3"};
  selecting.pools.front().selectors.if_names = {"rail*"};
  selecting.pools.front().selectors.link_types = {"ether"};
  Config listed = selecting;
  listed.networks["rails"].name = "rails";
  listed.pools.front().network = "rails";
  listed.rails = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"};
  Config multi = listed;
  multi.pools.front().modes = {Mode::kSharedMulti};
  const struct {
    const char* name;
    Request request;
    Config config;
    long more;
  } rows[] = {
      {"named", request_for("mlx5_3"), {}, 0},
      {"several", request_for("mlx5_3,mlx5_1"), {}, 0},
      {"pools that select", request_for("mlx5_3"), selecting, 0},
      {"given nodes", given_nodes(), selecting, 0},
      {"narrowed by index", narrowed(), selecting, kListing},
      {"rails that are listed", request_for("mlx5_3"), listed, kListing},
      {"with GID tables", request_for("mlx5_3"), multi, kListing},
  };
  const TempDir directory;
  const std::string few = node_of(directory, kFew);
  const std::string many = node_of(directory, kMany);
  for (const auto& row : rows) {
    const long least = calls_to_decide(few, row.request, row.config);
    const long most = calls_to_decide(many, row.request, row.config);
    ASSERT_GT(least, 0) << row.name;
    EXPECT_LE(most, least + row.more) << row.name;
  }
}

// What has to look at all HCAs reads as little of each as decides.
TEST(Scale, OfAllHcasLittleIsRead) {
  Config rails;
  rails.networks["rails"].name = "rails";
  rails.pools.push_back({"rails", {}, {}, {}, "rails"});
  const struct {
    const char* name;
    Request request;
    Config config;
    long each;
  } rows[] = {
      {"a count", request_for("2"), {}, 18},
      {"rails that are not listed", request_for("mlx5_3"), rails, 1},
  };
  const TempDir directory;
  const std::string few = node_of(directory, kFew);
  const std::string many = node_of(directory, kMany);
  for (const auto& row : rows) {
    const long least = calls_to_decide(few, row.request, row.config);
    ASSERT_GT(least, 0) << row.name;
    EXPECT_LE(calls_to_decide(many, row.request, row.config), least + (kMany - kFew) * row.each + kListing) << row.name;
  }
}

TEST(Scale, DevicesReadsEachHcaOnce) {
  const auto calls = [](const std::string& root) {
    return run_traced(
               [&] {
                 Options options;
                 options.command = Command::kDevices;
                 options.node.root = root;
                 options.node.ledger = root + "/none";
                 options.node.config = {root + "/none.json", "", false};
                 if (!std::freopen("/dev/null", "w", stdout)) return 2;
                 return run_command(options);
               },
               -1)
        .calls;
  };
  const TempDir directory;
  const long few = calls(node_of(directory, kFew));
  const long more = calls(node_of(directory, kMany)) - few;
  EXPECT_GT(few, kFew);
  EXPECT_LE(more, (kMany - kFew) * 34);
}

class ScaleOfGrants : public test_support::LedgerScene {
 protected:
  long calls_to_book(const char* id, const PlannedHca& hca) const {
    const auto counted = run_traced(
        [&] {
          // A child opens its own ledger, as every call does.
          const auto ledger = Ledger::open(path_);
          if (!ledger) return 1;
          const Owner owner = container_owner(id, "/run/scale");
          const GrantUser user{owner.key, id, test_support::myself()};
          auto locked = ledger->lock({hca.name});
          if (!locked || !locked->holdings(owner, {{hca.name, hca.mode == Mode::kExclusive ? 1U : 0U}})) return 1;
          if (!locked->book(owner, {hca}, user) || !ledger->settle(owner.key)) return 1;
          return ledger->leave(owner, owner.key) ? 0 : 1;
        },
        -1);
    return counted.possible && counted.exit_code == 0 ? counted.calls : -1;
  }
};

TEST_F(ScaleOfGrants, OneMoreContainerCostsTheSame) {
  const PlannedHca shared{"mlx5_1", Mode::kShared, 1, std::nullopt};
  const PlannedHca alone{"mlx5_2", Mode::kExclusive, 1, std::nullopt};
  const auto fill = [&](unsigned from, unsigned to) {
    for (unsigned number = from; number < to; ++number) {
      const std::string id = "c" + std::to_string(number);
      const Owner owner = container_owner(id, "/run/scale");
      ASSERT_EQ(give(owner, {shared}, {owner.key, id, test_support::myself()}), "");
    }
  };
  fill(0, 2);
  const long few = calls_to_book("x", shared);
  const long few_alone = calls_to_book("x", alone);
  ASSERT_GT(few, 0);
  ASSERT_GT(few_alone, 0);
  fill(2, 300);
  EXPECT_LE(calls_to_book("x", shared), few);
  EXPECT_LE(calls_to_book("x", alone), few_alone);
}

}  // namespace
}  // namespace hook
