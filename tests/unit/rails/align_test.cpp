// One GID index for all rails: the plan against the kernel's first fit. Random tables come from printed seeds. Carrying
// it out: hook_align_run_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "unit/rails/align_scene.hpp"

namespace {

using fabric::Result;
using hook::Alignment;
using hook::AlignRail;
using test_support::below;
using test_support::foreign;
using test_support::KernelGidTable;
using test_support::kOwnNetdev;
using test_support::others_address;
using test_support::own_address;
using test_support::port_with;
using test_support::rails_of;
using test_support::Random;

// The move as its definition says; the placeholders stay when `keep`.
void carry_out(const hook::AlignMove& move, std::size_t rail, KernelGidTable& port) {
  port.remove(own_address(rail), kOwnNetdev);
  for (unsigned n = 0; n < move.fill; ++n)
    port.add(hook::placeholder(n), kOwnNetdev);
  for (const unsigned n : move.release)
    port.remove(hook::placeholder(n), kOwnNetdev);
  port.add(own_address(rail), kOwnNetdev);
  for (unsigned n = 0; n < move.fill; ++n)
    port.remove(hook::placeholder(n), kOwnNetdev);
}

struct PlanRow {
  const char* name;
  std::vector<KernelGidTable> ports;
  const char* expected;  // "INDEX: moves", or the error
};

std::string as_text(const Result<Alignment>& plan, const std::vector<AlignRail>& rails) {
  if (!plan) return plan.error().message;
  if (plan->moves.empty()) return fmt::format("{}: none", plan->index);
  std::string text = fmt::format("{}:", plan->index);
  for (const hook::AlignMove& move : plan->moves)
    text += fmt::format(" {} {}+{}", rails[move.rail].name, move.from, move.fill);
  return text;
}

KernelGidTable with_hole(KernelGidTable port, unsigned netdev) {
  port.remove(others_address(netdev), netdev);
  return port;
}

TEST(PlanAlignment, Table) {
  KernelGidTable down = port_with(16, 2, 0, 1);
  down.at(0) = down.at(1) = {};
  KernelGidTable odd = port_with(16, 2, 0, 1);
  odd.remove(own_address(1), kOwnNetdev);
  odd.set(2, others_address(10), true, 10);
  odd.add(own_address(1), kOwnNetdev);
  const PlanRow rows[] = {
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
       "cannot bring 2 rails to one GID index: no index is within reach of all with 256 placeholders; fullest is the "
       "table of `rail1`, 5 of 16 slots taken"},
      {"a full table", {port_with(16, 2, 6, 0), port_with(128, 2, 0, 1)}, "15: rail1 3+7"},
      {"nothing below is free",
       {port_with(128, 2, 7, 0), port_with(16, 2, 5, 1)},
       "cannot bring 2 rails to one GID index: no index is within reach of all with 256 placeholders; fullest is the "
       "table of `rail1`, 14 of 16 slots taken"},
      {"no v2 GID",
       {port_with(16, 2, 7, 0), port_with(16, 2, 0, 1)},
       "cannot align `rail0`: its address 10.1.0.2 has no RoCE v2 GID in 16 slots"},
  };
  for (const PlanRow& row : rows) {
    SCOPED_TRACE(row.name);
    const auto rails = rails_of(row.ports);
    EXPECT_EQ(as_text(plan_alignment(rails), rails), row.expected);
  }
}

TEST(PlanAlignment, WhatCannotBeRight) {
  auto rails = rails_of({port_with(16, 2, 1, 0), port_with(16, 2, 0, 1)});
  rails[1].table.slots.push_back({9, own_address(1), true});
  EXPECT_EQ(plan_alignment(rails).error().message,
            "cannot align `rail1`: its address 10.1.1.2 is in the GID table twice");
  KernelGidTable both = port_with(16, 2, 0, 0);
  both.add(own_address(1), kOwnNetdev);
  EXPECT_EQ(plan_alignment(rails_of({both, both})).error().message,
            "cannot align `rail0` and `rail1`: they are on one port, and two addresses cannot have one index");
}

TEST(PlanAlignment, BoundOfPlaceholders) {
  const auto rails = rails_of({port_with(1024, 1, 300, 0), port_with(1024, 1, 0, 1)});
  EXPECT_FALSE(plan_alignment(rails));
  EXPECT_FALSE(plan_alignment(rails, 1000)) << "192.0.2.0/24 has no more";
  const auto near = rails_of({port_with(1024, 1, 255, 0), port_with(1024, 1, 0, 1)});
  EXPECT_EQ(as_text(plan_alignment(near), near), "256: rail1 1+256");
  EXPECT_FALSE(plan_alignment(near, 255));
}

TEST(PlanAlignment, OnlyWhatWasReadCounts) {
  auto rails = rails_of({port_with(256, 2, 3, 0), port_with(256, 2, 0, 1)});
  rails[1].table.read = 4;
  EXPECT_FALSE(plan_alignment(rails));
  rails[1].table.read = 10;
  EXPECT_TRUE(plan_alignment(rails));
}

TEST(PlanAlignment, Text) {
  const auto rails = rails_of({port_with(16, 2, 2, 0), port_with(16, 2, 0, 1), port_with(16, 2, 1, 2)});
  EXPECT_EQ(to_string(*plan_alignment(rails), rails), "aligned rails at GID index 7: rail1 3->7, rail2 5->7");
  EXPECT_EQ(to_string(Alignment{3, {}}, rails), "");
  EXPECT_EQ(fabric::to_string(hook::placeholder(255)), "192.0.2.255");
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
  // Some left since, so that the address need not sit in the first free slot.
  for (unsigned index = types; index < length; ++index)
    if (port.slots()[index].netdev >= 10 && below(random, 6) == 0) port.at(index) = {};
  return port;
}

// By trying every number of placeholders, and every one of them as the place.
bool brute_force_reaches(const KernelGidTable& port, std::size_t rail, unsigned index, unsigned most) {
  if (port.find(own_address(rail), kOwnNetdev) == index) return true;
  KernelGidTable filled = port;
  filled.remove(own_address(rail), kOwnNetdev);
  for (unsigned fill = 1; fill <= most; ++fill) {
    filled.add(hook::placeholder(fill - 1), kOwnNetdev);
    for (unsigned released = 0; released < fill; ++released) {
      KernelGidTable tried = filled;
      tried.remove(hook::placeholder(released), kOwnNetdev);
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
  for (const auto& move : plan->moves) {
    EXPECT_LE(move.fill, most);
    carry_out(move, move.rail, ports[move.rail]);
  }
  for (std::size_t rail = 0; rail < ports.size(); ++rail) {
    EXPECT_EQ(ports[rail].find(own_address(rail), kOwnNetdev), plan->index);
    EXPECT_EQ(foreign(ports[rail]), foreign(before[rail]));
    for (const auto& slot : ports[rail].slots())
      EXPECT_TRUE(slot.netdev != kOwnNetdev || slot.gid == own_address(rail)) << "a placeholder stays";
  }
}

TEST(PlanAlignment, AgainstBruteForce) {
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

TEST(PlanAlignment, LargeTables) {
  const unsigned seed = std::random_device()();
  Random random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (const unsigned length : {128U, 256U, 1024U}) {
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<KernelGidTable> ports;
      for (std::uint8_t rail = 0; rail < 8; ++rail)
        ports.push_back(random_port(random, length, 2, rail));
      const auto plan = plan_alignment(rails_of(ports));
      if (!plan) continue;
      for (const auto& move : plan->moves)
        carry_out(move, move.rail, ports[move.rail]);
      for (std::size_t rail = 0; rail < ports.size(); ++rail)
        EXPECT_EQ(ports[rail].find(own_address(rail), kOwnNetdev), plan->index);
    }
  }
}

TEST(PlanAlignment, SixtyFourRails) {
  std::vector<KernelGidTable> ports;
  for (std::uint8_t rail = 0; rail < 64; ++rail)
    ports.push_back(port_with(256, 2, 120 - rail, rail));
  const auto plan = plan_alignment(rails_of(ports));
  ASSERT_TRUE(plan);
  for (const auto& move : plan->moves)
    carry_out(move, move.rail, ports[move.rail]);
  for (std::size_t rail = 0; rail < ports.size(); ++rail)
    EXPECT_EQ(ports[rail].find(own_address(rail), kOwnNetdev), plan->index);
}

}  // namespace
