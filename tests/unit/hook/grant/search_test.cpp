// Counts on a node of files: ranking, conflicts with other calls, and 64 creates at once.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>

#include "base/failure.hpp"
#include "fabric/read_inventory.hpp"
#include "fabric/read_node.hpp"
#include "hook/grant/booking.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/grant/search.hpp"
#include "hook/rails/record/store.hpp"
#include "hook/request/parsers.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/tree.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

using base::Result;
using namespace test_support;

// A node with RoCE HCAs and a ledger.
struct CountNode {
  TempDir directory;
  NodeSettings settings;

  explicit CountNode(unsigned hcas, unsigned slots = 1) {
    auto inventory = test_support::rails(hcas, slots);
    for (fabric::Hca& hca : inventory.hcas)
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    lay_out(inventory, directory / "node", {.full = slots > 1});
    settings.root = directory / "node";
    settings.ledger = directory / "ledger";
  }
  Ledger ledger() const { return must(Ledger::open(settings.ledger)); }
};

ContainerRequest counting(const std::string& count, Mode mode = Mode::kExclusive) {
  ContainerRequest requesting;
  requesting.request.emplace();
  requesting.request->selection = *parse_selection(count, "a test");
  requesting.request->mode = mode;
  return requesting;
}

Grantee container(const std::string& id) {
  const Owner owner = container_owner(id, "/bundle");
  return {owner, {owner.key, id, myself()}};
}

std::string joined_names(const Plan& plan) {
  std::string text;
  for (const PlannedHca& hca : plan.hcas)
    text += (text.empty() ? "" : " ") + hca.name;
  return text;
}

// Finds, books and settles. Returns the HCAs. before: runs before each booking.
Result<std::string> create(const CountNode& node, const Ledger& ledger, const Grantee& who,
                           const ContainerRequest& requesting, const std::function<Result<void>()>& before = {}) {
  const ForeseeInput input{requesting, who.owner, node.settings, &ledger};
  const BookFound book_found = [&](ForeseenPlan& found) -> Result<void> {
    if (before) TRY_VOID(before());
    return hook::book(*found.locks, found.plan, who, {});
  };
  const auto found = TRY(find_plan(input, nullptr, book_found));
  EXPECT_FALSE(found.locks);
  TRY_VOID(ledger.settle(who.owner.key));
  return joined_names(found.plan);
}

TEST(Search, TakesFreeHcasInTheOrderOfRails) {
  const CountNode node(4);
  const Ledger ledger = node.ledger();
  EXPECT_EQ(must(create(node, ledger, container("a"), counting("1"))), "mlx5_0");
  EXPECT_EQ(must(create(node, ledger, container("b"), counting("2"))), "mlx5_1 mlx5_2");
  EXPECT_EQ(must(create(node, ledger, container("a"), counting("1"))), "mlx5_0") << "it keeps its HCA";
  const auto refused = create(node, ledger, container("c"), counting("2"));
  EXPECT_EQ(error_message(refused),
            "a test: requests 2 HCAs, 1 is free: mlx5_0 is held by container a, mlx5_1 is held by container b, mlx5_2 "
            "is held by container b");
  EXPECT_EQ(failure_reason(refused.error()), FailureReason::kBusy);
  EXPECT_EQ(must(create(node, ledger, container("c"), counting("1"))), "mlx5_3");
  EXPECT_EQ(ledger_problems(node.settings.ledger), "");
}

// The ranking does not release stale grants. The decision among all does.
TEST(Search, GetsHcaOfStaleGrant) {
  const CountNode node(2);
  const Ledger ledger = node.ledger();
  Grantee dead = container("dead");
  dead.user.process = dead_process();
  EXPECT_EQ(must(create(node, ledger, dead, counting("1"))), "mlx5_0");
  EXPECT_EQ(must(create(node, ledger, container("a"), counting("1"))), "mlx5_1") << "a free HCA comes first";
  EXPECT_EQ(must(create(node, ledger, container("b"), counting("1"))), "mlx5_0");
  EXPECT_FALSE(must(ledger.find(dead.owner.key)));
  EXPECT_FALSE(create(node, ledger, container("c"), counting("1")));
}

TEST(Search, PrefersActiveHcaOfStaleGrant) {
  const CountNode node(3);
  const Ledger ledger = node.ledger();
  for (const char* down : {"mlx5_1", "mlx5_2"})
    write_file(node.settings.root + "/sys/class/infiniband/" + down + "/ports/1/state", "1: DOWN\n");
  Grantee dead = container("dead");
  dead.user.process = dead_process();
  EXPECT_EQ(must(create(node, ledger, dead, counting("1"))), "mlx5_0");
  EXPECT_EQ(must(create(node, ledger, container("a"), counting("1"))), "mlx5_0");
  EXPECT_EQ(must(create(node, ledger, container("b"), counting("1"))), "mlx5_1") << "the holder of mlx5_0 lives";
}

// The pool's limit for mode shared is above the number of dead users, and mode exclusive counts each user.
TEST(Search, DeadSharedUsersDoNotBlockAnotherMode) {
  const CountNode node(2, 64);
  const Ledger ledger = node.ledger();
  const auto asking = [](const std::string& selection, Mode mode) {
    ContainerRequest requesting = counting(selection, mode);
    Pool& pool = requesting.admin.pools.emplace_back();
    pool.name = "all";
    pool.modes = {Mode::kShared, Mode::kSharedMulti, Mode::kExclusive};
    pool.limits = {{Mode::kShared, 4}, {Mode::kSharedMulti, 4}};
    return requesting;
  };
  const auto leave_dead = [&](unsigned count, const char* hca) {
    for (unsigned i = 0; i < count; ++i) {
      Grantee dead = container(fmt::format("dead{}", i));
      dead.user.process = dead_process();
      ASSERT_EQ(must(create(node, ledger, dead, asking(hca, Mode::kShared))), hca);
    }
  };
  for (const char* selection : {"mlx5_0", "1", "mlx5_0,mlx5_1"}) {
    leave_dead(1, "mlx5_0");
    EXPECT_TRUE(has_text(must(create(node, ledger, container("a"), asking(selection, Mode::kExclusive))), "mlx5_"));
    ASSERT_TRUE(ledger.release_grant(container("a").owner.key));
  }
  // Two netdevs fit beside two living users, not beside two dead ones and one that lives.
  leave_dead(3, "mlx5_0");
  EXPECT_EQ(must(create(node, ledger, container("a"), asking("mlx5_0,mlx5_0", Mode::kSharedMulti))), "mlx5_0");
  ASSERT_TRUE(ledger.release_grant(container("a").owner.key));
  leave_dead(1, "mlx5_0");
  EXPECT_EQ(must(create(node, ledger, container("live"), asking("mlx5_0", Mode::kShared))), "mlx5_0");
  EXPECT_TRUE(has_text(error_message(create(node, ledger, container("a"), asking("mlx5_0", Mode::kExclusive))),
                       "is shared with 1 other user"));
  EXPECT_EQ(ledger_problems(node.settings.ledger), "");
}

// A decision among all would wait for the lock.
TEST(Search, PassesOverManyHcasThatCannotBeAllocated) {
  const CountNode node(20);
  for (unsigned i = 0; i < 12; ++i) {
    std::filesystem::remove_all(
        fmt::format("{}/sys/class/infiniband/mlx5_{}/device/infiniband_verbs", node.settings.root, i));
    std::filesystem::remove(fmt::format("{}/sys/class/infiniband_verbs/uverbs{}", node.settings.root, i));
  }
  const Ledger ledger = node.ledger();
  fabric::NodeReadOptions read;
  read.root = node.settings.root;
  const auto inventory = fabric::read_node(read);
  const auto devices = devices_of({"mlx5_19"}, inventory, node.settings.root).devices;
  const auto locked = must(ledger.lock({"mlx5_19"}, 0, devices));
  EXPECT_EQ(must(create(node, node.ledger(), container("a"), counting("1"))), "mlx5_12");
}

TEST(Search, SkipsHcaWithoutNodeAndLockedHca) {
  const CountNode node(4);
  const Ledger ledger = node.ledger();
  std::filesystem::remove_all(node.settings.root + "/sys/class/infiniband/mlx5_0/device/infiniband_verbs");
  std::filesystem::remove(node.settings.root + "/sys/class/infiniband_verbs/uverbs0");
  EXPECT_EQ(must(create(node, ledger, container("a"), counting("1"))), "mlx5_1");
  const auto locked = must(ledger.lock({"mlx5_2"}, 0, {{"mlx5_2", "0000.12.00.0"}}));
  EXPECT_EQ(must(create(node, node.ledger(), container("b"), counting("1"))), "mlx5_3");
}

// After the last attempt, the decision among all books without regard to the ranking.
TEST(Search, DecidesAmongAllAfterTheLastAttempt) {
  const CountNode node(4);
  const Ledger ledger = node.ledger();
  unsigned decisions = 0;
  const auto change = [&]() -> Result<void> {
    ++decisions;
    return decisions <= kMostConflicts ? Result<void>(base::Error{"changed", ESTALE, {}}) : Result<void>();
  };
  EXPECT_EQ(must(create(node, ledger, container("a"), counting("1"), change)), "mlx5_0");
  EXPECT_EQ(decisions, kMostConflicts + 1);
  EXPECT_EQ(error_message(create(node, ledger, container("b"), counting("1"),
                                 [] { return Result<void>(base::make_error("disk full")); })),
            "disk full");
}

// Two containers of a pod start at once and lock different HCAs. The second finds the HCA of the first.
TEST(Search, RanksAgainIfTheOwnersGrantChanges) {
  const CountNode node(4);
  const Ledger ledger = node.ledger();
  const Owner pod = netns_owner({1, 2, "/proc/self/ns/net"});
  unsigned decisions = 0;
  const auto other_container = [&]() -> Result<void> {
    if (++decisions > 1) return {};
    const Ledger other = node.ledger();
    auto locked = TRY(other.lock({"mlx5_3"}, 0, {{"mlx5_3", "0000.13.00.0"}}));
    TRY_VOID(locked.book(pod, {{"mlx5_3", Mode::kExclusive, 1, std::nullopt}}, {"first", "first", myself()}));
    return other.settle(pod.key);
  };
  EXPECT_EQ(must(create(node, ledger, {pod, {"second", "second", myself()}}, counting("1"), other_container)),
            "mlx5_3");
  EXPECT_EQ(decisions, 2U);
  EXPECT_EQ(must(must(ledger.find(pod.key))).hcas.size(), 1U);
}

// The first container of the pod has moved its netdev since the second one surveyed the node.
TEST(Search, FindsNetdevThatThePodGotMeanwhile) {
  const CountNode node(4);
  const Ledger ledger = node.ledger();
  const Owner pod = netns_owner(must(identify_netns("/proc/self/ns/net")));
  const ContainerRequest requesting = counting("1");
  const Grantee second{pod, {"second", "second", myself()}};
  unsigned decisions = 0;
  const BookFound book_found = [&](ForeseenPlan& found) -> Result<void> {
    if (++decisions == 1) {
      const Ledger other = node.ledger();
      auto locked = TRY(other.lock({"mlx5_3"}, 0, {{"mlx5_3", "0000.13.00.0"}}));
      TRY_VOID(locked.book(pod, {{"mlx5_3", Mode::kExclusive, 1, std::nullopt}}, {"first", "first", myself()}));
      TRY_VOID(other.settle(pod.key));
      NetworkRecord record{pod.key, *pod.netns, 1, {}};
      RailRecord& rail = record.rails.emplace_back();
      rail.rail.hca = "mlx5_3";
      rail.rail.name = "net1";
      rail.rail.kind = RailKind::kMove;
      rail.network = "rails";
      rail.host.name = "eth7";
      const auto store = TRY(NetworkRecordStore::open(node.settings.ledger));
      TRY_VOID(store.write(record));
    }
    return hook::book(*found.locks, found.plan, second, {});
  };
  const ForeseeInput input{requesting, pod, node.settings, &ledger};
  const auto found = must(find_plan(input, nullptr, book_found));
  EXPECT_EQ(joined_names(found.plan), "mlx5_3");
  EXPECT_EQ(find_hca(found.inventory, "mlx5_3")->ports.at(0).netdev, "eth7");
  EXPECT_EQ(decisions, 2U);
}

// Containers have mlx5_0 and mlx5_2, and the node does not show them.
TEST(Search, CountsRailsOverHcasOfContainers) {
  const CountNode node(4);
  const Ledger ledger = node.ledger();
  for (const char* name : {"mlx5_0", "mlx5_2"})
    must(create(node, ledger, container(name), counting(name)));
  for (const char* shown :
       {"infiniband/mlx5_0", "infiniband/mlx5_2", "infiniband_verbs/uverbs0", "infiniband_verbs/uverbs2"})
    std::filesystem::remove_all(node.settings.root + "/sys/class/" + shown);
  EXPECT_EQ(must(create(node, ledger, container("a"), counting("rail:3"))), "mlx5_3");
  EXPECT_EQ(error_message(create(node, ledger, container("b"), counting("rail:0"))), "a test: no HCA matches `rail:0`");
  EXPECT_EQ(must(create(node, ledger, container("c"), counting("index:1"))), "mlx5_1");
  // mlx5_2 is free again, but comes back only after the node was read.
  const Owner ended = container("mlx5_2").owner;
  const NodeSettings& settings = node.settings;
  auto before = must(read_whole_node({}, settings));
  must(ledger.release_grant(ended.key));
  std::filesystem::create_symlink("../../devices/pci0000:00/0000:00:12.0/0000:12:00.0/infiniband/mlx5_2",
                                  settings.root + "/sys/class/infiniband/mlx5_2");
  must(note_away_hcas(settings, &ledger, before));
  EXPECT_EQ(before.away.size(), 2U);
  EXPECT_EQ(NodeMap(before, {}).find("mlx5_3")->rail, 3U);
  // The function of mlx5_0 is gone: the node has three HCAs now.
  std::filesystem::remove_all(node.settings.root + "/sys/bus/pci/devices/0000:10:00.0");
  EXPECT_EQ(must(create(node, ledger, container("c"), counting("rail:0"))), "mlx5_1");
}

// The entry of one HCA concerns only requests whose numbers depend on it.
TEST(Search, CountsHcaWithDamagedEntry) {
  const CountNode node(4);
  const std::string& root = node.settings.root;
  const Ledger ledger = node.ledger();
  must(create(node, ledger, container("x"), counting("mlx5_0")));
  const std::string entry = node.settings.ledger + "/hca/0000.10.00.0/exclusive";
  std::filesystem::remove(entry);
  write_file(entry, "");
  write_file(node.settings.ledger + "/hca/notes", "");
  EXPECT_EQ(must(create(node, ledger, container("a"), counting("rail:1"))), "mlx5_1") << "the node shows mlx5_0";
  std::filesystem::remove_all(root + "/sys/class/infiniband/mlx5_0");
  std::filesystem::remove_all(root + "/sys/class/infiniband_verbs/uverbs0");
  EXPECT_EQ(must(create(node, ledger, container("b"), counting("rail:2"))), "mlx5_2");
  EXPECT_EQ(must(create(node, ledger, container("c"), counting("1"))), "mlx5_3");
  const auto refused = create(node, ledger, container("d"), counting("index:1"));
  EXPECT_EQ(error_message(refused),
            "the numbers of HCAs are not certain: a container may have the HCA of `0000:10:00.0`, and its entry in the "
            "ledger cannot be read");
  std::filesystem::remove(node.settings.ledger + "/hca/notes");
  must(ledger.recover());
  EXPECT_EQ(must(create(node, ledger, container("a"), counting("index:1"))), "mlx5_1");
}

// A sub-function has the PCI address of its parent, and both have HCAs.
TEST(Search, DistinguishesSubFunctionFromItsParent) {
  namespace fs = std::filesystem;
  const CountNode node(3);
  const std::string& root = node.settings.root;
  const std::string parent = "devices/pci0000:00/0000:00:10.0/0000:10:00.0/mlx5_core.sf.4";
  for (const char* name : {"infiniband/mlx5_1", "infiniband_verbs/uverbs1"}) {
    const std::string at = fmt::format("{}/sys/{}/{}", root, parent, name);
    fs::create_directories(fs::path(at).parent_path());
    fs::rename(fs::canonical(root + "/sys/class/" + name), at);
    fs::remove(root + "/sys/class/" + name);
    fs::create_symlink(fmt::format("../../{}/{}", parent, name), root + "/sys/class/" + name);
  }
  const std::string link = root + "/sys/class/infiniband/mlx5_1";
  fs::create_directories(root + "/sys/bus/auxiliary/devices");
  fs::create_symlink("../../../" + parent, root + "/sys/bus/auxiliary/devices/mlx5_core.sf.4");
  const Ledger ledger = node.ledger();
  const auto away = [&](fabric::Inventory inventory) {
    must(note_away_hcas(node.settings, &ledger, inventory));
    std::string names;
    for (const fabric::Hca& hca : inventory.away)
      names += hca.name + "@" + hca.pci.value_or("?");
    return names;
  };
  const auto some = [&] { return must(read_whole_node({}, node.settings)); };
  const auto all = [&] { return fabric::read_inventory({.root = root, .full = true}); };
  for (const char* name : {"mlx5_0", "mlx5_1"})
    must(create(node, ledger, container(name), counting(name)));
  EXPECT_TRUE(std::filesystem::exists(node.settings.ledger + "/hca/mlx5_core.sf.4"));
  EXPECT_EQ(away(some()), "") << "the node shows both";
  EXPECT_EQ(away(all()), "");
  fs::remove(link);
  EXPECT_EQ(away(some()), "mlx5_1@0000:10:00.0");
  EXPECT_EQ(away(all()), "mlx5_1@0000:10:00.0");
  fs::create_symlink("../../" + parent + "/infiniband/mlx5_1", link);
  fs::remove_all(root + "/sys/class/infiniband/mlx5_0");
  EXPECT_EQ(away(some()), "mlx5_0@0000:10:00.0");
  EXPECT_EQ(away(all()), "mlx5_0@0000:10:00.0");
}

// Another call takes the first HCA before each system call of this one.
TEST(Search, SurvivesConflictsBeforeEachSystemCall) {
  const CountNode node(3);
  const Ledger ledger = node.ledger();
  const Grantee rival = container("rival");
  unsigned conflicts = 0;
  for (long call = 1;; ++call) {
    bool has_booked = false;
    const auto traced = run_traced(
        [&] {
          Grantee who = container("web");
          who.user.process = identify(getppid()).value();
          return create(node, node.ledger(), who, counting("1")) ? 0 : 1;
        },
        call,
        [&] {
          auto locked = ledger.lock({"mlx5_0"}, 0, {{"mlx5_0", "0000.10.00.0"}});
          has_booked = locked &&
                       locked->book(rival.owner, {{"mlx5_0", Mode::kExclusive, 1, std::nullopt}}, rival.user) &&
                       ledger.settle(rival.owner.key);
        });
    if (!traced.possible) GTEST_SKIP() << "ptrace is not allowed here";
    ASSERT_EQ(traced.exit_code, 0) << "before system call " << call;
    const auto held = must(must(ledger.find(container("web").owner.key))).hcas;
    ASSERT_EQ(held.size(), 1U) << call;
    ASSERT_EQ(held.front().name != "mlx5_0", has_booked) << call;
    ASSERT_EQ(ledger_problems(node.settings.ledger), "") << call;
    conflicts += has_booked ? 1 : 0;
    ASSERT_TRUE(ledger.release_grant(container("web").owner.key) && ledger.release_grant(rival.owner.key)) << call;
    if (!traced.stopped) break;
  }
  EXPECT_GT(conflicts, 20U);
}

// An HCA that is not chosen costs one link, and one link of the index if another container holds it.
TEST(Search, ReadsLittleOfHcasThatAreNotChosen) {
  const auto calls = [](unsigned hcas, bool held) -> long {
    const CountNode node(hcas);
    if (held) {
      const Ledger ledger = node.ledger();
      EXPECT_OK(create(node, ledger, container("others"), counting(fmt::format("{}", hcas - 1))));
    }
    const auto traced =
        run_traced([&] { return create(node, node.ledger(), container("web"), counting("1")) ? 0 : 1; }, -1);
    EXPECT_TRUE(!traced.possible || traced.exit_code == 0);
    return traced.possible ? traced.calls : -1;
  };
  const long few = calls(8, false);
  if (few < 0) GTEST_SKIP() << "ptrace is not allowed here";
  EXPECT_LE(calls(40, false) - few, 32 + 2);
  EXPECT_LE(calls(40, true) - few, 32 + 39 + 8);
}

constexpr int kCreates = 64;

struct CountResults {
  std::array<std::atomic<int>, kCreates> hca{};  // -1: refused because all are held; -2: another error
};

// 64 containers request one HCA each at the same moment, and run until all have started. Returns the HCA of each.
std::array<int, kCreates> create_at_once(const CountNode& node) {
  void* const memory = mmap(nullptr, sizeof(CountResults), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& results = *new (memory) CountResults;
  std::array<int, 2> go{};
  std::array<int, 2> done{};
  EXPECT_TRUE(pipe(go.data()) == 0 && pipe(done.data()) == 0);
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < kCreates; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      char byte = 0;
      close(go[1]);
      (void)!read(go[0], &byte, 1);  // returns when the parent closes its end
      const auto created = create(node, node.ledger(), container(fmt::format("c{}", i)), counting("1"));
      int hca = -2;
      if (created) hca = std::stoi(created->substr(std::string("mlx5_").size()));
      if (!created && failure_reason(created.error()) == FailureReason::kBusy) hca = -1;
      if (hca == -2) std::fprintf(stderr, "%s\n", error_message(created).c_str());
      results.hca[i] = hca;
      (void)!write(done[1], &byte, 1);
      pause();
      _exit(0);
    }
    children.push_back(child);
  }
  close(go[0]);
  close(go[1]);
  for (int i = 0; i < kCreates; ++i) {
    char byte = 0;
    EXPECT_EQ(read(done[0], &byte, 1), 1);
  }
  std::array<int, kCreates> hcas{};
  for (std::size_t i = 0; i < kCreates; ++i)
    hcas[i] = results.hca[i];
  EXPECT_EQ(ledger_problems(node.settings.ledger), "");
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  close(done[0]);
  close(done[1]);
  munmap(memory, sizeof(CountResults));
  return hcas;
}

TEST(Search, SimultaneousCreatesShareNothingAndUseEveryHca) {
  for (const int hcas : {40, 64, 96}) {
    const CountNode node(static_cast<unsigned>(hcas));
    std::vector<int> users(static_cast<std::size_t>(hcas), 0);
    int refused = 0;
    for (const int hca : create_at_once(node)) {
      ASSERT_NE(hca, -2) << hcas;
      refused += hca == -1 ? 1 : 0;
      if (hca >= 0) ++users.at(static_cast<std::size_t>(hca));
    }
    EXPECT_EQ(refused, std::max(kCreates - hcas, 0)) << "with " << hcas << " HCAs";
    EXPECT_LE(*std::ranges::max_element(users), 1) << "with " << hcas << " HCAs";
  }
}

}  // namespace
}  // namespace hook
