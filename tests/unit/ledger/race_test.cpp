// What happens between two looks: others are stopped before each of their system calls, and meanwhile the container
// goes on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "unit/ledger/scene.hpp"

namespace {

namespace fs = std::filesystem;
using fabric::Result;
using hook::GrantUser;
using hook::Ledger;
using test_support::book;
using test_support::Child;
using test_support::entries;
using test_support::kAlone;
using test_support::ledger_problems;
using test_support::myself;
using test_support::run_traced;

class LedgerRace : public test_support::LedgerScene {
 protected:
  bool is_held(const Ledger& ledger) const {
    const auto locked = ledger.lock({kAlone.name});
    const auto holdings = locked ? locked->holdings(db_, {{kAlone.name, 1}}) : locked.error();
    return !holdings || holdings->at(kAlone.name).exclusive_holder;
  }
  // As a hook asks, and as recover() does. 1: it would be given the HCA.
  int ask() const {
    const auto ledger = Ledger::open(path_);
    if (!ledger || !ledger->repair_pending()) return 2;
    return is_held(*ledger) ? 0 : 1;
  }
  int recover() const {
    const auto ledger = Ledger::open(path_);
    const auto recovered = ledger ? ledger->recover() : ledger.error();
    if (!recovered) return 2;
    return recovered->returned.empty() ? 0 : 1;
  }
};

// Booked by a process that waits then.
class Starter : public Child {
 public:
  Starter(const std::string& path, const hook::Owner& owner, const GrantUser& user)
      : Child([&] {
          const auto ledger = Ledger::open(path);
          EXPECT_TRUE(ledger && book(*ledger, owner, {kAlone}, user));
        }) {}
};

TEST_F(LedgerRace, AStartThatIsSettledAndEndsMeanwhileIsNotUndone) {
  for (const bool all : {false, true}) {
    for (long call = 1;; ++call) {
      Starter starter(path_, web_, {web_.key, "web", myself()});
      const std::string marker = path_ + "/pending/" + entries(path_ + "/pending");
      const auto settle_and_end = [&] {
        fs::remove(marker);
        starter.kill();
      };
      const auto traced = run_traced([&] { return all ? recover() : ask(); }, call, settle_and_end);
      if (!traced.possible) GTEST_SKIP() << "ptrace is not allowed here";
      ASSERT_EQ(traced.exit_code, 0) << "before system call " << call;
      if (!traced.stopped) break;
      ASSERT_TRUE(ledger_.find(web_.key).value()) << "before system call " << call;
      ASSERT_EQ(ledger_problems(path_), "") << "before system call " << call;
      ASSERT_TRUE(ledger_.give_back(web_.key));
    }
    ASSERT_TRUE(ledger_.repair_pending());
    ASSERT_EQ(entries(path_ + "/grants") + entries(path_ + "/pending"), "") << "not settled";
  }
}

// As /var/run/netns, which another mount namespace gets while somebody looks for a namespace there.
TEST_F(LedgerRace, ADirectoryThatComesBackMeanwhileHasItsNamespace) {
  const std::string directory = temp_ / "netns";
  const std::string away = temp_ / "away";
  test_support::write_file(directory + "/cni-1", "");
  ASSERT_EQ(give(pod_of(directory + "/cni-1"), {kAlone}, {"c", "c", test_support::dead_process()}), "");
  for (long call = 1;; ++call) {
    fs::rename(directory, away);
    fs::create_directory(directory);
    const auto come_back = [&] {
      fs::remove(directory);
      fs::rename(away, directory);
    };
    const auto traced = run_traced([&] { return ask(); }, call, come_back);
    if (!traced.possible) GTEST_SKIP() << "ptrace is not allowed here";
    ASSERT_EQ(traced.exit_code, 0) << "before system call " << call;
    if (!traced.stopped) break;
  }
}

TEST_F(LedgerRace, ACgroupIsMissedInItsOwnHierarchyOnly) {
  const std::string root = temp_ / "cgroup";
  const std::string away = temp_ / "away";
  test_support::write_file(root + "/c/cgroup.events", "populated 1\n");
  GrantUser user{web_.key, "web", test_support::dead_process()};
  user.cgroup = hook::identify_cgroup(root, "/c").value();
  ASSERT_EQ(give(web_, {kAlone}, user), "");
  for (long call = 1;; ++call) {
    const auto hide = [&] {
      fs::rename(root, away);
      fs::create_directory(root);
    };
    const auto traced = run_traced([&] { return ask(); }, call, hide);
    if (!traced.possible) GTEST_SKIP() << "ptrace is not allowed here";
    ASSERT_EQ(traced.exit_code, 0) << "before system call " << call;
    if (!traced.stopped) break;
    fs::remove(root);
    fs::rename(away, root);
  }
}

// A poststop of a killed `delete`: meanwhile another container of that id and bundle is on its way.
TEST_F(LedgerRace, ALatePoststopDoesNotEndAStartThatIsAtWork) {
  const Child next;
  const Starter starter(path_, web_, {web_.key, "web", next.identity()});
  bool passed_over = false;
  ASSERT_TRUE(ledger_.leave(web_, web_.key, &passed_over));
  EXPECT_TRUE(passed_over);
  EXPECT_TRUE(ledger_.find(web_.key).value());
}

TEST_F(LedgerRace, ALatePoststopDoesNotEndTheTokenOfTheNextContainer) {
  const Child next;
  const hook::Owner token = hook::token_owner(test_support::kToken);
  ASSERT_EQ(give(token, {kAlone}, {token.key, "web", next.identity(), "/run/web"}), "");
  ASSERT_TRUE(ledger_.leave(token, token.key));
  EXPECT_TRUE(is_held(ledger_));
}

// ... or is there, or the poststop is of a container below another root of the runtime.
TEST_F(LedgerRace, PoststopOfAnotherContainerKeepsTheOneThatLives) {
  Child next;
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", next.identity(), "/run/web"}), "");
  bool passed_over = false;
  ASSERT_TRUE(ledger_.leave(web_, web_.key, &passed_over));
  EXPECT_TRUE(passed_over);
  EXPECT_TRUE(is_held(ledger_));
  next.kill();
  ASSERT_TRUE(ledger_.leave(web_, web_.key));
  EXPECT_FALSE(is_held(ledger_));
}

// The runtime of `run` calls poststop itself.
TEST_F(LedgerRace, WhoseOwnProcessEndsItIsNotLate) {
  GrantUser user{web_.key, "web", myself(), temp_.path()};
  user.state = hook::identify_runtime_state(hook::RuntimeState::Kind::kRunc, temp_.path()).value();
  ASSERT_EQ(give(web_, {kAlone}, user), "");
  const auto leave = [&] { return Ledger::open(path_)->leave(web_, web_.key) ? 0 : 1; };
  EXPECT_EQ(test_support::in_child([&] { return test_support::in_child(leave); }), 0);
  EXPECT_FALSE(ledger_.find(web_.key).value());
}

}  // namespace
