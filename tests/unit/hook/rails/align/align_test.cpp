// One GID index for all rails: the plan against the kernel's first fit, then carried out while other containers change
// the same tables. Random tables come from printed seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <set>

#include "hook/rails/align/align.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "unit/hook/rails/kernel_gid_model.hpp"

namespace hook {
namespace {

using namespace fabric;
using namespace test_support;
using Random = std::mt19937;

// 0 to limit - 1.
unsigned below(Random& random, unsigned limit) {
  return static_cast<unsigned>(random()) % limit;
}

Address own_address(std::size_t rail) {
  return address(fmt::format("10.1.{}.2", rail));
}

Address others_address(unsigned netdev) {
  return address(fmt::format("10.9.{}.{}", netdev / 256, netdev % 256));
}

// Makes a port with GIDs of other containers and then the rail's address.
KernelGidTable port_with(unsigned length, unsigned types, unsigned others_before, std::uint8_t rail) {
  KernelGidTable port(length, types, rail);
  for (unsigned i = 0; i < others_before; ++i)
    port.add(others_address(i + 10), i + 10);
  port.add(own_address(rail), kOwnNetdev);
  return port;
}

// Makes rails "rail0" and so on, one for each port, with complete tables.
std::vector<AlignRail> rails_of(const std::vector<KernelGidTable>& ports) {
  std::vector<AlignRail> rails;
  for (unsigned rail = 0; rail < ports.size(); ++rail)
    rails.push_back({rail, fmt::format("rail{}", rail), own_address(rail), ports[rail].read(ports[rail].length())});
  return rails;
}

// Returns the slots without those of the container itself.
std::vector<KernelGidTable::Slot> foreign(const KernelGidTable& port) {
  auto slots = port.slots();
  for (auto& slot : slots)
    if (slot.netdev == kOwnNetdev) slot = {};
  return slots;
}

// Carries out the move in the steps of AlignMove.
void carry_out(const AlignMove& move, std::size_t rail, KernelGidTable& port) {
  port.remove(own_address(rail), kOwnNetdev);
  for (unsigned n = 0; n < move.fill; ++n)
    port.add(placeholder(n), kOwnNetdev);
  for (const unsigned n : move.release)
    port.remove(placeholder(n), kOwnNetdev);
  port.add(own_address(rail), kOwnNetdev);
  for (unsigned n = 0; n < move.fill; ++n)
    port.remove(placeholder(n), kOwnNetdev);
}

std::string as_text(const Result<Alignment>& plan, const std::vector<AlignRail>& rails) {
  if (!plan) return plan.error().message;
  if (plan->moves.empty()) return fmt::format("{}: none", plan->index);
  std::string text = fmt::format("{}:", plan->index);
  for (const AlignMove& move : plan->moves)
    text += fmt::format(" {} {}+{}", rails[move.rail].name, move.from, move.fill);
  return text;
}

KernelGidTable with_hole(KernelGidTable port, unsigned netdev) {
  port.remove(others_address(netdev), netdev);
  return port;
}

TEST(PlanAlignment, FindsTheLowestCommonIndex) {
  KernelGidTable down = port_with(16, 2, 0, 1);
  down.at(0) = down.at(1) = {};
  KernelGidTable odd = port_with(16, 2, 0, 1);
  odd.remove(own_address(1), kOwnNetdev);
  odd.set(2, others_address(10), true, 10);
  odd.add(own_address(1), kOwnNetdev);
  // Expected: "INDEX: moves", or the error.
  const std::tuple<const char*, std::vector<KernelGidTable>, const char*> rows[] = {
      {"they agree", {port_with(16, 2, 1, 0), port_with(16, 2, 1, 1)}, "5: none"},
      {"one rail", {port_with(16, 2, 1, 0)}, "5: none"},
      {"no rail", {}, "0: none"},
      {"v1 and v2", {port_with(16, 2, 1, 0), port_with(16, 2, 0, 1)}, "5: rail1 3+2"},
      {"v2 only", {port_with(16, 1, 3, 0), port_with(16, 1, 1, 1)}, "4: rail1 2+3"},
      {"a container left", {with_hole(port_with(16, 2, 2, 0), 10), port_with(16, 2, 0, 1)}, "3: rail0 7+1"},
      {"both kinds of port", {port_with(16, 2, 0, 0), port_with(16, 1, 0, 1)}, "3: rail1 1+3"},
      {"no link-local GIDs", {port_with(16, 2, 1, 0), down}, "5: rail1 3+2"},
      {"every second index, of even and of odd ones",
       {port_with(16, 2, 0, 0), odd},
       "cannot move 2 rails to one GID index: with up to 256 placeholder addresses for each rail, no index is free for "
       "all rails; the GID table of `rail1` is the fullest: 5 of 16 slots are in use"},
      {"a full table", {port_with(16, 2, 6, 0), port_with(128, 2, 0, 1)}, "15: rail1 3+7"},
      {"nothing below is free",
       {port_with(128, 2, 7, 0), port_with(16, 2, 5, 1)},
       "cannot move 2 rails to one GID index: with up to 256 placeholder addresses for each rail, no index is free for "
       "all rails; the GID table of `rail1` is the fullest: 14 of 16 slots are in use"},
      {"no v2 GID",
       {port_with(16, 2, 7, 0), port_with(16, 2, 0, 1)},
       "cannot align `rail0`: its address 10.1.0.2 has no RoCE v2 GID in the first 16 slots of the GID table"}};
  for (const auto& [name, ports, expected] : rows) {
    SCOPED_TRACE(name);
    const auto rails = rails_of(ports);
    EXPECT_EQ(as_text(plan_alignment(rails), rails), expected);
  }
}

TEST(PlanAlignment, RefusesInvalidTablesAndReturnsText) {
  auto rails = rails_of({port_with(16, 2, 1, 0), port_with(16, 2, 0, 1)});
  rails[1].table.slots.push_back({9, own_address(1), true});
  EXPECT_EQ(plan_alignment(rails).error().message,
            "cannot align `rail1`: its address 10.1.1.2 is in the GID table twice");
  KernelGidTable both = port_with(16, 2, 0, 0);
  both.add(own_address(1), kOwnNetdev);
  EXPECT_EQ(plan_alignment(rails_of({both, both})).error().message,
            "cannot align `rail0` and `rail1`: they are on one port, and only one GID of a port can have an index");
  const auto three = rails_of({port_with(16, 2, 2, 0), port_with(16, 2, 0, 1), port_with(16, 2, 1, 2)});
  EXPECT_EQ(to_string(*plan_alignment(three), three), "aligned rails at GID index 7: rail1 3->7, rail2 5->7");
  EXPECT_EQ(to_string(Alignment{3, {}}, three), "");
  EXPECT_EQ(fabric::to_string(placeholder(255)), "192.0.2.255");
}

TEST(PlanAlignment, RespectsLimitsOfPlaceholdersAndReadSlots) {
  const auto rails = rails_of({port_with(1024, 1, 300, 0), port_with(1024, 1, 0, 1)});
  EXPECT_FALSE(plan_alignment(rails));
  EXPECT_FALSE(plan_alignment(rails, 1000)) << "192.0.2.0/24 has no more";
  const auto near = rails_of({port_with(1024, 1, 254, 0), port_with(1024, 1, 0, 1)});
  EXPECT_EQ(as_text(plan_alignment(near), near), "255: rail1 1+255");
  EXPECT_FALSE(plan_alignment(near, 254));
  const auto beyond = rails_of({port_with(1024, 1, 255, 0), port_with(1024, 1, 0, 1)});
  EXPECT_FALSE(plan_alignment(beyond)) << "no queue pair can use index 256";
  EXPECT_FALSE(plan_alignment(rails_of({port_with(1024, 1, 300, 0), port_with(1024, 1, 300, 1)})))
      << "an index that rails have in common is no better";
  auto partly = rails_of({port_with(256, 2, 3, 0), port_with(256, 2, 0, 1)});
  partly[1].table.read = 4;
  EXPECT_FALSE(plan_alignment(partly));
  partly[1].table.read = 10;
  EXPECT_TRUE(plan_alignment(partly));
}

KernelGidTable random_port(Random& random, unsigned length, unsigned types, std::uint8_t rail) {
  KernelGidTable port(length, types, rail);
  if (below(random, 8) == 0)
    for (unsigned i = 0; i < types; ++i)
      port.at(i) = {};
  const unsigned fullness = below(random, 101);
  const bool in_pairs = below(random, 4) != 0;
  for (unsigned index = types; index + 1 < length; ++index) {
    if (below(random, 100) >= fullness || !port.slots()[index].gid.is_zero()) continue;
    const unsigned netdev = 10 + index;
    port.set(index, others_address(netdev), types == 1, netdev);
    if (in_pairs && types == 2) port.set(++index, others_address(netdev), true, netdev);
  }
  port.add(own_address(rail), kOwnNetdev);
  // Some containers ended since, so that the address is not always in the first free slot.
  for (unsigned index = types; index < length; ++index)
    if (port.slots()[index].netdev >= 10 && below(random, 6) == 0) port.at(index) = {};
  return port;
}

// Tries every number of placeholders, and to release each of them.
bool brute_force_reaches(const KernelGidTable& port, std::size_t rail, unsigned index, unsigned most) {
  if (port.find(own_address(rail), kOwnNetdev) == index) return true;
  KernelGidTable filled = port;
  filled.remove(own_address(rail), kOwnNetdev);
  for (unsigned fill = 1; fill <= most; ++fill) {
    filled.add(placeholder(fill - 1), kOwnNetdev);
    for (unsigned released = 0; released < fill; ++released) {
      KernelGidTable tried = filled;
      tried.remove(placeholder(released), kOwnNetdev);
      tried.add(own_address(rail), kOwnNetdev);
      if (tried.find(own_address(rail), kOwnNetdev) == index) return true;
    }
  }
  return false;
}

bool brute_force_finds(const std::vector<KernelGidTable>& ports, unsigned most, unsigned up_to) {
  for (unsigned index = 0; index < up_to; ++index) {
    bool all = true;
    for (std::size_t rail = 0; all && rail < ports.size(); ++rail)
      all = index < ports[rail].length() && brute_force_reaches(ports[rail], rail, index, most);
    if (all) return true;
  }
  return false;
}

// Carries out the plan and expects all rails at its index.
void expect_reached(const Alignment& plan, std::vector<KernelGidTable>& ports) {
  for (const AlignMove& move : plan.moves)
    carry_out(move, move.rail, ports[move.rail]);
  for (std::size_t rail = 0; rail < ports.size(); ++rail)
    EXPECT_EQ(ports[rail].find(own_address(rail), kOwnNetdev), plan.index);
}

void check_plan(std::vector<KernelGidTable> ports, unsigned most) {
  const auto rails = rails_of(ports);
  const auto plan = plan_alignment(rails, most);
  const auto has_gid = [](const AlignRail& rail) { return v2_index(rail.table, rail.address).has_value(); };
  if (!std::all_of(rails.begin(), rails.end(), has_gid)) {
    EXPECT_FALSE(plan);
    return;
  }
  const unsigned first = *v2_index(rails.front().table, rails.front().address);
  const bool agree = std::all_of(rails.begin(), rails.end(),
                                 [&](const AlignRail& rail) { return v2_index(rail.table, rail.address) == first; });
  if (!plan) {
    EXPECT_FALSE(brute_force_finds(ports, most, ports.front().length())) << plan.error().message;
    return;
  }
  EXPECT_EQ(plan->moves.empty(), agree);
  if (!agree) {
    EXPECT_FALSE(brute_force_finds(ports, most, plan->index)) << "not the lowest";
  }
  const auto before = ports;
  for (const auto& move : plan->moves)
    EXPECT_LE(move.fill, most);
  expect_reached(*plan, ports);
  for (std::size_t rail = 0; rail < ports.size(); ++rail) {
    EXPECT_EQ(foreign(ports[rail]), foreign(before[rail]));
    for (const auto& slot : ports[rail].slots())
      EXPECT_TRUE(slot.netdev != kOwnNetdev || slot.gid == own_address(rail)) << "a placeholder stays";
  }
}

TEST(PlanAlignment, MatchesBruteForce) {
  const unsigned seed = std::random_device()();
  Random random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (int trial = 0; trial < 300 && !HasFailure(); ++trial) {
    std::vector<KernelGidTable> ports;
    const unsigned length = below(random, 4) == 0 ? 32 : 16;
    const unsigned types = 1 + below(random, 2);
    const unsigned count = 1 + below(random, 4);
    for (unsigned rail = 0; rail < count; ++rail)
      ports.push_back(
          random_port(random, length, below(random, 8) == 0 ? 3 - types : types, static_cast<std::uint8_t>(rail)));
    check_plan(std::move(ports), 1 + below(random, 20));
  }
}

TEST(PlanAlignment, HandlesLargeTables) {
  const unsigned seed = std::random_device()();
  Random random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (const unsigned length : {128U, 256U, 1024U}) {
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<KernelGidTable> ports;
      for (std::uint8_t rail = 0; rail < 8; ++rail)
        ports.push_back(random_port(random, length, 2, rail));
      const auto plan = plan_alignment(rails_of(ports));
      if (plan) expect_reached(*plan, ports);
    }
  }
}

TEST(PlanAlignment, HandlesSixtyFourRails) {
  std::vector<KernelGidTable> ports;
  for (std::uint8_t rail = 0; rail < 64; ++rail)
    ports.push_back(port_with(256, 2, 120 - rail, rail));
  expect_reached(must(plan_alignment(rails_of(ports))), ports);
}

class RunAlignment : public testing::Test {
 protected:
  void use(std::vector<KernelGidTable> ports) {
    model.ports = std::move(ports);
    std::vector<Address> addresses;
    for (std::size_t rail = 0; rail < model.ports.size(); ++rail)
      addresses.push_back(own_address(rail));
    link = std::make_unique<ModelLink>(model, addresses);
  }
  Result<AlignReport> run(const AlignLimits& limits = {}) {
    auto rails = rails_of(model.ports);
    for (AlignRail& rail : rails)
      rail.table = {};
    auto report = run_alignment(std::move(rails), *link, limits);
    model.work();
    return report;
  }
  std::optional<unsigned> index(std::size_t rail) const {
    return model.ports[rail].find(own_address(rail), kOwnNetdev);
  }
  // Expects of every rail that only its address is configured and that it has its GIDs.
  void expect_restored() const {
    for (std::size_t rail = 0; rail < model.ports.size(); ++rail) {
      EXPECT_EQ(link->configured[rail], std::set<Address>{own_address(rail)}) << "rail " << rail;
      EXPECT_TRUE(index(rail)) << "rail " << rail;
      const auto& slots = model.ports[rail].slots();
      EXPECT_EQ(std::count_if(slots.begin(), slots.end(), [](const auto& slot) { return slot.netdev == kOwnNetdev; }),
                model.ports[rail].types())
          << "rail " << rail;
    }
  }

  KernelGidModel model;
  std::unique_ptr<ModelLink> link;
};

TEST_F(RunAlignment, AlignsRailsAndChangesNothingIfTheyAgree) {
  use({port_with(256, 2, 2, 0), port_with(256, 2, 0, 1), port_with(256, 2, 1, 2)});
  const auto report = must(run());
  EXPECT_EQ(report.text, "aligned rails at GID index 7: rail1 3->7, rail2 5->7");
  EXPECT_EQ(report.rounds, 1U);
  EXPECT_EQ(report.slots_moved, 4U);
  EXPECT_EQ(report.placeholders, 3U + 2U);
  for (std::size_t rail = 0; rail < 3; ++rail)
    EXPECT_EQ(index(rail), 7U);
  expect_restored();
  use({port_with(256, 2, 1, 0), port_with(256, 2, 1, 1)});
  link->fails = [](const std::string& what) {
    return what.starts_with("read") ? Result<void>() : base::make_error("{}", what);
  };
  const auto agreed = must(run());
  EXPECT_EQ(agreed.text, "");
  EXPECT_EQ(agreed.rounds, 0U);
  EXPECT_EQ(agreed.done, (Alignment{5, {}}));
  EXPECT_LE(link->slots_read, 2 * 6U);
}

TEST_F(RunAlignment, ReadsMoreSlotsIfThePlanNeedsThem) {
  // On rail 0 slots 3 to 61 are in use, behind its address in slot 2. On rail 1 another container has slot 2.
  KernelGidTable port = port_with(256, 1, 1, 0);
  for (unsigned i = 1; i < 60; ++i)
    port.add(others_address(i + 10), i + 10);
  use({port, port_with(256, 1, 0, 1)});
  model.ports[1].add(others_address(500), 500);
  EXPECT_EQ(must(run()).done.index, 62U);
  EXPECT_EQ(index(0), 62U);
  expect_restored();
}

TEST_F(RunAlignment, DetectsSlotsInUseThatReadAsEmpty) {
  use({port_with(64, 2, 3, 0), port_with(64, 2, 0, 1)});
  KernelGidTable& port = model.ports[1];
  port.remove(own_address(1), kOwnNetdev);
  for (unsigned i = 0; i < 2; ++i) {
    port.set(3 + 4 * i, others_address(20 + i), true, 20 + i);
    port.set(5 + 4 * i, others_address(30 + i), false, 30 + i);
  }
  port.at(3).is_hidden = port.at(5).is_hidden = true;
  port.at(7).is_dying = port.at(9).is_dying = true;
  port.add(own_address(1), kOwnNetdev);
  const auto report = must(run());
  EXPECT_EQ(index(0), index(1));
  EXPECT_LE(report.rounds, 3U);
  expect_restored();
}

// A queue pair holds its source GID: after the address is removed, the slot reads as empty and stays in use until the
// queue pair ends, so that the address takes another slot.
TEST_F(RunAlignment, AlignsARailWhoseGidAQueuePairHolds) {
  for (const unsigned types : {1U, 2U}) {
    for (const bool was_added_again : {false, true}) {
      SCOPED_TRACE(fmt::format("{} types, {}", types, was_added_again));
      use({port_with(64, types, 1, 0), port_with(64, types, 0, 1)});
      KernelGidTable& port = model.ports[1];
      const unsigned held = index(1).value();
      for (unsigned type = 0; type < types; ++type)
        port.at(held - type).is_used = true;
      if (was_added_again) {
        port.remove(own_address(1), kOwnNetdev);
        port.add(own_address(1), kOwnNetdev);
        ASSERT_NE(index(1), held);
      }
      const auto report = must(run());
      EXPECT_EQ(index(1), index(0));
      EXPECT_EQ(index(1), report.done.index);
      EXPECT_NE(index(1), held);
      for (std::size_t rail = 0; rail < 2; ++rail)
        EXPECT_EQ(link->configured[rail], std::set<Address>{own_address(rail)}) << "rail " << rail;
    }
  }
}

TEST_F(RunAlignment, FillsSlotsThatBecomeFreeMeanwhile) {
  use({port_with(64, 2, 4, 0), port_with(64, 2, 0, 1)});
  model.ports[1].add(others_address(20), 20);
  bool left = false;
  link->fails = [&](const std::string& what) {
    // Once all placeholders are there, the other container ends. Its slots are below the target.
    if (what == "read 1" && !left && model.ports[1].find(placeholder(3), kOwnNetdev)) {
      left = true;
      model.queue.push_back({1, false, others_address(20), 20});
    }
    return Result<void>();
  };
  const auto report = must(run());
  EXPECT_TRUE(left);
  EXPECT_EQ(index(1), 11U);
  EXPECT_EQ(report.rounds, 1U);
  EXPECT_EQ(report.placeholders, 5U);
  expect_restored();
}

TEST_F(RunAlignment, SkipsPlaceholdersOfAKilledContainer) {
  use({port_with(64, 2, 3, 0), port_with(64, 2, 0, 1)});
  for (unsigned n = 0; n < 4; ++n)
    model.ports[1].add(placeholder(n), 77);
  const auto before = foreign(model.ports[1]);
  const auto start = link->now();
  const auto report = must(run());
  EXPECT_LT(link->now() - start, std::chrono::milliseconds(100));
  EXPECT_EQ(report.text, "aligned rails at GID index 13: rail0 9->13, rail1 3->13");
  EXPECT_EQ(report.rounds, 1U);
  EXPECT_EQ(report.placeholders, 3U + 2U);
  EXPECT_EQ(foreign(model.ports[1]), before);
  expect_restored();
}

TEST_F(RunAlignment, UsesTheLastSlotAndFailsOnAFullTable) {
  use({port_with(16, 2, 6, 0), port_with(16, 2, 0, 1)});
  ASSERT_TRUE(run());
  EXPECT_EQ(index(1), 15U);
  expect_restored();
  // The only slots for the address are its own.
  use({port_with(16, 2, 0, 0), port_with(16, 2, 1, 1)});
  for (unsigned i = 0; i < 8; ++i) {
    model.ports[0].add(others_address(50 + i), 50 + i);
    model.ports[1].add(others_address(50 + i), 50 + i);
  }
  EXPECT_EQ(error_message(run()),
            "cannot move 2 rails to one GID index: with up to 256 placeholder addresses for each rail, no index is "
            "free for all rails; the GID table of `rail0` is the fullest: 16 of 16 slots are in use (GID indices now: "
            "3: rail0; 5: rail1)");
  expect_restored();
}

// Another container takes every slot that becomes free.
TEST_F(RunAlignment, AddsAddressAgainIfItGotNoSlot) {
  use({port_with(16, 2, 5, 0), port_with(16, 2, 0, 1)});
  unsigned thief = 100;
  link->fails = [&](const std::string& what) {
    if (what == "add_address 1" && thief < 110) {
      for (; thief < 110; ++thief)
        model.queue.push_back({1, true, others_address(thief), thief});
    }
    return Result<void>();
  };
  bool left = false;
  link->meanwhile = [&] {
    model.work(1);
    if (left || thief < 110 || link->now().time_since_epoch() < std::chrono::milliseconds(1200)) return;
    left = true;
    for (unsigned i = 100; i < 110; ++i)
      model.queue.push_back({1, false, others_address(i), i});
  };
  (void)run();
  expect_restored();
}

TEST_F(RunAlignment, RestoresAddressesIfAnyCallFails) {
  const std::vector<KernelGidTable> ports = {port_with(64, 2, 2, 0), port_with(64, 2, 0, 1), port_with(64, 2, 1, 2)};
  unsigned calls = 1;
  for (unsigned failing = 0; failing < calls; ++failing) {
    SCOPED_TRACE(failing);
    use(ports);
    unsigned call = 0;
    std::string failed;
    link->fails = [&](const std::string& what) {
      if (call++ != failing) return Result<void>();
      failed = what;
      return Result<void>(base::sys_error(ENOBUFS, "cannot {}", what));
    };
    const auto report = run();
    if (failing == 0) calls = 200;
    if (failed.empty()) break;
    expect_restored();
    // Removing a placeholder at the second try is no error.
    if (report && failed.starts_with("remove_placeholder")) continue;
    ASSERT_FALSE(report) << failed;
    EXPECT_TRUE(has_text(report.error().message, "cannot " + failed));
    EXPECT_TRUE(has_text(report.error().message, "(GID indices now: "));
    EXPECT_EQ(report.error().code, ENOBUFS);
  }
}

// In a table that the placeholders fill, the address gets a slot only after they are removed.
TEST_F(RunAlignment, RestoresAddressAtTheSixthTry) {
  use({port_with(16, 2, 6, 0), port_with(16, 2, 0, 1)});
  unsigned tries = 0;
  link->fails = [&](const std::string& what) {
    if (what != "add_address 1" || ++tries > 5) return Result<void>();
    return Result<void>(base::sys_error(ENOBUFS, "cannot add"));
  };
  const auto start = link->now();
  EXPECT_EQ(error_message(run()),
            "cannot align `rail1`: cannot add: No buffer space available (GID indices now: 15: rail0; 3: rail1)");
  EXPECT_EQ(tries, 6U);
  EXPECT_LT(link->now() - start, std::chrono::milliseconds(100));
  expect_restored();
}

TEST_F(RunAlignment, RemovesPlaceholderBeforeTheAddressIsAdded) {
  use({port_with(16, 2, 6, 0), port_with(16, 2, 0, 1)});
  bool failed = false;
  link->fails = [&](const std::string& what) {
    if (what != "read 1" || failed || !model.ports[1].find(placeholder(6), kOwnNetdev)) return Result<void>();
    failed = true;
    return Result<void>(base::sys_error(EIO, "cannot read"));
  };
  const auto start = link->now();
  EXPECT_FALSE(run());
  EXPECT_TRUE(failed);
  EXPECT_LT(link->now() - start, std::chrono::milliseconds(100));
  expect_restored();
}

TEST_F(RunAlignment, NamesAddressThatCannotBeRestored) {
  use({port_with(64, 2, 2, 0), port_with(64, 2, 0, 1), port_with(64, 2, 1, 2)});
  link->fails = [](const std::string& what) {
    return what == "add_address 1" ? Result<void>(base::sys_error(EPERM, "cannot add")) : Result<void>();
  };
  EXPECT_EQ(error_message(run()),
            "cannot align `rail1`: cannot add: Operation not permitted; `rail1` has lost its address 10.1.1.2: cannot "
            "add: Operation not permitted (GID indices now: 5: rail2; 7: rail0; none: rail1)");
  EXPECT_TRUE(link->configured[1].empty());
  EXPECT_EQ(link->configured[2], std::set<Address>{own_address(2)});
}

TEST_F(RunAlignment, FailsInTimeIfTheKernelDoesNothing) {
  use({port_with(64, 2, 2, 0), port_with(64, 2, 0, 1)});
  link->meanwhile = [] {};
  const auto start = link->now();
  EXPECT_FALSE(run());
  EXPECT_LT(link->now() - start, std::chrono::milliseconds(3200));
  expect_restored();
}

// Other containers: addresses of their own netdevs on the same ports.
class Others {
 public:
  Others(KernelGidModel& model, Random& random, unsigned percent) : model_(model), random_(random), percent_(percent) {}

  void act() {
    if (below(random_, 100) >= percent_) return;
    const std::size_t port = below(random_, static_cast<unsigned>(model_.ports.size()));
    if (!here_.empty() && below(random_, 2) == 0) {
      const auto removed = here_.begin() + below(random_, static_cast<unsigned>(here_.size()));
      model_.queue.push_back({removed->first, false, others_address(removed->second), removed->second});
      here_.erase(removed);
    } else if (here_.size() < 12) {
      here_.emplace_back(port, ++netdev_);
      model_.queue.push_back({port, true, others_address(netdev_), netdev_});
    }
  }

 private:
  KernelGidModel& model_;
  Random& random_;
  unsigned percent_;
  unsigned netdev_ = 1000;
  std::vector<std::pair<std::size_t, unsigned>> here_;
};

TEST_F(RunAlignment, AlignsWhileOtherContainersStartAndEnd) {
  const unsigned seed = std::random_device()();
  Random random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  unsigned done = 0;
  unsigned retried = 0;
  constexpr unsigned kTrials = 600;
  for (unsigned trial = 0; trial < kTrials && !HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    std::vector<KernelGidTable> ports;
    for (std::uint8_t rail = 0; rail < 4; ++rail)
      ports.push_back(port_with(128, 1 + trial % 2, below(random, 6), rail));
    use(ports);
    Others others(model, random, trial % 10);
    link->meanwhile = [&] {
      others.act();
      model.work(below(random, 4));
    };
    const auto report = run({.max_placeholders = 64, .rounds = 3});
    expect_restored();
    EXPECT_LE(link->most_placeholders, 64U);
    for (std::size_t rail = 0; report && rail < 4; ++rail)
      EXPECT_EQ(index(rail), report->done.index);
    done += report.has_value();
    retried += report && report->rounds > 1;
  }
  RecordProperty("done", static_cast<int>(done));
  RecordProperty("retried", static_cast<int>(retried));
  EXPECT_GT(done, kTrials * 8 / 10);
}

}  // namespace
}  // namespace hook
