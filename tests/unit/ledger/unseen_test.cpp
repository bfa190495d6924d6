// What cannot be seen is held: a look at a process or a network namespace that fails takes nobody's HCA away.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "unit/ledger/scene.hpp"

namespace {

using hook::Grant;
using hook::Ledger;
using hook::Owner;
using test_support::Child;
using test_support::hide_proc;
using test_support::in_child;
using test_support::kAlone;
using test_support::sight;

enum Seen : int { kHeld = 10, kFree, kNotPossible, kFailed };

class LedgerUnseen : public test_support::LedgerScene {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, for namespaces and mounts";
  }
  // Whether another container would be given the HCA, and whether recover() leaves the grant alone.
  static int look(const Ledger& ledger, const Owner& asking) {
    const auto locked = ledger.lock({kAlone.name});
    const auto holdings = locked ? locked->holdings(asking, {{kAlone.name, 1}}) : locked.error();
    const auto recovered = ledger.recover();
    if (!holdings || !recovered) return kFailed;
    return holdings->at(kAlone.name).exclusive_holder && recovered->returned.empty() ? kHeld : kFree;
  }
  hook::Owner pod_in(const std::string& directory) {
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/cni-1") << "";
    return pod_of(directory + "/cni-1");
  }
};

TEST_F(LedgerUnseen, AHolderThatCannotBeLookedAtHolds) {
  Child holder;
  ASSERT_EQ(give(web_, {kAlone}, {"c", "web", holder.identity()}), "");
  const auto look_hidden = [&] {
    const auto ledger = Ledger::open(path_);
    if (!ledger) return static_cast<int>(kFailed);
    return hide_proc() ? look(*ledger, db_) : static_cast<int>(kNotPossible);
  };
  EXPECT_EQ(in_child(look_hidden), kHeld);
  holder.kill();
  EXPECT_EQ(in_child(look_hidden), kHeld) << "it ended, but that cannot be seen";
  EXPECT_EQ(look(ledger_, db_), kFree);
}

TEST_F(LedgerUnseen, AnotherPidNamespaceIsRefused) {
  ASSERT_EQ(give(web_, {kAlone}, {"c", "web", test_support::myself()}), "");
  const auto open_elsewhere = [&] {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return static_cast<int>(kNotPossible);
    return in_child([&] {
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
      if (mount("proc", "/proc", "proc", 0, nullptr) != 0) return static_cast<int>(kNotPossible);
      const auto ledger = Ledger::open(path_);
      return ledger ? static_cast<int>(kFree) : ledger.error().code;
    });
  };
  EXPECT_EQ(in_child(open_elsewhere), EXDEV);
  EXPECT_EQ(look(ledger_, db_), kHeld);
}

// Metrics come from a container of its own PID namespace, in which no owner of a grant is a process.
TEST_F(LedgerUnseen, RecordsAreListedInAnotherPidNamespace) {
  ASSERT_EQ(give(web_, {kAlone}, {"c", "web", test_support::myself()}), "");
  const hook::PlannedHca other{"mlx5_1", hook::Mode::kExclusive, 1, std::nullopt};
  ASSERT_EQ(give(db_, {other}, {"d", "db", test_support::dead_process()}), "");
  const auto list_elsewhere = [&] {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return static_cast<int>(kNotPossible);
    return in_child([&] {
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
      if (mount("proc", "/proc", "proc", 0, nullptr) != 0) return static_cast<int>(kNotPossible);
      int seen = 0;
      const auto listed = Ledger::for_each_recorded_at(path_, [&](const Grant& grant) -> fabric::Result<void> {
        seen += !grant.vanished && grant.hcas.size() == 1 ? 1 : 0;
        return {};
      });
      return listed.has_value() && listed.value() ? 100 + seen : static_cast<int>(kFailed);
    });
  };
  EXPECT_EQ(in_child(list_elsewhere), 102);
  EXPECT_FALSE(
      Ledger::for_each_recorded_at(path_ + "/none", [](const Grant&) { return fabric::Result<void>(); }).value());
}

TEST_F(LedgerUnseen, ALedgerWithoutFactsMoves) {
  const std::string place = path_ + "/place";
  const auto own = std::filesystem::read_symlink(place);
  const auto note_another = [&] {
    std::filesystem::remove(place);
    std::filesystem::create_symlink("pid-1.time-2", place);
  };
  note_another();
  EXPECT_TRUE(Ledger::open(path_));
  EXPECT_EQ(std::filesystem::read_symlink(place), own);
  ASSERT_EQ(give(web_, {kAlone}, {"c", "web", test_support::myself()}), "");
  note_another();
  const auto refused = Ledger::open(path_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(
      refused.error().message,
      "cannot use `" + path_ + "` here: it is of the namespaces pid-1.time-2, this process is in " + own.string());
}

TEST_F(LedgerUnseen, DamagedPlaceIsNamedWithItsRemedy) {
  const std::string place = path_ + "/place";
  const std::function<void()> damages[] = {
      [&] { std::filesystem::create_symlink("pid-4026531836", place); },
      [&] { std::filesystem::create_symlink("pid-4026531836.time-40265318x4", place); },
      [&] { std::filesystem::create_symlink("qid-4026531836.time-4026531834", place); },
      [&] { test_support::write_file(place, "pid-4026531836.time-4026531834"); }};
  ASSERT_EQ(give(web_, {kAlone}, {"c", "web", test_support::myself()}), "");
  for (const auto& damage : damages) {
    std::filesystem::remove(place);
    damage();
    const auto refused = Ledger::open(path_);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "cannot use `" + place + "`: it names no namespaces");
    EXPECT_EQ(refused.error().hint, "remove it, then run `rdma-hook recover` where containers are started");
  }
  std::filesystem::remove(place);
  EXPECT_TRUE(Ledger::open(path_));
}

TEST_F(LedgerUnseen, APodsNamespaceIsGoneOnlyFromItsOwnDirectory) {
  const std::string directory = temp_ / "netns";
  const std::string away = temp_ / "away";
  const Owner pod = pod_in(directory);
  ASSERT_EQ(give(pod, {kAlone}, {"c", "c", test_support::dead_process()}), "");
  std::filesystem::rename(directory, away);
  EXPECT_EQ(sight(look_at(*pod.netns)), "unknown: ENOENT");
  EXPECT_EQ(look(ledger_, db_), kHeld) << "there is no such directory here";
  std::filesystem::create_directory(directory);
  EXPECT_EQ(sight(look_at(*pod.netns)), "unknown: ESTALE");
  EXPECT_EQ(look(ledger_, db_), kHeld) << "this is another directory";
  std::ofstream(directory + "/cni-1") << "";
  EXPECT_EQ(look(ledger_, db_), kHeld) << "with another namespace of that name";
  std::filesystem::remove_all(directory);
  std::filesystem::rename(away, directory);
  EXPECT_EQ(sight(look_at(*pod.netns)), "present");
  std::filesystem::remove(directory + "/cni-1");
  EXPECT_EQ(sight(look_at(*pod.netns)), "gone");
  EXPECT_EQ(look(ledger_, db_), kFree);
}

}  // namespace
