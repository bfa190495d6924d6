// What the dead left behind: tokens that no container was bound to, leftovers in pending/ that stop nobody, and what
// the locks cost in descriptors.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "hook/base/text_digest.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/locks.hpp"
#include "support/temp_dir.hpp"
#include "unit/ledger/scene.hpp"

namespace {

using hook::GrantUser;
using hook::Mode;
using hook::Owner;
using hook::PlannedHca;
using test_support::book;
using test_support::Child;
using test_support::dead_process;
using test_support::entries;
using test_support::kAlone;
using test_support::kToken;
using test_support::kView;
using test_support::ledger_problems;
using test_support::myself;

const PlannedHca kSecondShared{"mlx5_1", Mode::kShared, 1, std::nullopt};
const std::string kOtherToken = "ffeeddccbbaa99887766554433221100";

// "KEY ..." of the grants that an id leads to, or the error.
std::string keys_by_id(const hook::Ledger& ledger, const std::string& id) {
  const auto grants = ledger.find_by_id(id);
  if (!grants) return grants.error().message;
  std::string text;
  for (const hook::Grant& grant : *grants)
    text += (text.empty() ? "" : " ") + grant.owner.key;
  return text;
}

class LedgerLeftovers : public test_support::LedgerScene {
 protected:
  static GrantUser token(const std::string& name, std::optional<hook::ProcessIdentity> requester) {
    return {hook::token_owner(name).key, "c-1", requester};
  }
  // Booked, with a view, and settled. "" or the error.
  std::string give(const Owner& owner, const std::vector<PlannedHca>& hcas, const GrantUser& user) {
    const auto given = [&]() -> fabric::Result<void> {
      GrantUser booked = user;
      booked.view = hook::view_name(kView);
      TRY_VOID(book(ledger_, owner, hcas, booked));
      (void)TRY(ledger_.make_view(kView));
      return ledger_.settle(owner.key);
    }();
    return given ? "" : given.error().message;
  }
  std::string users(const Owner& owner) {
    const auto grant = ledger_.find(owner.key);
    if (!grant) return grant.error().message;
    if (!*grant) return "no grant";
    std::string text;
    for (const GrantUser& user : (*grant)->users)
      text += (text.empty() ? "" : " ") + user.key;
    return text;
  }
  // The label of who holds it alone; "": nobody.
  std::string holder(const Owner& asking) {
    const auto locked = ledger_.lock({"mlx5_0"});
    const auto holdings = locked ? locked->holdings(asking, {{"mlx5_0", 1}}) : locked.error();
    return holdings ? holdings->at("mlx5_0").exclusive_holder.value_or("") : holdings.error().message;
  }
  static std::string marker(const std::string& key, const hook::ProcessIdentity& worker) {
    return fmt::format("{}@{}.{}.1", key, worker.pid, worker.start_time);
  }
  static std::string returned(const std::string& key, const hook::ProcessIdentity& worker) {
    return fmt::format("{}@{}.{}@7", key, worker.pid, worker.start_time);
  }
};

TEST_F(LedgerLeftovers, APodThatOnlyADeadTokenUsesIsReturnedByWhoAsks) {
  ASSERT_EQ(give(pod_, {kAlone}, token(kToken, dead_process())), "");
  EXPECT_TRUE(ledger_.find(pod_.key).value()->vanished);
  EXPECT_EQ(holder(web_), "");
  EXPECT_EQ(users(pod_), "no grant");
  EXPECT_TRUE(ledger_.recover());
  EXPECT_EQ(entries(path_ + "/views"), "");
  EXPECT_EQ(give(web_, {kAlone}, {web_.key, "web", myself()}), "");
  EXPECT_EQ(ledger_problems(path_), "");
}

TEST_F(LedgerLeftovers, APodThatOnlyDeadTokensUseIsRecovered) {
  Child second;
  ASSERT_EQ(give(pod_, {kAlone}, token(kToken, second.identity())), "");
  ASSERT_EQ(give(pod_, {kSecondShared}, token(kOtherToken, myself())), "");
  second.kill();
  ASSERT_EQ(ledger_.recover()->returned, std::vector<std::string>{}) << "a requester lives";
  EXPECT_EQ(users(pod_), "token-" + kOtherToken);
  EXPECT_EQ(entries(path_ + "/views"), hook::view_name(kView));
  ASSERT_TRUE(ledger_.leave(pod_, "token-" + kOtherToken));
  ASSERT_TRUE(ledger_.recover()->returned.empty()) << "without any user it stays";
  EXPECT_EQ(users(pod_), "");
  ASSERT_TRUE(ledger_.give_back(pod_.key));
  ASSERT_EQ(give(pod_, {kSecondShared}, token(kOtherToken, dead_process())), "");
  EXPECT_EQ(ledger_.recover()->returned, std::vector<std::string>{pod_.label});
  EXPECT_EQ(users(pod_), "no grant");
  EXPECT_EQ(ledger_problems(path_), "");
}

// Between two containers of a pod the HCAs are the pod's: the next start may fail.
TEST_F(LedgerLeftovers, APodsHcasStayWhenARestartFails) {
  Child container;
  ASSERT_EQ(give(pod_, {kAlone}, {"c-1", "c-1", container.identity()}), "");
  container.kill();
  ASSERT_TRUE(ledger_.leave(pod_, "c-1"));
  ASSERT_EQ(give(pod_, {kAlone}, token(kToken, dead_process())), "");
  EXPECT_TRUE(ledger_.recover()->returned.empty());
  EXPECT_EQ(users(pod_), pod_.key) << "the pod itself";
  EXPECT_EQ(holder(web_), pod_.label);
  EXPECT_EQ(ledger_problems(path_), "");
}

TEST_F(LedgerLeftovers, ADeadTokenIsDroppedWhereContainersAre) {
  Child requester;
  Child container;
  ASSERT_EQ(give(pod_, {kAlone}, {"c-1", "c-1", container.identity()}), "");
  ASSERT_EQ(give(pod_, {kSecondShared}, token(kToken, requester.identity())), "");
  requester.kill();
  EXPECT_EQ(holder(web_), pod_.label);
  EXPECT_EQ(users(pod_), "c-1");
  EXPECT_EQ(entries(path_ + "/views"), hook::view_name(kView));
  container.kill();
  EXPECT_EQ(holder(web_), pod_.label) << "a container may come again";
  EXPECT_EQ(users(pod_), "c-1");
  EXPECT_EQ(ledger_problems(path_), "");
}

TEST_F(LedgerLeftovers, ATokenWhoseRequesterIsNotKnownOrLivesStays) {
  ASSERT_EQ(give(pod_, {kAlone}, token(kToken, std::nullopt)), "");
  EXPECT_EQ(holder(web_), pod_.label);
  ASSERT_TRUE(ledger_.give_back(pod_.key));
  ASSERT_EQ(give(pod_, {kAlone}, token(kToken, myself())), "");
  EXPECT_EQ(holder(web_), pod_.label);
}

// The other token of the pod is nobody's, the one whose container has come is not.
TEST_F(LedgerLeftovers, BindingKeepsItsOwnTokenOnly) {
  Child first;
  Child second;
  ASSERT_EQ(give(pod_, {kAlone}, token(kToken, first.identity())), "");
  ASSERT_EQ(give(pod_, {kAlone}, token(kOtherToken, second.identity())), "");
  first.kill();
  second.kill();
  const auto bound = ledger_.bind(kToken, pod_, {"c-1", "c-1", myself()});
  ASSERT_TRUE(bound && *bound);
  EXPECT_EQ(users(pod_), "c-1");
  EXPECT_EQ(entries(path_ + "/views"), hook::view_name(kView));
  EXPECT_EQ(holder(web_), pod_.label);
}

TEST_F(LedgerLeftovers, GarbageStopsNoHook) {
  const auto dead = dead_process();
  test_support::write_file(path_ + "/grants/bad.json", "{");
  test_support::write_file(path_ + "/pending/" + marker("bad", dead), "");
  test_support::write_file(path_ + "/pending/" + returned("bad", dead), "half a gr");
  test_support::write_file(path_ + "/pending/junk", "");
  std::string deep = path_ + "/pending/@1.1.7";
  for (int i = 0; i < 40; ++i)
    deep += "/d";
  std::filesystem::create_directories(deep);
  for (int i = 0; i < 4; ++i) {
    test_support::write_file(path_ + "/pending/" + marker("gone-" + std::to_string(i), dead), "");
  }
  const auto repaired = ledger_.repair_pending();
  ASSERT_TRUE(repaired) << repaired.error().message;
  EXPECT_EQ(entries(path_ + "/pending"), "@1.1.7 " + marker("bad", dead) + " " + returned("bad", dead) + " junk")
      << "what can be repaired is, wherever it stands in the directory";
  EXPECT_EQ(give(web_, {kAlone}, {web_.key, "web", myself()}), "");
}

TEST_F(LedgerLeftovers, RecoverNamesWhatItCannotRepairAndDoesTheRest) {
  const std::string name = returned("bad", dead_process());
  test_support::write_file(path_ + "/pending/" + name, "half a gr");
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", dead_process()}), "");
  const auto recovered = ledger_.recover();
  ASSERT_FALSE(recovered);
  EXPECT_NE(recovered.error().message.find(path_ + "/pending/" + name), std::string::npos) << recovered.error().message;
  EXPECT_EQ(users(web_), "no grant");
}

// Who waits asks for the lock again and again, some thousand times.
TEST_F(LedgerLeftovers, WhatAnotherHasLockedIsLeftToIt) {
  const std::string busy = marker(db_.key, dead_process());
  const std::string free = marker(web_.key, dead_process());
  test_support::write_file(path_ + "/pending/" + busy, "");
  test_support::write_file(path_ + "/pending/" + free, "");
  const auto files = hook::LedgerFiles::open(path_).value();
  {
    const auto lock = hook::KeyLock::take(*files, {db_.key});
    ASSERT_TRUE(lock);
    const auto traced = test_support::run_traced([&] { return ledger_.repair_pending() ? 0 : 1; }, -1);
    if (!traced.possible) GTEST_SKIP() << "ptrace is not allowed here";
    EXPECT_EQ(traced.exit_code, 0);
    EXPECT_LT(traced.calls, 200);
    EXPECT_EQ(entries(path_ + "/pending"), busy);
  }
  EXPECT_TRUE(ledger_.repair_pending());
  EXPECT_EQ(entries(path_ + "/pending"), "");
}

TEST_F(LedgerLeftovers, ALockedHcaCostsOneDescriptor) {
  const auto open = [] {
    const std::string names = entries("/proc/self/fd");
    return std::count(names.begin(), names.end(), ' ');
  };
  std::vector<std::string> hcas;
  for (int i = 0; i < 20; ++i)
    hcas.push_back("mlx5_" + std::to_string(i));
  const auto before = open();
  const auto locked = ledger_.lock(hcas);
  ASSERT_TRUE(locked);
  EXPECT_EQ(open() - before, 20);
}

TEST_F(LedgerLeftovers, AnIdLeadsToTheGrantsOfContainerAndPod) {
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), "") << "without any grant";
  ASSERT_EQ(give(pod_, {kAlone}, {"c-1", "c-1", myself(), "", {}, "sandbox"}), "");
  ASSERT_EQ(give(web_, {kSecondShared}, {web_.key, "c-2", myself(), "", {}, "sandbox"}), "");
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), pod_.key);
  EXPECT_EQ(keys_by_id(ledger_, "c-2"), web_.key);
  EXPECT_EQ(keys_by_id(ledger_, "sandbox"), web_.key + " " + pod_.key);
  EXPECT_EQ(keys_by_id(ledger_, "c-3") + keys_by_id(ledger_, "") + keys_by_id(ledger_, "../grants"), "");
  EXPECT_EQ(ledger_problems(path_), "");
  ASSERT_TRUE(ledger_.leave(pod_, "c-1"));
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), "");
  EXPECT_EQ(keys_by_id(ledger_, "sandbox"), web_.key + " " + pod_.key) << "the pod stays as the user";
  EXPECT_EQ(ledger_problems(path_), "");
  ASSERT_TRUE(ledger_.give_back(web_.key));
  ASSERT_TRUE(ledger_.give_back(pod_.key));
  EXPECT_EQ(entries(path_ + "/ids"), "") << "nothing stays";
}

TEST_F(LedgerLeftovers, ABoundTokenKeepsThePodItWasGivenIn) {
  GrantUser user = token(kToken, std::nullopt);
  user.pod = "sandbox";
  ASSERT_EQ(give(hook::token_owner(kToken), {kAlone}, user), "");
  ASSERT_TRUE(ledger_.bind(kToken, web_, {web_.key, "c-1", myself()}));
  EXPECT_EQ(keys_by_id(ledger_, "sandbox"), web_.key);
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), web_.key);
  EXPECT_EQ(ledger_problems(path_), "");
}

TEST_F(LedgerLeftovers, RecoverPutsTheIndexOfIdsRight) {
  namespace fs = std::filesystem;
  ASSERT_EQ(give(pod_, {kAlone}, {"c-1", "c-1", myself()}), "");
  const std::string own = path_ + "/ids/" + hook::text_digest("c-1");
  const std::string stale = path_ + "/ids/" + hook::text_digest("c-9");
  fs::remove_all(own);
  fs::create_directory(stale);
  fs::create_symlink(pod_.key, stale + "/" + pod_.key);
  fs::create_directory(path_ + "/ids/" + hook::text_digest("c-8"));
  EXPECT_EQ(keys_by_id(ledger_, "c-9"), "") << "the grant does not say so";
  ASSERT_TRUE(ledger_.recover());
  EXPECT_EQ(keys_by_id(ledger_, "c-1"), pod_.key);
  EXPECT_EQ(entries(path_ + "/ids"), hook::text_digest("c-1"));
}

}  // namespace
