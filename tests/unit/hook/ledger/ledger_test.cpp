// Results and refusals of the ledger. Races and crashes: contention_test.cpp.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <regex>

#include "hook/ledger/files.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/ledger/locks.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace test_support;
using test_support::book;

const PlannedHca kShared{"mlx5_0", Mode::kShared, 1, std::nullopt};

class LedgerTest : public ConsistentLedger {
 protected:
  Holding ask(const Owner& owner, unsigned limit, const std::string& hca = "mlx5_0") {
    auto locked = ledger_.lock({hca});
    EXPECT_OK(locked);
    auto holdings = locked->holdings(owner, {{hca, {limit, limit}}});
    EXPECT_OK(holdings);
    return holdings ? (*holdings)[hca] : Holding{};
  }
};

TEST(LedgerKeys, DifferForEachIdAndBundle) {
  const auto key = [](std::string_view id, std::string_view bundle) { return container_owner(id, bundle).key; };
  // SHA-256 of "web\0/run/web", from sha256sum.
  EXPECT_EQ(key("web", "/run/web"), "container-web-8a28944892cb53211da608b051818df9");
  EXPECT_EQ(container_owner("web", "/run/web").label, "container web");
  EXPECT_NE(key("web", "/a"), key("web", "/b"));
  EXPECT_NE(key("a/b", "/"), key("a_b", "/"));
  EXPECT_EQ(key("a@b/../c", "/").substr(0, 19), "container-a_b_.._c-");
  EXPECT_EQ(key(std::string(1024, 'x'), std::string(4000, 'y')).size(), 10U + 64 + 1 + 32);
  EXPECT_EQ(netns_owner({4, 4026531840, "/proc/1/ns/net"}).key, "netns-4-4026531840");
  const auto first = new_token();
  const auto second = new_token();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->size(), 32U);
  EXPECT_EQ(first->find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(*first, *second);
}

TEST_F(LedgerTest, BookingIsPendingUntilSettled) {
  ASSERT_TRUE(book(ledger_, web_, {kAlone, {"mlx5_1", Mode::kSharedMulti, 3, 8}}, {web_.key, "web", myself()}));
  auto grant = find(web_);
  ASSERT_TRUE(grant);
  EXPECT_TRUE(grant->pending);
  EXPECT_FALSE(grant->stale);
  ASSERT_TRUE(ledger_.settle(web_.key));
  grant = find(web_);
  ASSERT_TRUE(grant);
  EXPECT_FALSE(grant->pending);
  EXPECT_EQ(grant->owner.label, "container web");
  EXPECT_EQ(grant->hcas, (std::vector<PlannedHca>{kAlone, {"mlx5_1", Mode::kSharedMulti, 3, 8}}));
  EXPECT_EQ(grant->users, (std::vector<GrantUser>{{web_.key, "web", myself()}}));
  EXPECT_EQ(ledger_problems(path_), "");
  EXPECT_EQ(entries(path_ + "/pending"), "");
}

TEST_F(LedgerTest, RefusesHcaOfAnotherExclusiveGrant) {
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  EXPECT_EQ(ask(db_, 1).exclusive_owner, "container web");
  EXPECT_EQ(ask(db_, 1).others, 1U);
  EXPECT_EQ(ask(web_, 1).exclusive_owner, std::nullopt);
  EXPECT_TRUE(ask(web_, 1).own);
  // Also for a caller that did not read the holdings.
  EXPECT_EQ(allocate(db_, {kAlone}), "cannot allocate `mlx5_0`: container web holds it exclusively");
  EXPECT_EQ(allocate(db_, {kShared}), "cannot allocate `mlx5_0`: container web holds it exclusively");
  EXPECT_FALSE(find(db_));
  ASSERT_TRUE(ledger_.leave(web_, web_.key));
  EXPECT_EQ(ask(db_, 1).exclusive_owner, std::nullopt);
  EXPECT_EQ(allocate(db_, {kAlone}), "");
}

TEST_F(LedgerTest, RefusesExclusiveGrantOfSharedHca) {
  ASSERT_EQ(allocate(web_, {kShared}), "");
  EXPECT_EQ(allocate(db_, {kAlone}), "cannot allocate `mlx5_0` exclusively: other containers hold it");
  EXPECT_EQ(allocate(db_, {kShared}), "");
}

TEST_F(LedgerTest, CountsUnitsUpToTheLimit) {
  for (unsigned i = 1; i <= 5; ++i) {
    const Owner owner = container_owner("c" + std::to_string(i), "/");
    ASSERT_EQ(allocate(owner, {{"mlx5_0", Mode::kSharedMulti, i, std::nullopt}}, myself()), "");
  }
  const Holding holding = ask(container_owner("c5", "/"), 100);
  EXPECT_EQ(holding.others, 10U);
  EXPECT_TRUE(holding.own);
  EXPECT_EQ(holding.own_units, 5U);
  EXPECT_GE(ask(web_, 4).others, 4U);
  EXPECT_EQ(ask(web_, 15).others, 15U);
  EXPECT_EQ(ask(web_, 16).others, 15U);
}

TEST_F(LedgerTest, ReleasesGrantsOfDeadUsers) {
  ASSERT_EQ(allocate(web_, {kAlone, kOtherAlone}, dead_process()), "");
  ASSERT_TRUE(find(web_)->stale);
  EXPECT_EQ(ask(db_, 1).exclusive_owner, std::nullopt);
  EXPECT_FALSE(find(web_)) << "released by the request";
  EXPECT_EQ(entries(path_ + "/hca/mlx5_1/holders"), "") << "also the HCA that was not locked";
  EXPECT_EQ(allocate(db_, {kAlone}), "");
  // At the limit, grants of dead users are released and those of living users stay.
  for (int i = 0; i < 6; ++i) {
    const Owner owner = container_owner("c" + std::to_string(i), "/");
    ASSERT_EQ(allocate(owner, {{"mlx5_2", Mode::kShared, 1, 4}}, i % 2 == 0 ? dead_process() : myself()), "");
  }
  EXPECT_EQ(ask(web_, 4, "mlx5_2").others, 3U);
}

// A user without a recorded process may live.
TEST_F(LedgerTest, KeepsGrantOfUserWithoutProcess) {
  ASSERT_EQ(allocate(web_, {kAlone}, std::nullopt), "");
  EXPECT_FALSE(find(web_)->stale);
  EXPECT_EQ(ask(db_, 1).exclusive_owner, "container web");
  ASSERT_TRUE(ledger_.release_grant(web_.key));
  EXPECT_FALSE(find(web_));
}

TEST_F(LedgerTest, SecondBookingOfContainerJoinsTheFirst) {
  ASSERT_EQ(allocate(web_, {kShared}), "");
  ASSERT_EQ(allocate(web_, {{"mlx5_0", Mode::kSharedMulti, 3, std::nullopt}}, myself()), "");
  const auto grant = must(find(web_));
  EXPECT_EQ(grant.hcas, (std::vector<PlannedHca>{{"mlx5_0", Mode::kSharedMulti, 3, std::nullopt}}));
  EXPECT_EQ(grant.users.size(), 1U);
}

TEST_F(LedgerTest, KeepsPodGrantWhileItsNamespaceExists) {
  Child first;
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-1", "c-1", first.identity()}), "");
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-2", "c-2", myself()}), "");
  ASSERT_TRUE(ledger_.leave(pod_, "c-2"));
  first.kill();
  EXPECT_FALSE(find(pod_)->stale) << "a restarted container joins it";
  ASSERT_EQ(allocate(pod_, {kAlone}, {"c-3", "c-3", myself()}), "");
  EXPECT_EQ(find(pod_)->users, (std::vector<GrantUser>{{pod_.key, "pod", {}}, {"c-3", "c-3", myself()}}))
      << "the dead user is dropped, and the pod keeps its HCAs";
  ASSERT_TRUE(ledger_.leave(pod_, "c-3"));
  EXPECT_EQ(find(pod_)->hcas, (std::vector<PlannedHca>{kAlone}));
}

TEST_F(LedgerTest, ReleasesPodGrantWithoutNamespaceAndProcesses) {
  write_file(temp_ / "cni-1", "");
  Child init;
  const Owner owner = pod_of(temp_ / "cni-1");
  ASSERT_EQ(allocate(owner, {kAlone}, {"c-1", "c-1", init.identity()}), "");
  unlink((temp_ / "cni-1").c_str());
  EXPECT_FALSE(find(owner)->stale) << "a process is still in it";
  init.kill();
  EXPECT_TRUE(find(owner)->stale);
  EXPECT_EQ(ask(db_, 1).exclusive_owner, std::nullopt);
  EXPECT_FALSE(find(owner));
}

// The kernel reuses the inode number of a namespace that is gone.
TEST_F(LedgerTest, NewPodWithReusedInodeGetsNoOldHca) {
  const Owner old = netns_owner({4, 4026532500, temp_ / "cni-old"});
  ASSERT_EQ(allocate(old, {kAlone, kOtherAlone}, {"c-1", "c-1", dead_process()}), "");
  const Owner fresh = netns_owner({4, 4026532500, temp_ / "cni-new"});
  ASSERT_EQ(old.key, fresh.key);
  EXPECT_FALSE(ask(fresh, 1).own);
  ASSERT_EQ(allocate(old, {kAlone}, {"c-1", "c-1", dead_process()}), "");
  ASSERT_EQ(allocate(fresh, {kOtherAlone}, {"c-2", "c-2", myself()}), "");
  const auto grant = must(find(fresh));
  EXPECT_EQ(grant.hcas, (std::vector<PlannedHca>{kOtherAlone}));
  EXPECT_EQ(grant.owner.netns->path, temp_ / "cni-new");
}

TEST_F(LedgerTest, DropsUnsettledHcasWhenContainerLeavesPod) {
  ASSERT_EQ(allocate(pod_, {kShared}, {"c-1", "c-1", myself()}), "");
  ASSERT_TRUE(book(ledger_, pod_, {kShared, kOtherAlone}, {"c-2", "c-2", myself()}));
  EXPECT_EQ(find(pod_)->hcas.size(), 2U);
  ASSERT_TRUE(ledger_.leave(pod_, "c-2"));
  EXPECT_EQ(find(pod_)->hcas, (std::vector<PlannedHca>{kShared}));
  EXPECT_EQ(ledger_problems(path_), "");
  // The first container of a pod fails: no grant remains.
  const Owner other = netns_owner({1, 2, "/proc/self/ns/net"});
  ASSERT_TRUE(book(ledger_, other, {kOtherAlone}, {"c-3", "c-3", myself()}));
  ASSERT_TRUE(ledger_.leave(other, "c-3"));
  EXPECT_FALSE(find(other));
  EXPECT_EQ(entries(path_ + "/pending"), "");
}

TEST_F(LedgerTest, BindMovesGrantOfTokenToContainer) {
  const std::string token = new_token().value();
  const Owner booked = token_owner(token);
  GrantUser requester{booked.key, "web", dead_process()};
  requester.view = view_name(kView);
  ASSERT_EQ(allocate(booked, {kAlone}, requester), "");
  ASSERT_TRUE(ledger_.make_view(view_name(kView), kView));
  const auto bound = must(ledger_.bind(token, web_, {web_.key, "web", myself()}));
  ASSERT_TRUE(bound) << "its requester is gone, but the grant was not released yet";
  EXPECT_TRUE((bound)->pending);
  ASSERT_TRUE(ledger_.settle(web_.key));
  EXPECT_FALSE(find(booked));
  EXPECT_EQ(find(web_)->hcas, (std::vector<PlannedHca>{kAlone}));
  GrantUser container{web_.key, "web", myself()};
  container.view = requester.view;
  EXPECT_EQ(find(web_)->users, (std::vector<GrantUser>{container}));
  EXPECT_EQ(ask(db_, 1).exclusive_owner, "container web");
  EXPECT_EQ(ledger_problems(path_), "");
  // A token can be bound once.
  EXPECT_FALSE(ledger_.bind(token, db_, {db_.key, "db", myself()}).value());
}

TEST_F(LedgerTest, BindAddsGrantOfTokenToPod) {
  ASSERT_EQ(allocate(pod_, {kShared}, {"c-1", "c-1", myself()}), "");
  const std::string token = new_token().value();
  const Owner booked = token_owner(token);
  ASSERT_EQ(allocate(booked, {kShared, kOtherAlone}, {booked.key, "c-2", myself()}), "");
  ASSERT_TRUE(ledger_.bind(token, pod_, {"c-2", "c-2", myself()}).value());
  ASSERT_TRUE(ledger_.settle(pod_.key));
  EXPECT_EQ(find(pod_)->hcas, (std::vector<PlannedHca>{kShared, kOtherAlone}));
  EXPECT_EQ(find(pod_)->users.size(), 2U);
  EXPECT_EQ(entries(path_ + "/hca/mlx5_0/holders"), pod_.key + "@1");
}

// The pod was known when the spec was written: the pod owns the grant, and the token is a user.
TEST_F(LedgerTest, BindReplacesTokenUserByContainer) {
  const std::string token = new_token().value();
  GrantUser requester{token_owner(token).key, "c-1", dead_process()};
  requester.view = view_name(kView);
  ASSERT_EQ(allocate(pod_, {kAlone}, requester), "");
  ASSERT_TRUE(ledger_.make_view(view_name(kView), kView));
  ASSERT_TRUE(ledger_.bind(token, pod_, {"c-1", "c-1", myself()}).value());
  ASSERT_TRUE(ledger_.settle(pod_.key));
  GrantUser container{"c-1", "c-1", myself()};
  container.view = requester.view;
  EXPECT_EQ(find(pod_)->users, (std::vector<GrantUser>{container}));
  EXPECT_FALSE(ledger_.bind(token, pod_, {"c-1", "c-1", myself()}).value());
}

// A container can read its token in its mounts, and write it into the annotations of another container.
TEST_F(LedgerTest, RefusesTokenOfAnotherContainer) {
  const std::string token = new_token().value();
  const Owner booked = token_owner(token);
  fs::create_directory(temp_ / "web");
  fs::create_directory_symlink(temp_ / "web", temp_ / "link");
  const GrantUser web{web_.key, "web", myself(), temp_ / "web"};
  const GrantUser token_user{booked.key, "web", dead_process(), temp_ / "link"};
  for (const Owner& owner : {booked, pod_}) {
    ASSERT_EQ(allocate(owner, {kAlone}, token_user), "");
    EXPECT_EQ(error_message(ledger_.bind(token, pod_, {db_.key, "db", myself(), temp_ / "web"})),
              fmt::format("the annotation `rdma-init.io/grant` of container `db` of bundle `{0}/web` names a grant of "
                          "container `web` of bundle `{0}/link`",
                          temp_.path()));
    EXPECT_FALSE(ledger_.bind(token, pod_, {web_.key, "web", myself(), temp_ / "missing"}));
    EXPECT_FALSE(ledger_.bind(token, pod_, {db_.key, "db", myself()}));
    EXPECT_EQ(find(owner)->users, (std::vector<GrantUser>{token_user}));
    EXPECT_EQ(ledger_problems(path_), "");
    ASSERT_TRUE(ledger_.bind(token, pod_, web).value());
    ASSERT_TRUE(ledger_.release_grant(pod_.key));
  }
  // A record without a bundle, as rdma-nri writes it, is checked by id only.
  ASSERT_EQ(allocate(booked, {kAlone}, {booked.key, "web", myself()}), "");
  EXPECT_FALSE(ledger_.bind(token, db_, {db_.key, "db", myself(), temp_ / "web"}));
  EXPECT_TRUE(ledger_.bind(token, web_, web).value());
}

TEST_F(LedgerTest, TeardownWithoutGrantSucceedsAndUnknownTokensBindNothing) {
  EXPECT_TRUE(ledger_.leave(web_, web_.key));
  EXPECT_TRUE(ledger_.release_grant(web_.key));
  EXPECT_TRUE(ledger_.settle(web_.key));
  EXPECT_TRUE(ledger_.leave(Owner{Owner::Kind::kContainer, "../x", "", {}}, "../y"));
  EXPECT_TRUE(ledger_.repair_pending());
  EXPECT_TRUE(ledger_.recover()->released.empty());
  for (const std::string token : {"", "x", "../../etc/passwd", "0123456789ABCDEF0123456789ABCDEF",
                                  "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcde/"}) {
    EXPECT_FALSE(must(ledger_.bind(token, web_, {web_.key, "web", myself()}))) << token;
  }
  EXPECT_FALSE(find(web_));
}

TEST_F(LedgerTest, RecoverReleasesStaleGrantsAndEntries) {
  ASSERT_EQ(allocate(web_, {kShared}, dead_process()), "");
  ASSERT_EQ(allocate(db_, {kShared}), "");
  write_file(path_ + "/hca/mlx5_0/holders/nobodys@3", "");
  fs::remove(path_ + "/hca/mlx5_0/exclusive");
  ASSERT_EQ(symlink("nobodys", (path_ + "/hca/mlx5_0/exclusive").c_str()), 0);
  write_file(path_ + "/pending/@1.1.7", "half a fi");
  EXPECT_EQ(must(ledger_.recover()).released, (std::vector<std::string>{"container web"}));
  EXPECT_EQ(entries(path_ + "/hca/mlx5_0"), "holders lock");
  EXPECT_EQ(entries(path_ + "/hca/mlx5_0/holders"), db_.key + "@1");
  EXPECT_EQ(entries(path_ + "/pending"), "");
  EXPECT_EQ(ledger_.list()->size(), 1U);
}

TEST_F(LedgerTest, NamesProcessThatHoldsLock) {
  const auto locked = must(ledger_.lock({"mlx5_1", "mlx5_0", "mlx5_1"}));
  const auto waited = ledger_.lock({"mlx5_0"}, 20);
  EXPECT_EQ(
      std::regex_replace(error_message(waited), std::regex("since [0-9]+ s"), "since N s"),
      fmt::format("cannot lock HCA `mlx5_0` within 20 ms: process {} (hook_unit_tests, since N s) holds it", getpid()));
  EXPECT_EQ(error_code(waited), EAGAIN);
  EXPECT_EQ(error_message(ledger_.lock({"mlx5_0"}, 20, {}, false)),
            "cannot lock HCA `mlx5_0` within 20 ms: another process holds it");
  EXPECT_TRUE(ledger_.lock({"mlx5_2"}, 20));
}

TEST_F(LedgerTest, NamesContainerAndAgeOfHeldLock) {
  const auto message = [&] { return ledger_.lock({"mlx5_0"}, 20).error().message; };
  const auto other = Ledger::open(path_, nullptr, "web-\x1b");
  const auto locked = must(other->lock({"mlx5_0"}));
  const std::string lock = path_ + "/hca/mlx5_0/lock";
  const timespec before{::time(nullptr) - 12, 0};
  const timespec times[] = {before, before};
  ASSERT_EQ(::utimensat(AT_FDCWD, lock.c_str(), times, 0), 0);
  const std::string message_text = message();
  const std::string process =
      fmt::format("process {} (hook_unit_tests, container `web-?`, since 1", getpid());  // 12 or 13 s
  EXPECT_TRUE(has_text(message_text, process));

  // Texts of no living process, of another version, and of a process that had the lock before.
  for (const char* text : {"", "4711\n", "x 1 web\n", "1 1 web\n"}) {
    fs::resize_file(lock, 0);
    write_file(lock, text);
    EXPECT_EQ(std::regex_replace(message(), std::regex("since [0-9]+ s"), "since N s"),
              fmt::format("cannot lock HCA `mlx5_0` within 20 ms: process {} (hook_unit_tests, since N s) holds it",
                          getpid()))
        << text;
  }
  EXPECT_EQ(ledger_.lock({"mlx5_0"}, 0).error().message,
            "cannot lock HCA `mlx5_0` within 0 s: another process holds it");
}

// A call names itself in the first file that it locks only.
TEST_F(LedgerTest, NamesContainerThatHoldsSeveralLocks) {
  const auto other = Ledger::open(path_, nullptr, "web-1");
  const auto locked = must(other->lock({"mlx5_0", "mlx5_1"}));
  const std::string message_text = ledger_.lock({"mlx5_1"}, 20).error().message;
  EXPECT_TRUE(has_text(message_text, fmt::format("process {} (hook_unit_tests, container `web-1`, since ", getpid())))
      << message_text;
}

// A daemon names another container in each call, and only in the first file that it locks.
TEST_F(LedgerTest, NamesContainerOfPresentCall) {
  { const auto earlier = must(Ledger::open(path_, nullptr, "web-0")->lock({"mlx5_1"})); }
  usleep(20000);
  const auto other = Ledger::open(path_, nullptr, "web-1");
  const auto locked = must(other->lock({"mlx5_0", "mlx5_1"}));
  const std::string message_text = ledger_.lock({"mlx5_1"}, 20).error().message;
  EXPECT_TRUE(has_text(message_text, "container `web-1`")) << message_text;
}

TEST_F(LedgerTest, NamesProcessThatLockedGrant) {
  const auto files = LedgerFiles::open(path_).value();
  const auto others = LedgerFiles::open(path_).value();
  const auto lock = KeyLock::take(*files, {web_.key});
  ASSERT_TRUE(lock);
  const std::string begin = fmt::format("cannot lock grant `{}` within 20 ms: ", web_.key);
  const std::string message_text = KeyLock::take(*others, {web_.key}, 20).error().message;
  EXPECT_TRUE(message_text.starts_with(begin + fmt::format("process {} (hook_unit_tests, since ", getpid())))
      << message_text;
  EXPECT_TRUE(message_text.ends_with(" s) holds it")) << message_text;
  EXPECT_EQ(KeyLock::take(*others, {web_.key}, 0).error().message,
            fmt::format("cannot lock grant `{}` within 0 s: another process holds it", web_.key));
}

// A child has the open file description of the lock too, so its descriptor alone would keep the lock.
TEST_F(LedgerTest, ReleasesLocksOfGrantsWhileForkedChildLives) {
  const auto files = LedgerFiles::open(path_).value();
  const auto others = LedgerFiles::open(path_).value();
  pid_t child = -1;
  {
    auto first = must(KeyLock::take(*files, {web_.key, "other"}));
    child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    EXPECT_FALSE(KeyLock::take(*others, {web_.key}, 0));
    const KeyLock moved = std::move(first);
    EXPECT_FALSE(KeyLock::take(*others, {"other"}, 0)) << "a moved lock stays";
  }
  EXPECT_TRUE(KeyLock::take(*others, {web_.key, "other"}, 0));
  {
    const auto failed = must(KeyLock::take(*others, {"other"}));
    EXPECT_FALSE(KeyLock::take(*files, {web_.key, "other"}, 0));
  }
  EXPECT_TRUE(KeyLock::take(*others, {web_.key}, 0)) << "a lock that was not taken whole is released";
  {
    const auto lock = must(KeyLock::take(*files, {web_.key}));
    const pid_t locker = ::fork();
    if (locker == 0) ::_exit(KeyLock::take(*files, {web_.key}, 0) ? 1 : 0);
    int status = -1;
    EXPECT_EQ(::waitpid(locker, &status, 0), locker);
    EXPECT_EQ(status, 0) << "the lock excludes the child";
    EXPECT_FALSE(KeyLock::take(*others, {web_.key}, 0)) << "and the child releases nothing";
  }
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(LedgerTest, RefusesInvalidNames) {
  for (const std::string name : {"", ".", "..", "a/b", "a b"})
    EXPECT_EQ(error_message(ledger_.lock({name})),
              "cannot use HCA `" + name + "`: the name is not 1 to 63 of [A-Za-z0-9_.-]");
  EXPECT_FALSE(ledger_.lock({std::string(64, 'x')}));
  auto locked = ledger_.lock({"mlx5_0"});
  EXPECT_EQ(locked->book(web_, {{"mlx5_1", Mode::kHca, 1, std::nullopt}}, {web_.key, "web", myself()}).error().message,
            "internal error: cannot book `mlx5_1`: it is not locked");
  EXPECT_FALSE(locked->book(Owner{Owner::Kind::kContainer, "../x", "", {}}, {kShared}, {"c", "c", myself()}));
  EXPECT_FALSE(locked->book(web_, {kShared}, {"../c", "c", myself()}));
}

TEST_F(LedgerTest, LocksRenamedDeviceOnce) {
  const HcaDevices devices = {{kAlone.name, "0000.1a.00.0"}, {"mlx5_9", "0000.1a.00.0"}};
  auto one = ledger_.lock({kAlone.name}, 20, devices);
  ASSERT_TRUE(one);
  EXPECT_EQ(ledger_.lock({"mlx5_9"}, 20, devices).error().code, EAGAIN);
  ASSERT_TRUE(one->book(web_, {kAlone}, {web_.key, "web", myself()}));
  one = base::make_error("unlocked");
  auto two = must(ledger_.lock({"mlx5_9"}, 20, devices));
  EXPECT_EQ(error_message(two.book(db_, {{"mlx5_9", Mode::kExclusive, 1, std::nullopt}}, {db_.key, "db", myself()})),
            "cannot allocate `mlx5_9`: " + web_.label + " holds it exclusively");
  ASSERT_TRUE(ledger_.release_grant(web_.key));
  EXPECT_TRUE(two.book(db_, {{"mlx5_9", Mode::kExclusive, 1, std::nullopt}}, {db_.key, "db", myself()}));
  EXPECT_EQ(find(db_)->hcas.front().device, "0000.1a.00.0");
}

TEST_F(LedgerTest, NamesGrantThatCannotBeParsed) {
  is_damaged_ = true;
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  const std::string file = grant_file(web_);
  std::string good = read_file(file);
  good.resize(good.find('\n'));
  const auto write = [&](const std::string& text) {
    write_file(file, fmt::format("{}\n{:016x}\n", text, checksum(text)));
  };
  write(good);
  ASSERT_TRUE(ledger_.find(web_.key));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string rows[] = {
      "",
      "[]",
      good.substr(0, good.size() / 2),
      std::string((1 << 20) + 1, ' '),
      with("\"format\":2", "\"format\":1"),
      with("\"format\":2,", ""),
      with("\"format\":2", "\"format\":\"2\""),
      with("\"label\"", "\"lebel\""),
      with("\"process\"", "\"prozess\""),
      with("\"start_time\"", "\"start\":1,\"start_time\""),
      with("\"mlx5_0\"", "\"../x\""),
      with("\"exclusive\"", "\"alone\""),
      with("\"units\":1", "\"units\":-1"),
      with("\"units\":1", "\"units\":4294967296"),
      with(web_.key, "other"),
      with("\"settled\":false", "\"settled\":1"),
      with("\"pid\":", "\"pid\":99999999999"),
      with("\"since\":", "\"since\":1,\"since\":"),
      with("\"users\":[", "\"users\":[" + std::string(20, '[') + std::string(20, ']') + ","),
  };
  for (const std::string& text : rows) {
    write(text);
    EXPECT_TRUE(has_text(error_message(ledger_.find(web_.key)), file));
    EXPECT_FALSE(ledger_.list());
    const auto holdings = must(ledger_.lock({"mlx5_0"})->holdings(db_, {{"mlx5_0", {1, 1}}}));
    EXPECT_TRUE(holdings.at("mlx5_0").exclusive_owner) << "an unreadable grant keeps its HCA";
  }
}

TEST_F(LedgerTest, RefusesFilesThatOtherUsersCanChange) {
  is_damaged_ = true;
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  const std::string file = grant_file(web_);
  chmod(file.c_str(), 0666);
  EXPECT_EQ(ledger_.find(web_.key).error().message, "cannot use `" + file + "`: users other than root can change it");
  fs::rename(file, temp_ / "elsewhere");
  fs::create_symlink(temp_ / "elsewhere", file);
  EXPECT_EQ(ledger_.find(web_.key).error().message, "cannot read `" + file + "`: Too many levels of symbolic links");
  unlink(file.c_str());
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(ledger_.find(web_.key).error().message, "cannot use `" + file + "`: it is not a file");
}

TEST(LedgerDirectory, RefusesDirectoriesOfOtherUsers) {
  const TempDir temp;
  const auto error = [](const std::string& path) {
    const auto ledger = Ledger::open(path);
    return ledger ? "none" : ledger.error().message + " | " + ledger.error().hint;
  };
  fs::create_directory(temp / "open");
  chmod((temp / "open").c_str(), 0755);
  EXPECT_EQ(error(temp / "open"),
            "cannot use `" + (temp / "open") +
                "`: other users can read or change it | pass a directory of root with mode 0700 to --ledger");
  fs::create_directory(temp / "target");
  chmod((temp / "target").c_str(), 0700);
  fs::create_directory_symlink(temp / "target", temp / "link");
  const std::string remedy = " | pass a directory of root with mode 0700 to --ledger";
  EXPECT_EQ(error(temp / "link"), "cannot use `" + (temp / "link") + "`: it is not a directory" + remedy);
  write_file(temp / "file", "");
  EXPECT_EQ(error(temp / "file"), "cannot use `" + (temp / "file") + "`: it is not a directory" + remedy);
  ASSERT_EQ(error(temp / "good"), "none");
  fs::remove(temp / "good/grants");
  fs::create_directory_symlink(temp / "target", temp / "good/grants");
  EXPECT_EQ(error(temp / "good"), "cannot use `" + (temp / "good/grants") + "`: it is not a directory" + remedy);
  if (geteuid() != 0) GTEST_SKIP() << "only root can change the owner of a directory";
  ASSERT_EQ(chown((temp / "target").c_str(), 65534, 65534), 0);
  EXPECT_EQ(error(temp / "target"), "cannot use `" + (temp / "target") + "`: its owner is not root" + remedy);
  for (const char* like_ours : {"run/rdma-hook", "run/rdma-hook-data"}) {
    fs::create_directories(temp / like_ours);
    EXPECT_EQ(error(temp / like_ours),
              "cannot use `" + (temp / like_ours) + "`: other users can read or change it" + remedy);
  }
}

TEST(KeptLedger, OpensAgainOnlyAfterChanges) {
  const TempDir temp;
  const std::string path = temp / "ledger";
  KeptLedger kept(path);
  // The ledger's directory may have changed in the present step of the clock.
  const auto opens_same = [&] {
    const int before = must(kept.open()).directory().fd.get();
    return must(kept.open()).directory().fd.get() == before && before >= 0;
  };
  const auto inode = [](const Ledger& ledger) {
    struct stat status {};
    return ::fstat(ledger.directory().fd.get(), &status) == 0 ? status.st_ino : 0;
  };
  for (int round = 0; round < 100 && !opens_same(); ++round)
    usleep(1000);
  {
    const Ledger first = must(kept.open());
    const Ledger second = must(kept.open());
    EXPECT_NE(first.directory().fd.get(), second.directory().fd.get()) << "two calls at once";
  }
  // A change of an entry is noticed: another process of another PID namespace has written the place.
  for (int round = 0; round < 100 && !opens_same(); ++round)
    usleep(1000);
  std::filesystem::remove(path + "/place");
  std::filesystem::create_symlink("pid:[1] time:[1]", path + "/place");
  EXPECT_TRUE(kept.open());
  EXPECT_NE(std::filesystem::read_symlink(path + "/place"), "pid:[1] time:[1]") << "it was checked again";

  for (int round = 0; round < 100 && !opens_same(); ++round)
    usleep(1000);
  std::filesystem::rename(path, path + ".old");
  {
    const Ledger made = must(kept.open());
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0) << "it was moved away";
    EXPECT_EQ(inode(made), status.st_ino);
  }
  std::filesystem::remove_all(path);
  const Ledger made = must(kept.open());
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0) << "it is made again";
  EXPECT_EQ(inode(made), status.st_ino);
}

TEST(Ledger, SearchesNothingForNewKey) {
  const TempDir temp;
  const auto ledger = must(Ledger::open(temp / "ledger"));
  const Owner token = token_owner(kToken);
  ledger.expect_new(token.key);
  EXPECT_FALSE(must(ledger.find(token.key)));
  ASSERT_OK(test_support::book(ledger, token, {kAlone}, {token.key, "c", myself()}));
  EXPECT_TRUE(must(ledger.find(token.key))) << "it is booked now";
}

}  // namespace
}  // namespace hook
