// Bringing rails to one GID index while other containers change the same tables. Random tables come from printed seeds.
#include "hook/rails/align/align.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "unit/rails/align_scene.hpp"

namespace {

using fabric::Address;
using fabric::Result;
using hook::Alignment;
using hook::AlignRail;
using test_support::below;
using test_support::foreign;
using test_support::KernelGidModel;
using test_support::KernelGidTable;
using test_support::kOwnNetdev;
using test_support::ModelLink;
using test_support::others_address;
using test_support::own_address;
using test_support::port_with;
using test_support::rails_of;
using test_support::Random;

class RunAlignment : public testing::Test {
 protected:
  void use(std::vector<KernelGidTable> ports) {
    model.ports = std::move(ports);
    std::vector<Address> addresses;
    for (std::size_t rail = 0; rail < model.ports.size(); ++rail)
      addresses.push_back(own_address(rail));
    link = std::make_unique<ModelLink>(model, addresses);
  }
  Result<hook::AlignReport> run(const hook::AlignLimits& limits = {}) {
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
  // Of every rail: the address alone is configured, and it has its GIDs.
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

TEST_F(RunAlignment, BringsRailsTogether) {
  use({port_with(256, 2, 2, 0), port_with(256, 2, 0, 1), port_with(256, 2, 1, 2)});
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->text, "aligned rails at GID index 7: rail1 3->7, rail2 5->7");
  EXPECT_EQ(report->rounds, 1U);
  EXPECT_EQ(report->slots_moved, 4U);
  EXPECT_EQ(report->placeholders, 3U + 2U);
  for (std::size_t rail = 0; rail < 3; ++rail)
    EXPECT_EQ(index(rail), 7U);
  expect_restored();
}

TEST_F(RunAlignment, TouchesNothingWhenTheyAgree) {
  use({port_with(256, 2, 1, 0), port_with(256, 2, 1, 1)});
  link->fails = [](const std::string& what) {
    return what.starts_with("read") ? Result<void>() : fabric::make_error("{}", what);
  };
  const auto report = run();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->text, "");
  EXPECT_EQ(report->rounds, 0U);
  EXPECT_EQ(report->done, (Alignment{5, {}}));
  EXPECT_LE(link->slots_read, 2 * 6U);
}

TEST_F(RunAlignment, ReadsOnAsFarAsAPlanTakes) {
  // Between 2, where the address of rail 0 is, and 62 everything is taken; on rail 1 slot 2 is somebody else's.
  KernelGidTable port = port_with(256, 1, 1, 0);
  for (unsigned i = 1; i < 60; ++i)
    port.add(others_address(i + 10), i + 10);
  use({port, port_with(256, 1, 0, 1)});
  model.ports[1].add(others_address(500), 500);
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->done.index, 62U);
  EXPECT_EQ(index(0), 62U);
  expect_restored();
}

TEST_F(RunAlignment, SlotsThatAreNotFreeAlthoughTheyLookSo) {
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
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(index(0), index(1));
  EXPECT_LE(report->rounds, 3U);
  expect_restored();
}

TEST_F(RunAlignment, SlotsThatComeFreeMeanwhileAreFilled) {
  use({port_with(64, 2, 4, 0), port_with(64, 2, 0, 1)});
  model.ports[1].add(others_address(20), 20);
  bool left = false;
  link->fails = [&](const std::string& what) {
    // All placeholders are there: the other container, whose slots are below the target, goes.
    if (what == "read 1" && !left && model.ports[1].find(hook::placeholder(3), kOwnNetdev)) {
      left = true;
      model.queue.push_back({1, false, others_address(20), 20});
    }
    return Result<void>();
  };
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(left);
  EXPECT_EQ(index(1), 11U);
  EXPECT_EQ(report->rounds, 1U);
  EXPECT_EQ(report->placeholders, 5U);
  expect_restored();
}

TEST_F(RunAlignment, PlaceholdersOfTheDead) {
  use({port_with(64, 2, 3, 0), port_with(64, 2, 0, 1)});
  for (unsigned n = 0; n < 4; ++n)
    model.ports[1].add(hook::placeholder(n), 77);
  const auto before = foreign(model.ports[1]);
  const auto start = link->now();
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_LT(link->now() - start, std::chrono::milliseconds(100));
  EXPECT_EQ(report->text, "aligned rails at GID index 13: rail0 9->13, rail1 3->13");
  EXPECT_EQ(report->rounds, 1U);
  EXPECT_EQ(report->placeholders, 3U + 2U);
  EXPECT_EQ(foreign(model.ports[1]), before);
  expect_restored();
}

TEST_F(RunAlignment, FullTable) {
  use({port_with(16, 2, 6, 0), port_with(16, 2, 0, 1)});
  ASSERT_TRUE(run());
  EXPECT_EQ(index(1), 15U);
  expect_restored();
  // No slot is left for the address but its own.
  use({port_with(16, 2, 0, 0), port_with(16, 2, 1, 1)});
  for (unsigned i = 0; i < 8; ++i) {
    model.ports[0].add(others_address(50 + i), 50 + i);
    model.ports[1].add(others_address(50 + i), 50 + i);
  }
  const auto report = run();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message,
            "cannot bring 2 rails to one GID index: no index is within reach of all with 256 placeholders; fullest is "
            "the table of `rail0`, 16 of 16 slots taken (GID indices now: 3: rail0; 5: rail1)");
  expect_restored();
}

// Somebody takes every slot that comes free.
TEST_F(RunAlignment, AnAddressThatFoundNoSlotIsAddedAgain) {
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

TEST_F(RunAlignment, EveryCallCanFailOnce) {
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
      return Result<void>(fabric::sys_error(ENOBUFS, "cannot {}", what));
    };
    const auto report = run();
    if (failing == 0) calls = 200;
    if (failed.empty()) break;
    expect_restored();
    // A placeholder that goes at the second try harms nobody.
    if (report && failed.starts_with("remove_placeholder")) continue;
    ASSERT_FALSE(report) << failed;
    EXPECT_NE(report.error().message.find("cannot " + failed), std::string::npos) << report.error().message;
    EXPECT_NE(report.error().message.find("(GID indices now: "), std::string::npos);
    EXPECT_EQ(report.error().code, ENOBUFS);
  }
}

// With a table that the placeholders fill, where the address finds a slot only after they are gone.
TEST_F(RunAlignment, AnAddressIsPutBackAtTheSixthTry) {
  use({port_with(16, 2, 6, 0), port_with(16, 2, 0, 1)});
  unsigned tries = 0;
  link->fails = [&](const std::string& what) {
    if (what != "add_address 1" || ++tries > 5) return Result<void>();
    return Result<void>(fabric::sys_error(ENOBUFS, "cannot add"));
  };
  const auto start = link->now();
  const auto report = run();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message,
            "cannot align `rail1`: cannot add: No buffer space available (GID indices now: 15: rail0; 3: rail1)");
  EXPECT_EQ(tries, 6U);
  EXPECT_LT(link->now() - start, std::chrono::milliseconds(100));
  expect_restored();
}

TEST_F(RunAlignment, APlaceholderGoesBeforeTheAddressComesBack) {
  use({port_with(16, 2, 6, 0), port_with(16, 2, 0, 1)});
  bool failed = false;
  link->fails = [&](const std::string& what) {
    if (what != "read 1" || failed || !model.ports[1].find(hook::placeholder(6), kOwnNetdev)) return Result<void>();
    failed = true;
    return Result<void>(fabric::sys_error(EIO, "cannot read"));
  };
  const auto start = link->now();
  EXPECT_FALSE(run());
  EXPECT_TRUE(failed);
  EXPECT_LT(link->now() - start, std::chrono::milliseconds(100));
  expect_restored();
}

TEST_F(RunAlignment, AnAddressThatCannotBePutBackIsNamed) {
  use({port_with(64, 2, 2, 0), port_with(64, 2, 0, 1), port_with(64, 2, 1, 2)});
  link->fails = [](const std::string& what) {
    return what == "add_address 1" ? Result<void>(fabric::sys_error(EPERM, "cannot add")) : Result<void>();
  };
  const auto report = run();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message,
            "cannot align `rail1`: cannot add: Operation not permitted; `rail1` has lost its address 10.1.1.2: cannot "
            "add: Operation not permitted (GID indices now: 5: rail2; 7: rail0; none: rail1)");
  EXPECT_TRUE(link->configured[1].empty());
  EXPECT_EQ(link->configured[2], std::set<Address>{own_address(2)});
}

TEST_F(RunAlignment, AKernelThatNeverAnswers) {
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
      const auto gone = here_.begin() + below(random_, static_cast<unsigned>(here_.size()));
      model_.queue.push_back({gone->first, false, others_address(gone->second), gone->second});
      here_.erase(gone);
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

TEST_F(RunAlignment, OthersComeAndGoBetweenAnyTwoSteps) {
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
