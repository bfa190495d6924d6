// Whether the users and the owner of a grant are gone, for each result of a lookups. A failed lookup of a process or
// network namespace releases no HCA.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "hook/ledger/absence.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using base::Result;
using namespace test_support;

enum class Seen { kThere, kAbsent, kUnknown };
constexpr Seen kAll[] = {Seen::kThere, Seen::kAbsent, Seen::kUnknown};

Result<Presence> result_of(Seen seen) {
  if (seen == Seen::kUnknown) return base::sys_error(EACCES, "cannot look");
  return seen == Seen::kAbsent ? Presence::kAbsent : Presence::kPresent;
}

// Returns the same result for all objects of a kind.
struct FixedLookups : Lookups {
  Seen processes = Seen::kThere;
  Seen containers = Seen::kThere;
  Seen cgroups = Seen::kThere;
  Seen namespaces = Seen::kThere;
  bool above = false;
  Result<Presence> process(const ProcessIdentity&) const override { return result_of(processes); }
  bool is_above_me(const ProcessIdentity&) const override { return above; }
  Result<Presence> container(const RuntimeState&, const std::string&, const std::string&) const override {
    return result_of(containers);
  }
  Result<Presence> cgroup(const CgroupIdentity&) const override { return result_of(cgroups); }
  Result<Presence> netns(const NetnsIdentity&) const override { return result_of(namespaces); }
};

const ProcessIdentity kSelf{100, 1};

StoredUser user(bool process, bool state = false, bool cgroup = false) {
  StoredUser one;
  one.user = {"container-web", "web", {}};
  if (process) one.user.process = ProcessIdentity{7, 1};
  if (state) one.user.state = RuntimeState{};
  if (cgroup) one.user.cgroup = CgroupIdentity{};
  one.settled = true;
  return one;
}

StoredUser worked_on(const ProcessIdentity& by, bool absent) {
  StoredUser one = user(true);
  one.worker = StepWorker{by, 1};
  one.worker_absent = absent;
  return one;
}

StoredUser token() {
  StoredUser one = user(true);
  one.user.key = token_owner("abc").key;
  return one;
}

StoredGrant grant(Owner::Kind kind, std::vector<StoredUser> users) {
  StoredGrant one;
  one.owner.kind = kind;
  one.owner.key = "key";
  if (kind == Owner::Kind::kNetns) one.owner.netns = NetnsIdentity{};
  one.hcas = {{"mlx5_0", Mode::kExclusive, 1, {}}};
  one.users = std::move(users);
  return one;
}

TEST(Absence, UserHasEndedOnlyIfAllItsPartsAreProvenAbsent) {
  for (const Seen process : kAll) {
    for (const Seen container : kAll) {
      for (const Seen cgroup : kAll) {
        FixedLookups fixed;
        fixed.processes = process;
        fixed.containers = container;
        fixed.cgroups = cgroup;
        const bool no_process = process == Seen::kAbsent;
        EXPECT_FALSE(has_ended(user(false).user, fixed));
        EXPECT_EQ(has_ended(user(true).user, fixed), no_process);
        EXPECT_EQ(has_ended(user(true, true).user, fixed), no_process && container == Seen::kAbsent);
        EXPECT_EQ(is_user_absent(user(true, false, true), fixed), no_process && cgroup == Seen::kAbsent);
        StoredUser ended = user(false, false, true);
        ended.ended = true;
        EXPECT_EQ(is_user_absent(ended, fixed), cgroup == Seen::kAbsent);
        EXPECT_FALSE(is_user_absent(worked_on(kSelf, false), fixed));
        EXPECT_EQ(is_user_absent(worked_on(kSelf, true), fixed), no_process);
        EXPECT_EQ(is_worker_absent({kSelf, 1}, fixed), no_process);
      }
    }
  }
}

TEST(Absence, ContainerGrantIsStaleWithoutUsersAndDropsDeadOnes) {
  FixedLookups absent;
  absent.processes = Seen::kAbsent;
  for (const auto kind : {Owner::Kind::kContainer, Owner::Kind::kToken}) {
    EXPECT_TRUE(is_stale(grant(kind, {}), {}, absent));
    EXPECT_TRUE(is_stale(grant(kind, {user(true)}), {}, absent));
    EXPECT_FALSE(is_stale(grant(kind, {user(true), user(false)}), {}, absent)) << "without a process nothing is proven";
    EXPECT_FALSE(is_stale(grant(kind, {user(true)}), {}, FixedLookups()));
  }
  StoredUser killed = worked_on(kSelf, true);
  killed.settled = false;
  killed.hcas = {{"mlx5_1", Mode::kExclusive, 1, {}}};
  auto one = grant(Owner::Kind::kContainer, {user(false), killed});
  EXPECT_EQ(drop_dead(one, {}, absent), Left::kSome);
  EXPECT_EQ(one.users, std::vector<StoredUser>{user(false)});
  EXPECT_EQ(drop_dead(one, {}, absent), Left::kAll);
  auto only = grant(Owner::Kind::kContainer, {killed});
  only.hcas.clear();
  EXPECT_EQ(drop_dead(only, {}, absent), Left::kNothing);
  auto pod = grant(Owner::Kind::kNetns, {token(), user(false)});
  EXPECT_EQ(drop_dead(pod, token().user.key, absent), Left::kAll);
  EXPECT_EQ(drop_dead(pod, {}, absent), Left::kSome);
  EXPECT_EQ(pod.users, std::vector<StoredUser>{user(false)});
}

TEST(Absence, ClaimIsNeverStaleAndLosesOnlyUnfinishedChanges) {
  StoredGrant claim;
  claim.owner = claim_owner("3f2a", {.space = "team", .name = "nics", .token = kToken, .pods = {}, .hcas = {}});
  StoredUser user;
  user.user = {claim.owner.key, "3f2a", std::nullopt};
  user.settled = true;
  claim.users = {user};
  claim.hcas = {kAlone};
  EXPECT_FALSE(is_stale(claim));
  EXPECT_EQ(drop_dead(claim, {}), Left::kAll);
  // A claim for monitoring has no HCA.
  claim.hcas.clear();
  EXPECT_EQ(drop_dead(claim, {}), Left::kAll);
  // The call that prepared the claim was killed.
  claim.users[0].settled = false;
  claim.users[0].worker = StepWorker{dead_process(), 1};
  claim.users[0].worker_absent = true;
  claim.users[0].hcas = {kAlone};
  EXPECT_EQ(drop_dead(claim, {}), Left::kNothing);
}

TEST(Absence, PodGrantIsStaleWithoutNamespaceAndProcesses) {
  constexpr auto kPod = Owner::Kind::kNetns;
  const std::string kToken = token().user.key;
  struct Row {
    const char* what;
    std::vector<StoredUser> users;
    Seen processes;
    Seen namespaces;
    const char* binding;
    bool stale;
  };
  const Row rows[] = {
      {"between two containers", {}, Seen::kAbsent, Seen::kThere, "", false},
      {"the namespace is gone", {}, Seen::kAbsent, Seen::kAbsent, "", true},
      {"the namespace is unknown", {}, Seen::kAbsent, Seen::kUnknown, "", false},
      {"a container missed its poststop", {user(true)}, Seen::kAbsent, Seen::kThere, "", false},
      {"only a dead token", {token()}, Seen::kAbsent, Seen::kThere, "", true},
      {"its container has come", {token()}, Seen::kAbsent, Seen::kThere, kToken.c_str(), false},
      {"a token whose requester lives", {token()}, Seen::kThere, Seen::kThere, "", false},
      {"a token and a container", {token(), user(true)}, Seen::kAbsent, Seen::kThere, "", false},
      {"the namespace lives on in a process", {user(true)}, Seen::kThere, Seen::kAbsent, "", false},
      {"or may", {user(true)}, Seen::kUnknown, Seen::kAbsent, "", false},
      {"a user without a process proves nothing", {user(false)}, Seen::kAbsent, Seen::kAbsent, "", true},
      {"steps run", {worked_on(kSelf, false)}, Seen::kAbsent, Seen::kAbsent, "", false}};
  for (const Row& row : rows) {
    FixedLookups fixed;
    fixed.processes = row.processes;
    fixed.namespaces = row.namespaces;
    EXPECT_EQ(is_stale(grant(kPod, row.users), row.binding, fixed), row.stale) << row.what;
  }
  EXPECT_FALSE(is_namespace_absent(container_owner("web", "/b")));
}

TEST(Absence, DetectsUsersThatHaveNotEnded) {
  FixedLookups absent;
  absent.processes = Seen::kAbsent;
  FixedLookups above;
  above.above = true;
  StoredUser ended = user(true);
  ended.ended = true;
  EXPECT_FALSE(is_another_ones_end(ended, kSelf, FixedLookups()));
  EXPECT_FALSE(is_another_ones_end(user(false), kSelf, FixedLookups()));
  EXPECT_TRUE(is_another_ones_end(user(true), kSelf, FixedLookups()));
  EXPECT_FALSE(is_another_ones_end(user(true), kSelf, absent));
  EXPECT_FALSE(is_another_ones_end(user(true), kSelf, above)) << "its runtime is an ancestor";
  EXPECT_TRUE(is_another_ones_end(worked_on({8, 1}, false), kSelf, absent)) << "its createRuntime is running";
  EXPECT_FALSE(is_another_ones_end(worked_on(kSelf, false), kSelf, FixedLookups()));
  FixedLookups fixed;
  EXPECT_TRUE(check_ended(user(false).user, fixed));
  EXPECT_EQ(check_ended(user(true).user, fixed).error().message,
            "cannot allocate for container `web`: process 7 of a container of this id and bundle has not ended");
  fixed.processes = Seen::kUnknown;
  EXPECT_EQ(check_ended(user(true).user, fixed).error().code, EBUSY);
  fixed.processes = Seen::kAbsent;
  EXPECT_TRUE(check_ended(user(true).user, fixed));
  EXPECT_EQ(check_ended(user(true, true).user, fixed).error().code, EBUSY);
  EXPECT_TRUE(check_seen(user(true, true), fixed)) << "it lives";
  fixed.containers = Seen::kUnknown;
  EXPECT_EQ(check_ended(user(true, true).user, fixed).error().code, EBUSY);
  EXPECT_FALSE(check_seen(user(true, true), fixed));
  EXPECT_TRUE(check_seen(user(true), fixed));
  fixed.containers = Seen::kAbsent;
  EXPECT_TRUE(check_ended(user(true, true).user, fixed));
  const Owner owner = container_owner("web", "/b");
  EXPECT_EQ(check_empty(owner, user(true, false, true).user, fixed).error().code, EBUSY);
  fixed.cgroups = Seen::kUnknown;
  EXPECT_TRUE(check_empty(owner, user(true, false, true).user, fixed));
  fixed.cgroups = Seen::kAbsent;
  EXPECT_TRUE(check_empty(owner, user(true, false, true).user, fixed));
}

enum Look : int { kHeld = 10, kFree, kNotPossible, kFailed };

class LedgerFailedLookup : public ConsistentLedger {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, for namespaces and mounts";
  }
  // Returns whether another container would get the HCA, and whether recover() keeps the grant.
  static int look(const Ledger& ledger, const Owner& requesting) {
    const auto locked = ledger.lock({kAlone.name});
    const auto holdings = locked ? locked->holdings(requesting, {{kAlone.name, {1, 1}}}) : locked.error();
    const auto recovered = ledger.recover();
    if (!holdings || !recovered) return kFailed;
    return holdings->at(kAlone.name).exclusive_owner && recovered->released.empty() ? kHeld : kFree;
  }
  static int in_other_pid_namespace(const std::function<int()>& body) {
    return in_child([&] {
      if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return static_cast<int>(kNotPossible);
      return in_child([&] {
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
        return mount("proc", "/proc", "proc", 0, nullptr) == 0 ? body() : static_cast<int>(kNotPossible);
      });
    });
  }
  Owner pod_in(const std::string& directory) {
    fs::create_directories(directory);
    std::ofstream(directory + "/cni-1") << "";
    return pod_of(directory + "/cni-1");
  }
};

TEST_F(LedgerFailedLookup, KeepsGrantIfProcessCannotBeRead) {
  Child child;
  ASSERT_EQ(allocate(web_, {kAlone}, {"c", "web", child.identity()}), "");
  const auto look_hidden = [&] {
    const auto ledger = Ledger::open(path_);
    if (!ledger) return static_cast<int>(kFailed);
    return hide_proc() ? look(*ledger, db_) : static_cast<int>(kNotPossible);
  };
  EXPECT_EQ(in_child(look_hidden), kHeld);
  child.kill();
  EXPECT_EQ(in_child(look_hidden), kHeld) << "it has ended, but the lookup fails";
  EXPECT_EQ(look(ledger_, db_), kFree);
}

TEST_F(LedgerFailedLookup, RefusesAnotherPidNamespace) {
  ASSERT_EQ(allocate(web_, {kAlone}, {"c", "web", myself()}), "");
  const auto open = [&] {
    const auto ledger = Ledger::open(path_);
    return ledger ? static_cast<int>(kFree) : ledger.error().code;
  };
  EXPECT_EQ(in_other_pid_namespace(open), EXDEV);
  EXPECT_EQ(look(ledger_, db_), kHeld);
}

// Metrics are served from a container with its own PID namespace, in which the owners' pids mean nothing.
TEST_F(LedgerFailedLookup, ListsRecordsInAnotherPidNamespace) {
  ASSERT_EQ(allocate(web_, {kAlone}, {"c", "web", myself()}), "");
  const PlannedHca other{"mlx5_1", Mode::kExclusive, 1, std::nullopt};
  ASSERT_EQ(allocate(db_, {other}, {"d", "db", dead_process()}), "");
  const auto list = [&] {
    int seen = 0;
    const auto listed = Ledger::for_each_recorded_at(path_, [&](const Grant& grant) -> Result<void> {
      seen += !grant.stale && grant.hcas.size() == 1 ? 1 : 0;
      return {};
    });
    return listed.has_value() && listed.value() ? 100 + seen : static_cast<int>(kFailed);
  };
  EXPECT_EQ(in_other_pid_namespace(list), 102);
  EXPECT_FALSE(
      Ledger::for_each_recorded_at(path_ + "/none", [](const Grant&) { return base::Result<void>(); }).value());
}

TEST_F(LedgerFailedLookup, EmptyLedgerMovesToOtherNamespaces) {
  is_damaged_ = true;
  const std::string place = path_ + "/place";
  const auto own = fs::read_symlink(place);
  const auto note_another = [&] {
    fs::remove(place);
    fs::create_symlink("pid-1.time-2", place);
  };
  note_another();
  EXPECT_TRUE(Ledger::open(path_));
  EXPECT_EQ(fs::read_symlink(place), own);
  ASSERT_EQ(allocate(web_, {kAlone}, {"c", "web", myself()}), "");
  note_another();
  const auto refused = Ledger::open(path_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(
      error_message(refused),
      "cannot use `" + path_ + "` here: it belongs to the namespaces pid-1.time-2, this process is in " + own.string());
}

TEST_F(LedgerFailedLookup, NamesDamagedPlaceAndItsRemedy) {
  const std::string place = path_ + "/place";
  const std::function<void()> damages[] = {[&] { fs::create_symlink("pid-4026531836", place); },
                                           [&] { fs::create_symlink("pid-4026531836.time-40265318x4", place); },
                                           [&] { fs::create_symlink("qid-4026531836.time-4026531834", place); },
                                           [&] { write_file(place, "pid-4026531836.time-4026531834"); }};
  ASSERT_EQ(allocate(web_, {kAlone}, {"c", "web", myself()}), "");
  for (const auto& damage : damages) {
    fs::remove(place);
    damage();
    const auto refused = Ledger::open(path_);
    EXPECT_EQ(error_message(refused), "cannot use `" + place + "`: it is damaged, and names no PID and time namespace");
    EXPECT_EQ(error_hint(refused), "remove it, then run `rdma-hook recover` where containers are started");
  }
  fs::remove(place);
  EXPECT_TRUE(Ledger::open(path_));
}

TEST_F(LedgerFailedLookup, PodNamespaceIsAbsentOnlyFromRecordedDirectory) {
  const std::string directory = temp_ / "netns";
  const std::string away = temp_ / "away";
  const Owner pod = pod_in(directory);
  ASSERT_EQ(allocate(pod, {kAlone}, {"c", "c", dead_process()}), "");
  fs::rename(directory, away);
  EXPECT_EQ(sight(read_presence(*pod.netns)), "unknown: ENOENT");
  EXPECT_EQ(look(ledger_, db_), kHeld) << "the directory is missing";
  fs::create_directory(directory);
  EXPECT_EQ(sight(read_presence(*pod.netns)), "unknown: ESTALE");
  EXPECT_EQ(look(ledger_, db_), kHeld) << "it is another directory";
  std::ofstream(directory + "/cni-1") << "";
  EXPECT_EQ(look(ledger_, db_), kHeld) << "it has another namespace of that name";
  fs::remove_all(directory);
  fs::rename(away, directory);
  EXPECT_EQ(sight(read_presence(*pod.netns)), "present");
  fs::remove(directory + "/cni-1");
  EXPECT_EQ(sight(read_presence(*pod.netns)), "gone");
  EXPECT_EQ(look(ledger_, db_), kFree);
}

}  // namespace
}  // namespace hook
