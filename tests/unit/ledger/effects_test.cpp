// What grants have beyond the ledger: undone before anybody else gets the HCA, by whoever returns it.
#include "hook/ledger/ledger.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "unit/ledger/scene.hpp"

namespace {

using hook::GrantUser;
using hook::Ledger;
using hook::Mode;
using hook::Owner;
using hook::PlannedHca;
using test_support::book;
using test_support::Child;
using test_support::dead_process;
using test_support::kAlone;
using test_support::kToken;
using test_support::ledger_problems;
using test_support::myself;
using Strings = std::vector<std::string>;

const PlannedHca kOther{"mlx5_1", Mode::kExclusive, 1, std::nullopt};
const PlannedHca kThird{"mlx5_2", Mode::kShared, 1, std::nullopt};

// "KEY: mlx5_0 mlx5_1" for each call.
class NotedEffects : public hook::GrantEffects {
 public:
  fabric::Result<void> undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                                   const hook::StoredGrant*) const override {
    Strings names(held.size());
    std::transform(held.begin(), held.end(), names.begin(), [](const PlannedHca& hca) { return hca.name; });
    std::sort(names.begin(), names.end());
    std::string call = key + ":";
    for (const std::string& name : names)
      call += " " + name;
    calls.push_back(call);
    if (!fails) return {};
    return fabric::Error{.message = "netdev `eth0` has not come back", .code = EAGAIN, .hint = "wait"};
  }
  void wait_until(hook::Deadline deadline) const override { deadlines.push_back(deadline); }
  mutable Strings calls;
  mutable std::vector<hook::Deadline> deadlines;
  bool fails = false;
};

class LedgerEffects : public test_support::LedgerScene {
 protected:
  LedgerEffects() : LedgerEffects(std::make_shared<NotedEffects>()) {}
  explicit LedgerEffects(std::shared_ptr<NotedEffects> effects) : LedgerScene(effects), effects_(std::move(effects)) {}

  static std::string said(const fabric::Result<void>& result) { return result ? "" : result.error().message; }
  using LedgerScene::give;
  std::string give(const Owner& owner, const std::vector<PlannedHca>& hcas) const {
    return give(owner, hcas, {owner.key, "c", myself()});
  }
  // Booked by a process that was killed then. `ledger_` holds nothing open of it.
  void book_and_die(const Owner& owner, const std::vector<PlannedHca>& hcas, const GrantUser& user) {
    const pid_t pid = fork();
    if (pid == 0) {
      const auto ledger = Ledger::open(path_);
      _exit(ledger && book(*ledger, owner, hcas, user) ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_EQ(status, 0);
  }
  // The HCAs that the ledger says the owner holds.
  std::string held(const Owner& owner) {
    const auto grant = ledger_.find(owner.key);
    if (!grant) return grant.error().message;
    if (!*grant) return "no grant";
    std::string text;
    for (const PlannedHca& hca : (*grant)->hcas)
      text += (text.empty() ? "" : " ") + hca.name;
    return text;
  }
  Strings calls() { return std::exchange(effects_->calls, {}); }
  std::string all_of(const Owner& owner) { return owner.key + ":"; }

  std::shared_ptr<NotedEffects> effects_;
};

TEST_F(LedgerEffects, GivingCallsNothing) {
  ASSERT_EQ(give(web_, {kAlone}), "");
  ASSERT_EQ(give(web_, {kOther}), "") << "more of it";
  ASSERT_EQ(give(pod_, {kThird}, {"c-1", "c-1", myself()}), "");
  EXPECT_TRUE(ledger_.repair_pending());
  EXPECT_TRUE(ledger_.recover());
  EXPECT_EQ(calls(), Strings());
}

TEST_F(LedgerEffects, AReturnedGrantKeepsNothing) {
  ASSERT_EQ(give(web_, {kAlone, kOther}), "");
  ASSERT_EQ(said(ledger_.give_back(web_.key)), "");
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  ASSERT_EQ(said(ledger_.give_back(web_.key)), "") << "gone already";
  EXPECT_EQ(calls(), Strings());
  ASSERT_EQ(give(web_, {kAlone}), "");
  ASSERT_EQ(said(ledger_.leave(web_, web_.key)), "");
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  EXPECT_EQ(held(web_), "no grant");
}

TEST_F(LedgerEffects, WhoLeavesAPodLeavesItsHcas) {
  ASSERT_EQ(give(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  ASSERT_EQ(said(book(ledger_, pod_, {kOther}, {"c-2", "c-2", myself()})), "") << "not settled";
  ASSERT_EQ(said(ledger_.leave(pod_, "c-2")), "");
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0"});
  EXPECT_EQ(held(pod_), "mlx5_0");
  ASSERT_EQ(said(ledger_.leave(pod_, "c-1")), "");
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0"}) << "the pod stays";
  ASSERT_EQ(said(ledger_.leave(pod_, "c-9")), "") << "nobody";
  EXPECT_EQ(calls(), Strings());
  EXPECT_EQ(ledger_problems(path_), "");
}

TEST_F(LedgerEffects, StepsOfTheDeadAreUndone) {
  ASSERT_EQ(give(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  book_and_die(pod_, {kOther}, {"c-2", "c-2", std::nullopt});
  ASSERT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0"});
  EXPECT_EQ(held(pod_), "mlx5_0");
  ASSERT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(calls(), Strings()) << "once is enough";
  // All that a container had.
  book_and_die(web_, {kOther}, {web_.key, "web", std::nullopt});
  ASSERT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  EXPECT_EQ(held(web_), "no grant");
  EXPECT_EQ(ledger_problems(path_), "");
}

TEST_F(LedgerEffects, WhoAsksReturnsWhatVanished) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", dead_process()}), "");
  ASSERT_EQ(give(db_, {kAlone}), "");
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  EXPECT_EQ(held(web_), "no grant");
  EXPECT_EQ(held(db_), "mlx5_0");
}

TEST_F(LedgerEffects, RecoverReturnsWhatVanished) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", dead_process()}), "");
  ASSERT_EQ(give(db_, {kOther}), "");
  EXPECT_EQ(ledger_.recover()->returned, Strings{web_.label});
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  EXPECT_EQ(held(db_), "mlx5_1");
}

TEST_F(LedgerEffects, ADeadTokenOfAPodTakesNothingAlong) {
  ASSERT_EQ(give(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  {
    Child requester;
    ASSERT_EQ(give(pod_, {kOther}, {hook::token_owner(kToken).key, "c-2", requester.identity()}), "");
  }
  ASSERT_TRUE(ledger_.recover());
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0 mlx5_1"}) << "what was settled is the pod's";
  EXPECT_EQ(held(pod_), "mlx5_0 mlx5_1");
}

// --- effects that cannot be undone ----------------------------------------------------------------------------------

constexpr const char* kFailure = "netdev `eth0` has not come back";

TEST_F(LedgerEffects, AGrantIsHeldWhileItsEffectsAre) {
  ASSERT_EQ(give(web_, {kAlone}), "");
  effects_->fails = true;
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_EQ(said(ledger_.leave(web_, web_.key)), kFailure);
    EXPECT_EQ(said(ledger_.give_back(web_.key)), kFailure);
    EXPECT_EQ(held(web_), "mlx5_0");
    EXPECT_NE(give(db_, {kAlone}), "") << "somebody else must not get it";
    EXPECT_EQ(held(db_), "no grant");
  }
  effects_->fails = false;
  EXPECT_EQ(said(ledger_.leave(web_, web_.key)), "");
  EXPECT_EQ(held(web_), "no grant");
  EXPECT_EQ(give(db_, {kAlone}), "");
  EXPECT_EQ(held(db_), "mlx5_0");
  EXPECT_EQ(ledger_problems(path_), "");
}

TEST_F(LedgerEffects, WhatVanishedIsHeldToo) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", dead_process()}), "");
  effects_->fails = true;
  EXPECT_EQ(give(db_, {kAlone}), kFailure);
  EXPECT_EQ(give(db_, {kOther}), "") << "another HCA has nothing to do with it";
  const auto recovered = ledger_.recover();
  ASSERT_FALSE(recovered);
  EXPECT_EQ(recovered.error().message, "`" + web_.key + "`: " + kFailure);
  EXPECT_EQ(recovered.error().code, EAGAIN);
  EXPECT_EQ(recovered.error().hint, "wait");
  EXPECT_EQ(held(web_), "mlx5_0");
  effects_->fails = false;
  EXPECT_EQ(ledger_.recover()->returned, Strings{web_.label});
  EXPECT_EQ(give(db_, {kAlone}), "");
  EXPECT_EQ(ledger_problems(path_), "");
}

// All without waiting, then what is stuck together.
TEST_F(LedgerEffects, RecoverHasOneDeadlineForAll) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", dead_process()}), "");
  ASSERT_EQ(give(db_, {kOther}, {db_.key, "db", dead_process()}), "");
  effects_->fails = true;
  const auto deadline = hook::from_now(std::chrono::minutes(1));
  const auto recovered = ledger_.recover(deadline);
  ASSERT_FALSE(recovered);
  EXPECT_EQ(recovered.error().message, "`" + db_.key + "`: " + kFailure + "; `" + web_.key + "`: " + kFailure);
  const auto never = hook::Deadline::max();
  EXPECT_EQ(effects_->deadlines, (std::vector<hook::Deadline>{hook::Deadline(), never, deadline, never}));
  EXPECT_EQ(calls().size(), 4U) << "each is tried once a round";
}

// A request that names none of them can be met from the rest.
TEST_F(LedgerEffects, WhatCannotBeReturnedIsNotOffered) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", dead_process()}), "");
  effects_->fails = true;
  const auto locked = ledger_.lock({kAlone.name, kOther.name});
  ASSERT_TRUE(locked);
  const auto holdings = locked->holdings(db_, {});
  ASSERT_TRUE(holdings) << holdings.error().message;
  EXPECT_EQ(holdings->at(kAlone.name).exclusive_holder,
            std::string("a grant that cannot be returned: ") + kFailure + " (wait)");
  EXPECT_FALSE(holdings->at(kOther.name).exclusive_holder);
}

TEST_F(LedgerEffects, StepsOfTheDeadAreHeldAndRepairedLater) {
  ASSERT_EQ(give(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  book_and_die(pod_, {kOther}, {"c-2", "c-2", std::nullopt});
  effects_->fails = true;
  EXPECT_TRUE(ledger_.repair_pending()) << "best effort";
  EXPECT_EQ(held(pod_), "mlx5_0 mlx5_1");
  EXPECT_EQ(give(db_, {kOther}), kFailure);
  EXPECT_FALSE(ledger_.recover());
  EXPECT_EQ(held(pod_), "mlx5_0 mlx5_1");
  effects_->fails = false;
  calls();
  EXPECT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0"});
  EXPECT_EQ(give(db_, {kOther}), "");
  EXPECT_EQ(held(pod_), "mlx5_0");
  EXPECT_EQ(ledger_problems(path_), "");
}

TEST_F(LedgerEffects, AUserWhoseEffectsStayStays) {
  ASSERT_EQ(give(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  ASSERT_EQ(said(book(ledger_, pod_, {kOther}, {"c-2", "c-2", myself()})), "");
  effects_->fails = true;
  EXPECT_EQ(said(ledger_.leave(pod_, "c-2")), kFailure);
  EXPECT_EQ(held(pod_), "mlx5_0 mlx5_1");
  EXPECT_NE(give(db_, {kOther}), "");
  effects_->fails = false;
  EXPECT_EQ(said(ledger_.leave(pod_, "c-2")), "") << "the same again";
  EXPECT_EQ(held(pod_), "mlx5_0");
  EXPECT_EQ(give(db_, {kOther}), "");
  EXPECT_EQ(ledger_problems(path_), "");
}

// Its id stood for it, as rdma-nri books: no process will ever show that it has gone.
TEST_F(LedgerEffects, WhoCouldNotLeaveIsReturnedByWhoAsks) {
  const Owner token = hook::token_owner(kToken);
  for (const bool recovers : {false, true}) {
    ASSERT_EQ(give(token, {kAlone}, {token.key, "c", std::nullopt}), "");
    EXPECT_TRUE(ledger_.recover());
    EXPECT_EQ(held(token), "mlx5_0");
    effects_->fails = true;
    EXPECT_EQ(said(ledger_.leave(token, token.key)), kFailure);
    EXPECT_EQ(held(token), "mlx5_0");
    effects_->fails = false;
    if (recovers) {
      EXPECT_EQ(ledger_.recover()->returned, Strings{token.label});
    } else {
      EXPECT_EQ(give(db_, {kAlone}), "");
      EXPECT_EQ(said(ledger_.give_back(db_.key)), "");
    }
    EXPECT_EQ(held(token), "no grant");
  }
  EXPECT_EQ(ledger_problems(path_), "");
}

}  // namespace
