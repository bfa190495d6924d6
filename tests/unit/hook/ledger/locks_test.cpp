// The ledger with 64 processes at once, with SIGKILL at every system call, with a thousand grants, and with processes
// that are stopped before each of their system calls.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>

#include "support/results.hpp"
#include "tests/unit/sanitized.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using base::Result;
using namespace test_support;
using test_support::book;

constexpr int kWorkers = 64;
constexpr unsigned kLimit = 5;
constexpr std::size_t kHcas = 4;

// The processes' own record of the HCAs that they hold, outside the ledger, by slot.
struct Beliefs {
  std::array<std::array<std::atomic<pid_t>, kWorkers>, kHcas> shared{};
  std::array<std::atomic<pid_t>, kHcas> alone{};
  std::atomic<int> violations{0};
  std::atomic<int> errors{0};
  std::atomic<int> timeouts{0};
  std::atomic<int> exclusive_grants{0};
  std::atomic<int> shared_grants{0};
  std::atomic<int> refusals{0};
};

class SharedBeliefs {
 public:
  SharedBeliefs()
      : memory_(mmap(nullptr, sizeof(Beliefs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        beliefs_(new (memory_) Beliefs) {}
  ~SharedBeliefs() { munmap(memory_, sizeof(Beliefs)); }
  SharedBeliefs(const SharedBeliefs&) = delete;
  SharedBeliefs& operator=(const SharedBeliefs&) = delete;
  Beliefs* operator->() { return beliefs_; }
  Beliefs& operator*() { return *beliefs_; }

 private:
  void* memory_;
  Beliefs* beliefs_;
};

bool lives(pid_t pid) {
  const auto identity = identify(pid);
  return identity && !is_proven_absent(read_presence(*identity));
}

// The life of one container, as hooks see it: request, book the free HCAs, use them, leave.
class Worker {
 public:
  Worker(const std::string& path, int slot, Beliefs& beliefs)
      : path_(path),
        slot_(static_cast<std::size_t>(slot)),
        beliefs_(beliefs),
        owner_(container_owner("c" + std::to_string(slot), "/")),
        random_(static_cast<unsigned>(slot)) {}

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const auto done = live();
      // On a loaded machine the other processes may hold a lock for longer than a call waits. Then the worker keeps its
      // grant, as a container does.
      if (done) continue;
      const bool is_timeout = done.error().code == EAGAIN;
      if (!is_timeout) std::fprintf(stderr, "%s\n", done.error().message.c_str());
      ++(is_timeout ? beliefs_.timeouts : beliefs_.errors);
    }
  }

 private:
  base::Result<void> live() {
    const auto ledger = TRY(Ledger::open(path_));
    TRY_VOID(ledger.repair_pending());
    const std::size_t first = random_() % kHcas;
    const std::size_t second = (first + 1 + random_() % (kHcas - 1)) % kHcas;
    const Mode mode = random_() % 3 == 0 ? Mode::kExclusive : Mode::kShared;
    std::vector<std::size_t> taken;
    {
      auto locked = TRY(ledger.lock({name(first), name(second)}));
      const unsigned limit = mode == Mode::kExclusive ? 1 : kLimit;
      const auto holdings =
          TRY(locked.holdings(owner_, {{name(first), {limit, limit}}, {name(second), {limit, limit}}}));
      std::vector<PlannedHca> wanted;
      for (const std::size_t hca : {first, second}) {
        const auto& holding = holdings.at(name(hca));
        if (holding.exclusive_owner || holding.others >= limit) continue;
        wanted.push_back({name(hca), mode, 1, std::nullopt});
        taken.push_back(hca);
      }
      if (wanted.empty()) {
        ++beliefs_.refusals;
        return {};
      }
      TRY_VOID(locked.book(owner_, wanted, {owner_.key, "c", myself()}));
      for (const std::size_t hca : taken)
        note(hca, mode);
    }
    TRY_VOID(ledger.settle(owner_.key));
    usleep(static_cast<useconds_t>(random_() % 2000));
    forget();
    return ledger.leave(owner_, owner_.key);
  }

  static std::string name(std::size_t hca) { return "mlx5_" + std::to_string(hca); }

  void note(std::size_t hca, Mode mode) {
    const pid_t alone = beliefs_.alone[hca].load();
    if (alone != getpid() && lives(alone)) ++beliefs_.violations;
    unsigned others = 0;
    for (auto& pid : beliefs_.shared[hca])
      others += pid.load() != getpid() && lives(pid.load()) ? 1 : 0;
    if (others >= (mode == Mode::kExclusive ? 1 : kLimit)) ++beliefs_.violations;
    if (mode == Mode::kExclusive) {
      beliefs_.alone[hca] = getpid();
      ++beliefs_.exclusive_grants;
    } else {
      beliefs_.shared[hca][slot_] = getpid();
      ++beliefs_.shared_grants;
    }
  }
  void forget() {
    for (std::size_t hca = 0; hca < kHcas; ++hca) {
      pid_t own = getpid();
      beliefs_.alone[hca].compare_exchange_strong(own, 0);
      beliefs_.shared[hca][slot_] = 0;
    }
  }

  std::string path_;
  std::size_t slot_;
  Beliefs& beliefs_;
  Owner owner_;
  std::minstd_rand random_;
};

pid_t start(const std::string& path, int slot, Beliefs& beliefs, int rounds) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  Worker(path, slot, beliefs).run(rounds);
  _exit(0);
}

TEST(LedgerContention, LimitsHoldUnder64Processes) {
  const TempDir temp;
  SharedBeliefs beliefs;
  const std::string path = temp / "ledger";
  std::vector<pid_t> children;
  for (int slot = 0; slot < kWorkers; ++slot)
    children.push_back(start(path, slot, *beliefs, 4));
  for (const pid_t child : children)
    waitpid(child, nullptr, 0);
  EXPECT_EQ(beliefs->violations, 0);
  EXPECT_EQ(beliefs->errors, 0);
  EXPECT_GT(beliefs->exclusive_grants, 0) << "without grants of both kinds the test proves nothing";
  EXPECT_GT(beliefs->shared_grants, 0);
  EXPECT_GT(beliefs->refusals, 0);
  if (beliefs->timeouts > 0) {
    ASSERT_OK(must(Ledger::open(path)).recover());
  }
  EXPECT_EQ(entries(path + "/grants"), "");
  EXPECT_EQ(entries(path + "/pending"), "");
  EXPECT_EQ(ledger_problems(path), "");
}

TEST(LedgerContention, RecoverCleansUpAfterKilledProcesses) {
  const TempDir temp;
  SharedBeliefs beliefs;
  const std::string path = temp / "ledger";
  std::minstd_rand random(7);
  std::array<pid_t, 16> children{};
  for (std::size_t i = 0; i < children.size(); ++i)
    children[i] = start(path, static_cast<int>(i), *beliefs, 1000);
  for (int kills = 0; kills < 200; ++kills) {
    usleep(static_cast<useconds_t>(random() % 3000));
    const std::size_t victim = random() % children.size();
    kill(children[victim], SIGKILL);
    waitpid(children[victim], nullptr, 0);
    children[victim] = start(path, static_cast<int>(victim), *beliefs, 1000);
  }
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  EXPECT_EQ(beliefs->violations, 0);
  EXPECT_EQ(beliefs->errors, 0);
  EXPECT_GT(beliefs->exclusive_grants, 0);
  const auto ledger = must(Ledger::open(path));
  ASSERT_OK(ledger.recover());
  EXPECT_EQ(entries(path + "/grants"), "");
  EXPECT_EQ(entries(path + "/pending"), "");
  EXPECT_EQ(ledger_problems(path), "");
}

// The containers all wait for one lock. With 64 containers, sanitizers and a loaded machine came near its limit of ten
// seconds.
constexpr int kContainersOfPod = 24;

// Hooks of one pod run at once: each finds its own user, and the HCAs of all.
TEST(LedgerContention, KeepsAllUsersOfPodThatStartAtOnce) {
  const TempDir temp;
  const std::string path = temp / "ledger";
  const Owner pod = netns_owner({1, 2, "/proc/self/ns/net"});
  const auto me = myself();
  std::vector<pid_t> children;
  for (int i = 0; i < kContainersOfPod; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const auto ledger = Ledger::open(path);
      const std::string key = "c" + std::to_string(i);
      const std::string hca = "mlx5_" + std::to_string(i % 8);
      const bool booked =
          ledger && book(*ledger, pod, {{hca, Mode::kExclusive, 1, std::nullopt}}, {key, key, me}).has_value();
      _exit(booked && ledger->settle(pod.key) ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const auto grant = must(Ledger::open(path)->find(pod.key).value());
  EXPECT_EQ(grant.users.size(), static_cast<std::size_t>(kContainersOfPod));
  EXPECT_EQ(grant.hcas.size(), 8U);
  EXPECT_FALSE(grant.pending);
  EXPECT_EQ(ledger_problems(path), "");
}

// An operation that is killed before each of its system calls in turn.
struct Crash {
  const char* name;
  std::function<base::Result<void>(const Ledger&)> before;
  std::function<base::Result<void>(const Ledger&)> body;
  std::string owner_key = {};  // key of the grant that remains when it is done
};

class LedgerCrash : public testing::Test {
 protected:
  const ProcessIdentity me_ = myself();
  const Owner web_ = container_owner("web", "/");
  const Owner rival_ = container_owner("rival", "/");
  const Owner token_ = token_owner(kToken);
  const Owner pod_ = netns_owner({1, 2, "/proc/self/ns/net"});
  const std::vector<PlannedHca> hcas_ = {{"mlx5_0", Mode::kExclusive, 1, std::nullopt},
                                         {"mlx5_1", Mode::kSharedMulti, 2, std::nullopt}};

  base::Result<void> allocate(const Ledger& ledger, const Owner& owner, const std::string& user,
                              const std::vector<PlannedHca>& hcas) const {
    GrantUser booked{user, "c", me_};
    booked.view = view_name(kView);
    TRY_VOID(book(ledger, owner, hcas, booked));
    (void)TRY(ledger.make_view(view_name(kView), kView));
    return ledger.settle(owner.key);
  }
  base::Result<void> bind(const Ledger& ledger, const Owner& owner, const std::string& user) const {
    TRY(ledger.bind(kToken, owner, {user, "c", me_}));
    TRY_VOID(book(ledger, owner, hcas_, {user, "c", me_}));  // as createRuntime does
    return ledger.settle(owner.key);
  }
  std::vector<Crash> crashes() const {
    const auto nothing = [](const Ledger&) -> base::Result<void> { return {}; };
    const auto container = [this](const Ledger& ledger) { return allocate(ledger, web_, web_.key, hcas_); };
    const auto token = [this](const Ledger& ledger) { return allocate(ledger, token_, token_.key, hcas_); };
    const auto pod = [this](const Ledger& ledger) {
      return allocate(ledger, pod_, "c-1", {{"mlx5_1", Mode::kShared, 1, {}}});
    };
    return {{"first container", nothing, container, web_.key},
            {"the same again", container, container, web_.key},
            {"second container of a pod", pod,
             [this](const Ledger& ledger) { return allocate(ledger, pod_, "c-2", hcas_); }, pod_.key},
            {"leave", container, [this](const Ledger& ledger) { return ledger.leave(web_, web_.key); }},
            {"leave a pod", pod, [this](const Ledger& ledger) { return ledger.leave(pod_, "c-1"); }},
            {"give back", pod, [this](const Ledger& ledger) { return ledger.release_grant(pod_.key); }},
            {"bind", token, [this](const Ledger& ledger) { return bind(ledger, web_, web_.key); }, web_.key},
            {"bind to a pod",
             [=](const Ledger& ledger) -> base::Result<void> {
               TRY_VOID(pod(ledger));
               return token(ledger);
             },
             [this](const Ledger& ledger) { return bind(ledger, pod_, "c-2"); }, pod_.key},
            {"bind a user", [this](const Ledger& ledger) { return allocate(ledger, pod_, token_.key, hcas_); },
             [this](const Ledger& ledger) { return bind(ledger, pod_, "c-2"); }, pod_.key}};
  }

  // A rival that repairs nothing, and takes an HCA that no grant lists.
  std::string compete(const Ledger& ledger) const {
    auto locked = ledger.lock({"mlx5_0"});
    if (!locked) return locked.error().message;
    const auto holdings = locked->holdings(rival_, {{"mlx5_0", {1, 1}}});
    if (!holdings) return holdings.error().message;
    if (holdings->at("mlx5_0").exclusive_owner || holdings->at("mlx5_0").others > 0) return "";
    const auto booked = locked->book(rival_, {{"mlx5_0", Mode::kExclusive, 1, {}}}, {rival_.key, "rival", myself()});
    if (!booked) return booked.error().message;
    const auto settled = ledger.settle(rival_.key);
    return settled ? "" : settled.error().message;
  }
};

TEST_F(LedgerCrash, RepairsKillBeforeEverySystemCall) {
  for (const Crash& crash : crashes()) {
    constexpr long kStep = kIsSanitized ? 7 : 1;
    for (long call = 1;; call += kStep) {
      const TempDir temp;
      const std::string path = temp / "ledger";
      const auto ledger = Ledger::open(path);
      ASSERT_TRUE(ledger && crash.before(*ledger)) << crash.name;
      const auto traced = run_traced(
          [&] {
            const auto own = Ledger::open(path);
            return own && crash.body(*own) ? 0 : 1;
          },
          call);
      if (!traced.possible) GTEST_SKIP() << "ptrace is not allowed here";
      const std::string where = std::string(crash.name) + ", before system call " + std::to_string(call);
      if (call % 2 == 0) {
        ASSERT_EQ(compete(*ledger), "") << where;
      }
      const auto repaired = ledger->repair_pending();
      ASSERT_TRUE(repaired) << where << ": " << repaired.error().message;
      ASSERT_EQ(ledger_problems(path), "") << where;
      ASSERT_EQ(entries(path + "/pending"), "") << where;
      if (!traced.stopped && !crash.owner_key.empty()) {
        // Its worker has ended after its steps were done.
        const auto held = ledger->find(crash.owner_key);
        ASSERT_TRUE(held && *held && !(*held)->pending) << where;
        ASSERT_EQ((*held)->hcas.size(), hcas_.size()) << where;
      }
      // All grants can be released, and allocated again.
      for (const std::string& key : {web_.key, token_.key, pod_.key, rival_.key})
        ASSERT_TRUE(ledger->release_grant(key)) << where;
      ASSERT_EQ(entries(path + "/grants"), "") << where;
      const auto recovered = ledger->recover();
      ASSERT_TRUE(recovered && recovered->warnings.empty()) << where;
      ASSERT_EQ(entries(path + "/views") + entries(path + "/ids"), "") << where;
      ASSERT_TRUE(crash.before(*ledger)) << where;
      ASSERT_EQ(ledger_problems(path), "") << where;
      if (!traced.stopped) {
        ASSERT_EQ(traced.exit_code, 0) << where;
        ASSERT_GT(call, 20) << where;
        break;
      }
    }
  }
}

// Returns the system calls of the body in a ledger with this number of containers that share this number of HCAs.
Traced cost_with(int grants, int shared, const std::function<bool(const Ledger&)>& body) {
  const TempDir temp;
  const std::string path = temp / "ledger";
  const auto ledger = must(Ledger::open(path));
  std::vector<PlannedHca> hcas;
  for (int i = 0; i < shared; ++i)
    hcas.push_back({"mlx5_" + std::to_string(i), Mode::kShared, 1, {}});
  for (int i = 0; i < grants; ++i) {
    const std::string id = "c" + std::to_string(i);
    const Owner owner = container_owner(id, "/");
    EXPECT_TRUE(book(ledger, owner, hcas, {owner.key, id, myself()}));
    EXPECT_TRUE(ledger.settle(owner.key));
  }
  const auto traced = run_traced(
      [&] {
        const auto own = Ledger::open(path);
        return own && body(*own) ? 0 : 1;
      },
      -1);
  if (traced.possible) {
    EXPECT_EQ(traced.exit_code, 0);
  }
  return traced;
}

// The next container costs the same with any number of grants. The test counts system calls, because time would vary.
TEST(LedgerCost, DoesNotGrowWithTheNumberOfGrants) {
  const Owner web = container_owner("web", "/");
  const GrantUser user{web.key, "c", myself()};
  for (const PlannedHca& hca : {PlannedHca{"mlx5_0", Mode::kShared, 1, {}}, {"mlx5_9", Mode::kExclusive, 1, {}}}) {
    const auto come_and_go = [&](const Ledger& ledger) {
      if (!ledger.repair_pending()) return false;
      {
        auto locked = ledger.lock({hca.name});
        const unsigned limit = hca.mode == Mode::kExclusive ? 1U : 0U;
        if (!locked || !locked->holdings(web, {{hca.name, {limit, limit}}}) || !locked->book(web, {hca}, user))
          return false;
      }
      return ledger.settle(web.key) && ledger.leave(web, web.key);
    };
    const auto one = cost_with(1, 1, come_and_go);
    if (!one.possible) GTEST_SKIP() << "ptrace is not allowed here";
    EXPECT_EQ(cost_with(1000, 1, come_and_go).calls, one.calls) << hca.name;
  }
}

// Each grant is read once, and locked only if something of it does not agree.
TEST(LedgerCost, RecoverMakesFewCallsForEachGrant) {
  const auto recover = [](const Ledger& ledger) { return ledger.recover().has_value(); };
  const auto few = cost_with(20, 8, recover);
  if (!few.possible) GTEST_SKIP() << "ptrace is not allowed here";
  EXPECT_LE(cost_with(120, 8, recover).calls - few.calls, 100 * 15);
}

class LedgerRace : public ConsistentLedger {
 protected:
  // ask() requests as a hook, and returns 1 if it would get the HCA. recover() returns 1 if it released a grant.
  int ask() const {
    const auto ledger = Ledger::open(path_);
    if (!ledger || !ledger->repair_pending()) return 2;
    return exclusive_owner(db_).empty() ? 1 : 0;
  }
  int recover() const {
    const auto ledger = Ledger::open(path_);
    const auto recovered = ledger ? ledger->recover() : ledger.error();
    if (!recovered) return 2;
    return recovered->released.empty() ? 0 : 1;
  }
};

// A process that books and then waits.
class Starter : public Child {
 public:
  Starter(const std::string& path, const Owner& owner, const GrantUser& user)
      : Child([&] {
          const auto ledger = Ledger::open(path);
          EXPECT_TRUE(ledger && book(*ledger, owner, {kAlone}, user));
        }) {}
};

TEST_F(LedgerRace, KeepsStepsThatSettleWhileTheyAreChecked) {
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
      ASSERT_TRUE(find(web_)) << "before system call " << call;
      ASSERT_EQ(ledger_problems(path_), "") << "before system call " << call;
      ASSERT_TRUE(ledger_.release_grant(web_.key));
    }
    ASSERT_TRUE(ledger_.repair_pending());
    ASSERT_EQ(entries(path_ + "/grants") + entries(path_ + "/pending"), "") << "not settled";
  }
}

// Like /var/run/netns, which is mounted while another process reads a namespace there.
TEST_F(LedgerRace, KeepsGrantWhenDirectoryReturnsDuringCheck) {
  const std::string directory = temp_ / "netns";
  const std::string away = temp_ / "away";
  write_file(directory + "/cni-1", "");
  ASSERT_EQ(allocate(pod_of(directory + "/cni-1"), {kAlone}, {"c", "c", dead_process()}), "");
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

TEST_F(LedgerRace, KeepsGrantWhenCgroupHierarchyIsReplaced) {
  const std::string root = temp_ / "cgroup";
  const std::string away = temp_ / "away";
  write_file(root + "/c/cgroup.events", "populated 1\n");
  GrantUser user{web_.key, "web", dead_process()};
  user.cgroup = identify_cgroup(root, "/c").value();
  ASSERT_EQ(allocate(web_, {kAlone}, user), "");
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

// The poststop of a killed `delete`: meanwhile another container of this id and bundle starts.
TEST_F(LedgerRace, LatePoststopKeepsStartThatRuns) {
  const Child next;
  const Starter starter(path_, web_, {web_.key, "web", next.identity()});
  bool passed_over = false;
  ASSERT_TRUE(ledger_.leave(web_, web_.key, &passed_over));
  EXPECT_TRUE(passed_over);
  EXPECT_TRUE(find(web_));
}

TEST_F(LedgerRace, LatePoststopKeepsTokenOfNextContainer) {
  const Child next;
  const Owner token = token_owner(kToken);
  ASSERT_EQ(allocate(token, {kAlone}, {token.key, "web", next.identity(), "/run/web"}), "");
  ASSERT_TRUE(ledger_.leave(token, token.key));
  EXPECT_EQ(exclusive_owner(db_), token.label);
}

// Or it runs, or the poststop belongs to a container below another root of the runtime.
TEST_F(LedgerRace, PoststopOfAnotherContainerKeepsLivingOne) {
  Child next;
  ASSERT_EQ(allocate(web_, {kAlone}, {web_.key, "web", next.identity(), "/run/web"}), "");
  bool passed_over = false;
  ASSERT_TRUE(ledger_.leave(web_, web_.key, &passed_over));
  EXPECT_TRUE(passed_over);
  EXPECT_EQ(exclusive_owner(db_), web_.label);
  next.kill();
  ASSERT_TRUE(ledger_.leave(web_, web_.key));
  EXPECT_EQ(exclusive_owner(db_), "");
}

// With `run`, the runtime itself calls poststop.
TEST_F(LedgerRace, PoststopOfOwnRuntimeRemovesUser) {
  GrantUser user{web_.key, "web", myself(), temp_.path()};
  user.state = identify_runtime_state(RuntimeState::Kind::kRunc, temp_.path()).value();
  ASSERT_EQ(allocate(web_, {kAlone}, user), "");
  const auto leave = [&] { return Ledger::open(path_)->leave(web_, web_.key) ? 0 : 1; };
  EXPECT_EQ(in_child([&] { return in_child(leave); }), 0);
  EXPECT_FALSE(find(web_));
}

}  // namespace
}  // namespace hook
