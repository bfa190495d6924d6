// Leftovers of dead processes: tokens that were never bound, files in pending/, and effects of grants beyond the
// ledger, which are undone before another container gets the HCA.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/text_digest.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/locks.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace test_support;
using test_support::book;
using Strings = std::vector<std::string>;

const PlannedHca kSecondShared{"mlx5_1", Mode::kShared, 1, std::nullopt};
const std::string kOtherToken = "ffeeddccbbaa99887766554433221100";

// Returns "KEY ..." of the grants of an id, or the error.
std::string keys_by_id(const Ledger& ledger, const std::string& id) {
  const auto grants = ledger.find_by_id(id);
  if (!grants) return grants.error().message;
  std::string text;
  for (const Grant& grant : *grants)
    text += (text.empty() ? "" : " ") + grant.owner.key;
  return text;
}

class LedgerLeftovers : public ConsistentLedger {
 protected:
  static GrantUser token(const std::string& name, std::optional<ProcessIdentity> requester) {
    return {token_owner(name).key, "c-1", requester};
  }
  // Books with a view, and settles. Returns "" or the error.
  using LedgerScene::allocate;
  std::string allocate(const Owner& owner, const std::vector<PlannedHca>& hcas, const GrantUser& user) {
    const auto done = [&]() -> base::Result<void> {
      GrantUser booked = user;
      booked.view = view_name(kView);
      TRY_VOID(book(ledger_, owner, hcas, booked));
      (void)TRY(ledger_.make_view(view_name(kView), kView));
      return ledger_.settle(owner.key);
    }();
    return done ? "" : done.error().message;
  }
  static std::string marker(const std::string& key, const ProcessIdentity& worker) {
    return fmt::format("{}@{}.{}.1", key, worker.pid, worker.start_time);
  }
  static std::string returned(const std::string& key, const ProcessIdentity& worker) {
    return fmt::format("{}@{}.{}@7", key, worker.pid, worker.start_time);
  }
};

TEST_F(LedgerLeftovers, RequestReleasesPodGrantOfDeadToken) {
  ASSERT_EQ(allocate(pod_, {kAlone}, token(kToken, dead_process())), "");
  EXPECT_TRUE(find(pod_)->stale);
  EXPECT_EQ(exclusive_owner(web_), "");
  EXPECT_EQ(users(pod_), "no grant");
  EXPECT_TRUE(ledger_.recover());
  EXPECT_EQ(entries(path_ + "/views"), "");
  EXPECT_EQ(allocate(web_, {kAlone}), "");
}

TEST_F(LedgerLeftovers, RecoverReleasesPodGrantOfDeadTokens) {
  Child second;
  ASSERT_EQ(allocate(pod_, {kAlone}, token(kToken, second.identity())), "");
  ASSERT_EQ(allocate(pod_, {kSecondShared}, token(kOtherToken, myself())), "");
  second.kill();
  ASSERT_EQ(ledger_.recover()->released, Strings{}) << "a requester lives";
  EXPECT_EQ(users(pod_), "token-" + kOtherToken);
  EXPECT_EQ(entries(path_ + "/views"), view_name(kView));
  ASSERT_TRUE(ledger_.leave(pod_, "token-" + kOtherToken));
  ASSERT_TRUE(ledger_.recover()->released.empty()) << "the grant stays without users";
  EXPECT_EQ(users(pod_), "");
  ASSERT_TRUE(ledger_.release_grant(pod_.key));
  ASSERT_EQ(allocate(pod_, {kSecondShared}, token(kOtherToken, dead_process())), "");
  EXPECT_EQ(ledger_.recover()->released, Strings{pod_.label});
  EXPECT_EQ(users(pod_), "no grant");
}

// Between two containers, the pod keeps its HCAs even if the next start fails.
TEST_F(LedgerLeftovers, KeepsPodHcasWhenRestartFails) {
  Child container;
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", container.identity()}), "");
  container.kill();
  ASSERT_TRUE(ledger_.leave(pod_, "c-1"));
  ASSERT_EQ(allocate(pod_, {kAlone}, token(kToken, dead_process())), "");
  EXPECT_TRUE(ledger_.recover()->released.empty());
  EXPECT_EQ(users(pod_), pod_.key) << "the pod itself";
  EXPECT_EQ(exclusive_owner(web_), pod_.label);
}

TEST_F(LedgerLeftovers, DropsDeadTokenBesideContainers) {
  Child requester;
  Child container;
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", container.identity()}), "");
  ASSERT_EQ(allocate(pod_, {kSecondShared}, token(kToken, requester.identity())), "");
  requester.kill();
  EXPECT_EQ(exclusive_owner(web_), pod_.label);
  EXPECT_EQ(users(pod_), "c-1");
  EXPECT_EQ(entries(path_ + "/views"), view_name(kView));
  container.kill();
  EXPECT_EQ(exclusive_owner(web_), pod_.label) << "the container may start again";
  EXPECT_EQ(users(pod_), "c-1");
}

TEST_F(LedgerLeftovers, KeepsTokenOfUnknownOrLivingRequester) {
  ASSERT_EQ(allocate(pod_, {kAlone}, token(kToken, std::nullopt)), "");
  EXPECT_EQ(exclusive_owner(web_), pod_.label);
  ASSERT_TRUE(ledger_.release_grant(pod_.key));
  ASSERT_EQ(allocate(pod_, {kAlone}, token(kToken, myself())), "");
  EXPECT_EQ(exclusive_owner(web_), pod_.label);
}

// The token of the container that starts stays, and the other dead token is dropped.
TEST_F(LedgerLeftovers, BindKeepsItsOwnTokenOnly) {
  Child first;
  Child second;
  ASSERT_EQ(allocate(pod_, {kAlone}, token(kToken, first.identity())), "");
  ASSERT_EQ(allocate(pod_, {kAlone}, token(kOtherToken, second.identity())), "");
  first.kill();
  second.kill();
  const auto bound = ledger_.bind(kToken, pod_, {"c-1", "c-1", myself()});
  ASSERT_TRUE(bound && *bound);
  EXPECT_EQ(users(pod_), "c-1");
  EXPECT_EQ(entries(path_ + "/views"), view_name(kView));
  EXPECT_EQ(exclusive_owner(web_), pod_.label);
}

TEST_F(LedgerLeftovers, HookContinuesDespiteUnreadableLeftovers) {
  is_damaged_ = true;
  const auto dead = dead_process();
  // The HCA has an index. Otherwise the grant that cannot be read might be its owner.
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  ASSERT_TRUE(ledger_.release_grant(web_.key));
  write_file(path_ + "/grants/bad.json", "{");
  write_file(path_ + "/pending/" + marker("bad", dead), "");
  write_file(path_ + "/pending/" + returned("bad", dead), "half a gr");
  write_file(path_ + "/pending/junk", "");
  std::string deep = path_ + "/pending/@1.1.7";
  for (int i = 0; i < 40; ++i)
    deep += "/d";
  fs::create_directories(deep);
  for (int i = 0; i < 4; ++i)
    write_file(path_ + "/pending/" + marker("gone-" + std::to_string(i), dead), "");
  ASSERT_OK(ledger_.repair_pending());
  EXPECT_EQ(entries(path_ + "/pending"), "@1.1.7 " + marker("bad", dead) + " " + returned("bad", dead) + " junk")
      << "repaired all other leftovers, in any order of the directory";
  EXPECT_EQ(allocate(web_, {kAlone}), "");
}

TEST_F(LedgerLeftovers, RecoverReportsLeftoverItCannotRepairAndRepairsRest) {
  const std::string name = returned("bad", dead_process());
  write_file(path_ + "/pending/" + name, "half a gr");
  ASSERT_EQ(allocate(web_, {kAlone}, dead_process()), "");
  EXPECT_TRUE(has_text(error_message(ledger_.recover()), path_ + "/pending/" + name));
  EXPECT_EQ(users(web_), "no grant");
}

// A call that waits would try the lock some thousand times.
TEST_F(LedgerLeftovers, RepairSkipsLockedGrant) {
  const std::string busy = marker(db_.key, dead_process());
  const std::string free = marker(web_.key, dead_process());
  write_file(path_ + "/pending/" + busy, "");
  write_file(path_ + "/pending/" + free, "");
  const auto files = LedgerFiles::open(path_).value();
  {
    const auto lock = must(KeyLock::take(*files, {db_.key}));
    const auto traced = run_traced([&] { return ledger_.repair_pending() ? 0 : 1; }, -1);
    if (!traced.possible) GTEST_SKIP() << "ptrace is not allowed here";
    EXPECT_EQ(traced.exit_code, 0);
    EXPECT_LT(traced.calls, 200);
    EXPECT_EQ(entries(path_ + "/pending"), busy);
  }
  EXPECT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(entries(path_ + "/pending"), "");
}

TEST_F(LedgerLeftovers, LockedHcaUsesOneDescriptor) {
  const auto open = [] {
    const std::string names = entries("/proc/self/fd");
    return std::count(names.begin(), names.end(), ' ');
  };
  Strings hcas;
  for (int i = 0; i < 20; ++i)
    hcas.push_back("mlx5_" + std::to_string(i));
  const auto before = open();
  const auto locked = must(ledger_.lock(hcas));
  EXPECT_EQ(open() - before, 20);
}

TEST_F(LedgerLeftovers, FindsGrantsByContainerAndPodId) {
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), "") << "without any grant";
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", myself(), "", {}, "sandbox"}), "");
  ASSERT_EQ(allocate(web_, {kSecondShared}, {web_.key, "c-2", myself(), "", {}, "sandbox"}), "");
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), pod_.key);
  EXPECT_EQ(keys_by_id(ledger_, "c-2"), web_.key);
  EXPECT_EQ(keys_by_id(ledger_, "sandbox"), web_.key + " " + pod_.key);
  EXPECT_EQ(keys_by_id(ledger_, "c-3") + keys_by_id(ledger_, "") + keys_by_id(ledger_, "../grants"), "");
  EXPECT_EQ(ledger_problems(path_), "");
  ASSERT_TRUE(ledger_.leave(pod_, "c-1"));
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), "");
  EXPECT_EQ(keys_by_id(ledger_, "sandbox"), web_.key + " " + pod_.key) << "the pod stays as user";
  EXPECT_EQ(ledger_problems(path_), "");
  ASSERT_TRUE(ledger_.release_grant(web_.key));
  ASSERT_TRUE(ledger_.release_grant(pod_.key));
  EXPECT_EQ(entries(path_ + "/ids"), "") << "no entry remains";
}

TEST_F(LedgerLeftovers, BoundTokenKeepsItsPod) {
  GrantUser user = token(kToken, std::nullopt);
  user.pod = "sandbox";
  ASSERT_EQ(allocate(token_owner(kToken), {kAlone}, user), "");
  ASSERT_TRUE(ledger_.bind(kToken, web_, {web_.key, "c-1", myself()}));
  EXPECT_EQ(keys_by_id(ledger_, "sandbox"), web_.key);
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), web_.key);
}

TEST_F(LedgerLeftovers, RecoverCorrectsIndexOfIds) {
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  const std::string own = path_ + "/ids/" + text_digest("c-1");
  const std::string stale = path_ + "/ids/" + text_digest("c-9");
  fs::remove_all(own);
  fs::create_directory(stale);
  fs::create_symlink(pod_.key, stale + "/" + pod_.key);
  fs::create_directory(path_ + "/ids/" + text_digest("c-8"));
  EXPECT_EQ(keys_by_id(ledger_, "c-9"), "") << "the grant does not have this id";
  ASSERT_TRUE(ledger_.recover());
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), pod_.key);
  EXPECT_EQ(entries(path_ + "/ids"), text_digest("c-1"));
}

const PlannedHca kThird{"mlx5_2", Mode::kShared, 1, std::nullopt};

// Notes "KEY: mlx5_0 mlx5_1" for each call.
class NotedEffects : public GrantEffects {
 public:
  base::Result<void> release_except(const std::string& key, const std::vector<PlannedHca>& held,
                                    const StoredGrant*) const override {
    Strings names(held.size());
    std::transform(held.begin(), held.end(), names.begin(), [](const PlannedHca& hca) { return hca.name; });
    std::sort(names.begin(), names.end());
    std::string call = key + ":";
    for (const std::string& name : names)
      call += " " + name;
    calls.push_back(call);
    if (!fails) return {};
    return base::Error{.message = "netdev `eth0` has not come back", .code = EAGAIN, .hint = "wait"};
  }
  void wait_until(Deadline deadline) const override { deadlines.push_back(deadline); }
  mutable Strings calls;
  mutable std::vector<Deadline> deadlines;
  bool fails = false;
};

class LedgerEffects : public ConsistentLedger {
 protected:
  LedgerEffects() : LedgerEffects(std::make_shared<NotedEffects>()) {}
  explicit LedgerEffects(std::shared_ptr<NotedEffects> effects)
      : ConsistentLedger(effects), effects_(std::move(effects)) {}

  Strings calls() { return std::exchange(effects_->calls, {}); }
  std::string all_of(const Owner& owner) { return owner.key + ":"; }

  std::shared_ptr<NotedEffects> effects_;
};

TEST_F(LedgerEffects, AllocationUndoesNoEffects) {
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  ASSERT_EQ(allocate(web_, {kOtherAlone}), "") << "a second HCA";
  ASSERT_EQ(allocate(pod_, {kThird}, {"c-1", "c-1", myself()}), "");
  EXPECT_TRUE(ledger_.repair_pending());
  EXPECT_TRUE(ledger_.recover());
  EXPECT_EQ(calls(), Strings());
}

TEST_F(LedgerEffects, ReleaseUndoesAllEffects) {
  ASSERT_EQ(allocate(web_, {kAlone, kOtherAlone}), "");
  ASSERT_EQ(error_message(ledger_.release_grant(web_.key)), "");
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  ASSERT_EQ(error_message(ledger_.release_grant(web_.key)), "") << "already released";
  EXPECT_EQ(calls(), Strings());
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  ASSERT_EQ(error_message(ledger_.leave(web_, web_.key)), "");
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  EXPECT_EQ(held(web_), "no grant");
}

TEST_F(LedgerEffects, LeaveKeepsEffectsOfPodHcas) {
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  ASSERT_EQ(error_message(book(ledger_, pod_, {kOtherAlone}, {"c-2", "c-2", myself()})), "") << "not settled";
  ASSERT_EQ(error_message(ledger_.leave(pod_, "c-2")), "");
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0"});
  EXPECT_EQ(held(pod_), "mlx5_0");
  ASSERT_EQ(error_message(ledger_.leave(pod_, "c-1")), "");
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0"}) << "the pod stays";
  ASSERT_EQ(error_message(ledger_.leave(pod_, "c-9")), "") << "no such user";
  EXPECT_EQ(calls(), Strings());
}

TEST_F(LedgerEffects, RepairUndoesEffectsOfDeadSteps) {
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  book_and_die(pod_, {kOtherAlone}, {"c-2", "c-2", std::nullopt});
  ASSERT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0"});
  EXPECT_EQ(held(pod_), "mlx5_0");
  ASSERT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(calls(), Strings()) << "once is enough";
  // All HCAs of a container.
  book_and_die(web_, {kOtherAlone}, {web_.key, "web", std::nullopt});
  ASSERT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  EXPECT_EQ(held(web_), "no grant");
}

TEST_F(LedgerEffects, RequestAndRecoverReleaseStaleGrants) {
  ASSERT_EQ(allocate(web_, {kAlone}, dead_process()), "");
  ASSERT_EQ(allocate(db_, {kAlone}), "");
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  EXPECT_EQ(held(web_), "no grant");
  EXPECT_EQ(held(db_), "mlx5_0");
  ASSERT_OK(ledger_.release_grant(db_.key));
  calls();
  ASSERT_EQ(allocate(web_, {kAlone}, dead_process()), "");
  ASSERT_EQ(allocate(db_, {kOtherAlone}), "");
  EXPECT_EQ(ledger_.recover()->released, Strings{web_.label});
  EXPECT_EQ(calls(), Strings{all_of(web_)});
  EXPECT_EQ(held(db_), "mlx5_1");
}

TEST_F(LedgerEffects, DeadTokenLeavesItsHcasToPod) {
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  {
    Child requester;
    ASSERT_EQ(allocate(pod_, {kOtherAlone}, {token_owner(kToken).key, "c-2", requester.identity()}), "");
  }
  ASSERT_TRUE(ledger_.recover());
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0 mlx5_1"}) << "settled HCAs belong to the pod";
  EXPECT_EQ(held(pod_), "mlx5_0 mlx5_1");
}

// --- Effects that cannot be undone ---

constexpr const char* kFailure = "netdev `eth0` has not come back";

TEST_F(LedgerEffects, KeepsGrantWhileEffectsRemain) {
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  effects_->fails = true;
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_EQ(error_message(ledger_.leave(web_, web_.key)), kFailure);
    EXPECT_EQ(error_message(ledger_.release_grant(web_.key)), kFailure);
    EXPECT_EQ(held(web_), "mlx5_0");
    EXPECT_NE(allocate(db_, {kAlone}), "") << "no other container may get it";
    EXPECT_EQ(held(db_), "no grant");
  }
  effects_->fails = false;
  EXPECT_EQ(error_message(ledger_.leave(web_, web_.key)), "");
  EXPECT_EQ(held(web_), "no grant");
  EXPECT_EQ(allocate(db_, {kAlone}), "");
  EXPECT_EQ(held(db_), "mlx5_0");
}

TEST_F(LedgerEffects, KeepsStaleGrantWhileEffectsRemain) {
  ASSERT_EQ(allocate(web_, {kAlone}, dead_process()), "");
  effects_->fails = true;
  EXPECT_EQ(allocate(db_, {kAlone}), kFailure);
  EXPECT_EQ(allocate(db_, {kOtherAlone}), "") << "another HCA is free";
  const auto recovered = ledger_.recover();
  EXPECT_EQ(error_message(recovered), "`" + web_.key + "`: " + kFailure);
  EXPECT_EQ(error_code(recovered), EAGAIN);
  EXPECT_EQ(error_hint(recovered), "wait");
  EXPECT_EQ(held(web_), "mlx5_0");
  effects_->fails = false;
  EXPECT_EQ(ledger_.recover()->released, Strings{web_.label});
  EXPECT_EQ(allocate(db_, {kAlone}), "");
}

// The first round does not wait; the second waits for all stuck grants together.
TEST_F(LedgerEffects, RecoverHasOneDeadlineForAll) {
  ASSERT_EQ(allocate(web_, {kAlone}, dead_process()), "");
  ASSERT_EQ(allocate(db_, {kOtherAlone}, dead_process()), "");
  effects_->fails = true;
  const auto deadline = from_now(std::chrono::minutes(1));
  EXPECT_EQ(error_message(ledger_.recover(deadline)),
            "`" + db_.key + "`: " + kFailure + "; `" + web_.key + "`: " + kFailure);
  const auto never = Deadline::max();
  EXPECT_EQ(effects_->deadlines, (std::vector<Deadline>{Deadline(), never, deadline, never}));
  EXPECT_EQ(calls().size(), 4U) << "each grant is tried once in each round";
}

// A request by count can get other HCAs.
TEST_F(LedgerEffects, ReportsGrantThatCannotBeReleasedAsOwner) {
  ASSERT_EQ(allocate(web_, {kAlone}, dead_process()), "");
  effects_->fails = true;
  const auto locked = must(ledger_.lock({kAlone.name, kOtherAlone.name}));
  const auto holdings = must(locked.holdings(db_, {}));
  EXPECT_EQ(holdings.at(kAlone.name).exclusive_owner,
            std::string("a grant that cannot be released: ") + kFailure + " (wait)");
  EXPECT_FALSE(holdings.at(kOtherAlone.name).exclusive_owner);
}

TEST_F(LedgerEffects, KeepsDeadStepsUntilEffectsAreUndone) {
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  book_and_die(pod_, {kOtherAlone}, {"c-2", "c-2", std::nullopt});
  effects_->fails = true;
  EXPECT_TRUE(ledger_.repair_pending()) << "best effort";
  EXPECT_EQ(held(pod_), "mlx5_0 mlx5_1");
  EXPECT_EQ(allocate(db_, {kOtherAlone}), kFailure);
  EXPECT_FALSE(ledger_.recover());
  EXPECT_EQ(held(pod_), "mlx5_0 mlx5_1");
  effects_->fails = false;
  calls();
  EXPECT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(calls(), Strings{pod_.key + ": mlx5_0"});
  EXPECT_EQ(allocate(db_, {kOtherAlone}), "");
  EXPECT_EQ(held(pod_), "mlx5_0");
}

TEST_F(LedgerEffects, KeepsUserWhileItsEffectsRemain) {
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  ASSERT_EQ(error_message(book(ledger_, pod_, {kOtherAlone}, {"c-2", "c-2", myself()})), "");
  effects_->fails = true;
  EXPECT_EQ(error_message(ledger_.leave(pod_, "c-2")), kFailure);
  EXPECT_EQ(held(pod_), "mlx5_0 mlx5_1");
  EXPECT_NE(allocate(db_, {kOtherAlone}), "");
  effects_->fails = false;
  EXPECT_EQ(error_message(ledger_.leave(pod_, "c-2")), "") << "the same again";
  EXPECT_EQ(held(pod_), "mlx5_0");
  EXPECT_EQ(allocate(db_, {kOtherAlone}), "");
}

// rdma-nri books with an id and no process, so no lookup will ever prove the end.
TEST_F(LedgerEffects, NextRequestReleasesUserThatCouldNotLeave) {
  const Owner token = token_owner(kToken);
  for (const bool recovers : {false, true}) {
    ASSERT_EQ(allocate(token, {kAlone}, {token.key, "c", std::nullopt}), "");
    EXPECT_TRUE(ledger_.recover());
    EXPECT_EQ(held(token), "mlx5_0");
    effects_->fails = true;
    EXPECT_EQ(error_message(ledger_.leave(token, token.key)), kFailure);
    EXPECT_EQ(held(token), "mlx5_0");
    effects_->fails = false;
    if (recovers) {
      EXPECT_EQ(ledger_.recover()->released, Strings{token.label});
    } else {
      EXPECT_EQ(allocate(db_, {kAlone}), "");
      EXPECT_EQ(error_message(ledger_.release_grant(db_.key)), "");
    }
    EXPECT_EQ(held(token), "no grant");
  }
}

}  // namespace
}  // namespace hook
