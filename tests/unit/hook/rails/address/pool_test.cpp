// Allocation of addresses from ranges: order, used up ranges, 32 processes at once, SIGKILL at every system call.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>

#include "hook/rails/address/pool.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

using namespace test_support;

AddressRange range(std::string_view subnet, unsigned prefix, std::string_view from, std::string_view to,
                   std::optional<unsigned> rail = std::nullopt, std::string_view gateway = "") {
  AddressRange made{rail, address(subnet), prefix, address(from), address(to), std::nullopt};
  if (!gateway.empty()) made.gateway = address(gateway);
  return made;
}

// Returns the addresses with their prefixes, or the error.
std::string shown(const base::Result<std::vector<RailAddress>>& taken) {
  if (!taken) return taken.error().message;
  std::string text;
  for (const RailAddress& one : *taken) {
    text += (text.empty() ? "" : " ") + to_string(one.address) + "/" + std::to_string(one.prefix);
    if (one.gateway) text += " via " + to_string(*one.gateway);
  }
  return text;
}

std::string listed(const AddressPool& pool) {
  const auto owners = pool.list();
  if (!owners) return owners.error().message;
  std::string text;
  for (const auto& [where, key] : *owners)
    text += fmt::format("{}={} ", where, key);
  return text;
}

class AddressPoolTest : public testing::Test {
 protected:
  AddressPoolTest() : pool_(*AddressPool::open(temp_.path())) {}
  std::string take(const std::string& key, const std::vector<AddressRange>& ranges, unsigned rail = 0,
                   unsigned nth = 0) const {
    return shown(pool_.take("fabric", rail, nth, ranges, key));
  }

  const TempDir temp_;
  const AddressPool pool_;
  const std::vector<AddressRange> small_ = {range("10.1.0.0", 24, "10.1.0.10", "10.1.0.12", {}, "10.1.0.11")};
};

TEST_F(AddressPoolTest, AllocatesEachAddressOnceAndNeverTheGateway) {
  EXPECT_EQ(take("a", small_), "10.1.0.10/24 via 10.1.0.11");
  EXPECT_EQ(take("b", small_), "10.1.0.12/24 via 10.1.0.11");
  EXPECT_EQ(listed(pool_), "fabric/all/10.1.0.10=a fabric/all/10.1.0.12=b ");
}

TEST_F(AddressPoolTest, ReturnsTheSameAddressAgain) {
  EXPECT_EQ(take("a", small_), take("a", small_));
  EXPECT_NE(take("a", small_, 0, 1), take("a", small_, 0, 0));
  EXPECT_EQ(take("a", small_, 0, 1), "10.1.0.12/24 via 10.1.0.11");
}

TEST_F(AddressPoolTest, RailsShareARangeOfEveryRail) {
  EXPECT_EQ(take("a", small_, 0), "10.1.0.10/24 via 10.1.0.11");
  EXPECT_EQ(take("a", small_, 1), "10.1.0.12/24 via 10.1.0.11");
  EXPECT_EQ(take("a", small_, 1), "10.1.0.12/24 via 10.1.0.11");
}

TEST_F(AddressPoolTest, UsesRangeOfARailOnlyForThisRail) {
  const std::vector<AddressRange> ranges = {range("10.1.0.0", 24, "10.1.0.10", "10.1.0.19", 0),
                                            range("10.2.0.0", 24, "10.2.0.10", "10.2.0.19", 1),
                                            range("fd00::", 64, "fd00::", "fd00::ffff:ffff:ffff:ffff")};
  EXPECT_EQ(take("a", ranges, 1), "10.2.0.10/24 fd00::1/64");
  EXPECT_EQ(take("a", ranges, 0), "10.1.0.10/24 fd00::2/64");
  EXPECT_EQ(take("a", ranges, 2), "fd00::3/64");
  EXPECT_EQ(take("a", {ranges[0], ranges[1]}, 2), "");
}

TEST_F(AddressPoolTest, NeverAllocatesSubnetAndBroadcastAddress) {
  const std::vector<AddressRange> whole = {range("10.1.0.8", 30, "10.1.0.8", "10.1.0.11")};
  EXPECT_EQ(take("a", whole), "10.1.0.9/30");
  EXPECT_EQ(take("b", whole), "10.1.0.10/30");
  EXPECT_EQ(
      take("c", whole),
      "network `fabric`: cannot allocate an address of 10.1.0.8-10.1.0.11 for rail 0: no address is free (2 in use)");
  const std::vector<AddressRange> pair = {range("10.1.1.0", 31, "10.1.1.0", "10.1.1.1")};
  EXPECT_EQ(take("a", pair), "10.1.1.0/31");
  EXPECT_EQ(take("b", pair), "10.1.1.1/31");
}

TEST_F(AddressPoolTest, AllocatesReleasedAddressLast) {
  const std::vector<AddressRange> three = {range("10.1.0.0", 24, "10.1.0.1", "10.1.0.3")};
  EXPECT_EQ(take("a", three), "10.1.0.1/24");
  ASSERT_TRUE(pool_.release_grant("a", {}));
  EXPECT_EQ(take("b", three), "10.1.0.2/24");
  EXPECT_EQ(take("c", three), "10.1.0.3/24");
  EXPECT_EQ(take("d", three), "10.1.0.1/24");
}

TEST_F(AddressPoolTest, ChangesNothingIfARangeIsUsedUp) {
  std::vector<AddressRange> both = {range("fd00::", 64, "fd00::1", "fd00::9"), small_[0]};
  EXPECT_EQ(take("a", small_), "10.1.0.10/24 via 10.1.0.11");
  EXPECT_EQ(take("b", small_), "10.1.0.12/24 via 10.1.0.11");
  const std::string before = listed(pool_);
  const auto refused = pool_.take("fabric", 0, 0, both, "c");
  EXPECT_EQ(error_code(refused), EADDRNOTAVAIL);
  EXPECT_TRUE(has_text(error_hint(refused), "rdma-hook recover"));
  EXPECT_EQ(listed(pool_), before);
}

TEST_F(AddressPoolTest, ReleasesOnlyAddressesOfTheKey) {
  const std::vector<AddressRange> many = {range("10.1.0.0", 16, "10.1.0.1", "10.1.255.254")};
  for (const char* key : {"a", "a-b", "b"}) {
    ASSERT_TRUE(pool_.take("one", 0, 0, many, key));
    ASSERT_TRUE(pool_.take("one", 1, 0, many, key));
    ASSERT_TRUE(pool_.take("two", 0, 0, many, key));
  }
  ASSERT_TRUE(pool_.release_grant("a", {{"one", 0}, {"never", 7}}));
  EXPECT_EQ(listed(pool_),
            "one/all/10.1.0.2=a one/all/10.1.0.3=a-b one/all/10.1.0.4=a-b one/all/10.1.0.5=b one/all/10.1.0.6=b "
            "two/all/10.1.0.1=a two/all/10.1.0.2=a-b two/all/10.1.0.3=b ")
      << "rail 1 keeps its address of the shared range";
  ASSERT_TRUE(pool_.release_grant("a", {}));
  ASSERT_TRUE(pool_.release_grant("a", {}));
  ASSERT_TRUE(pool_.release_grant("a-b", {}));
  EXPECT_EQ(listed(pool_), "one/all/10.1.0.5=b one/all/10.1.0.6=b two/all/10.1.0.3=b ");
}

TEST_F(AddressPoolTest, ReleasesOtherAddressesAfterAnError) {
  const std::vector<AddressRange> ranges = {range("10.1.0.0", 24, "10.1.0.1", "10.1.0.9", 0),
                                            range("10.2.0.0", 24, "10.2.0.1", "10.2.0.9", 1)};
  const AddressPool pool = *AddressPool::open(temp_.path(), 1);
  for (const std::string locked : {"0", "1"}) {  // because the directory has no fixed order
    ASSERT_TRUE(pool.take("fabric", 0, 0, ranges, "a") && pool.take("fabric", 1, 0, ranges, "a"));
    const std::string path = temp_ / "addresses/fabric/" + locked;
    const base::UniqueFd place(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(flock(place.get(), LOCK_EX), 0);
    EXPECT_EQ(error_message(pool.release_grant("a", {})),
              "cannot lock `" + path + "` within 1 ms: another process holds it");
    ASSERT_EQ(pool.list()->size(), 1U) << listed(pool);
  }
}

TEST_F(AddressPoolTest, RefusesInvalidNamesAndRanges) {
  EXPECT_FALSE(pool_.take("..", 0, 0, small_, "a"));
  EXPECT_FALSE(pool_.take("a/b", 0, 0, small_, "a"));
  EXPECT_FALSE(pool_.take("fabric", 0, 0, small_, "a@0@0"));
  EXPECT_FALSE(pool_.take("fabric", 0, 0, small_, ".."));
  EXPECT_FALSE(pool_.release_grant("../a", {}));
  EXPECT_FALSE(pool_.release_grant("a", {{"..", 0}}));
  EXPECT_EQ(listed(pool_), "");
  const AddressRange wrong[] = {
      range("10.1.0.0", 24, "10.1.0.9", "10.1.0.8"), range("10.1.0.0", 24, "10.1.0.9", "10.1.1.8"),
      range("10.1.0.0", 33, "10.1.0.1", "10.1.0.2"), range("10.1.0.0", 24, "fd00::1", "fd00::2")};
  for (const AddressRange& one : wrong)
    EXPECT_TRUE(has_text(take("a", {one}), "it is no range of `10.1.0.0/"));
  EXPECT_EQ(take("a", {small_[0], range("10.1.0.0", 24, "10.1.0.12", "10.1.0.13", 0)}),
            "range 10.1.0.12-10.1.0.13 of rail 0 overlaps range 10.1.0.10-10.1.0.12, which has no `rail` and so serves "
            "all rails");
  EXPECT_EQ(listed(pool_), "");
}

TEST_F(AddressPoolTest, RefusesDirectoriesThatOtherUsersCanChange) {
  ASSERT_EQ(take("a", small_), "10.1.0.10/24 via 10.1.0.11");
  for (const char* part : {"addresses", "addresses/fabric", "addresses/fabric/all"}) {
    struct stat info {};
    ASSERT_EQ(stat((temp_ / part).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777U, 0700U) << part;
  }
  ASSERT_EQ(chmod((temp_ / "addresses/fabric").c_str(), 0770), 0);
  EXPECT_TRUE(has_text(take("b", small_), "other users can read or change it"));
  const TempDir elsewhere;
  ASSERT_EQ(symlink(elsewhere.path().c_str(), (temp_ / "addresses/other").c_str()), 0);
  EXPECT_FALSE(pool_.take("other", 0, 0, small_, "a"));
}

TEST_F(AddressPoolTest, KeepsAddressOfALinkOfAnotherForm) {
  ASSERT_EQ(take("a", small_), "10.1.0.10/24 via 10.1.0.11");
  ASSERT_EQ(symlink("stranger", (temp_ / "addresses/fabric/all/10.1.0.12").c_str()), 0);
  ASSERT_EQ(symlink("junk", (temp_ / "addresses/fabric/all/next").c_str()), 0);
  EXPECT_TRUE(has_text(take("b", small_), "(2 in use)"));
}

// The cost depends on the addresses in use, not on the size of the range.
TEST_F(AddressPoolTest, SearchesALargeRangeAtTheSameCost) {
  const std::vector<AddressRange> large = {range("fd00::", 8, "fd00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")};
  const std::string end = temp_ / "addresses/fabric/all/last@fd00::";
  ASSERT_EQ(take("a", large), "fd00::1/8");
  ASSERT_EQ(unlink(end.c_str()), 0);
  ASSERT_EQ(symlink("fdff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", end.c_str()), 0);
  EXPECT_EQ(take("b", large), "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/8");
  EXPECT_EQ(take("c", large), "fd00::2/8");
  EXPECT_EQ(take("d", large), "fd00::3/8");
  ASSERT_EQ(unlink(end.c_str()), 0);
  ASSERT_EQ(symlink("fd00::ffff", end.c_str()), 0);
  EXPECT_EQ(take("e", large), "fd00::1:0/8");
}

// --- 32 processes

constexpr int kClaimers = 32;
constexpr int kRounds = 40;
constexpr std::size_t kAddresses = 40;

struct ClaimBeliefs {
  std::array<std::atomic<int>, 256> owner{};  // by last byte: 1 + slot
  std::atomic<int> violations{0};
  std::atomic<int> errors{0};
  std::atomic<int> taken{0};
};

void live(const std::string& path, int slot, const std::vector<AddressRange>& ranges, ClaimBeliefs& beliefs) {
  const auto pool = AddressPool::open(path);
  const std::string key = "c" + std::to_string(slot);
  for (int round = 0; pool && round < kRounds; ++round) {
    const auto taken = pool->take("fabric", static_cast<unsigned>(slot) % 2, 0, ranges, key);
    const auto again = pool->take("fabric", static_cast<unsigned>(slot) % 2, 0, ranges, key);
    if (!taken || !again || shown(taken) != shown(again)) {
      ++beliefs.errors;
      continue;
    }
    ++beliefs.taken;
    auto& owner = beliefs.owner[taken->front().address.bytes[15]];
    if (owner.exchange(1 + slot) != 0) ++beliefs.violations;
    usleep(static_cast<useconds_t>((slot * 37 + round * 91) % 300));
    if (owner.exchange(0) != 1 + slot) ++beliefs.violations;
    if (!pool->release_grant(key, {{"fabric", static_cast<unsigned>(slot) % 2}})) ++beliefs.errors;
  }
  if (!pool) ++beliefs.errors;
}

TEST_F(AddressPoolTest, AllocatesEachAddressOnceAmong32Processes) {
  void* memory = mmap(nullptr, sizeof(ClaimBeliefs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ClaimBeliefs& beliefs = *new (memory) ClaimBeliefs;
  const std::string to = "10.1.0." + std::to_string(kAddresses);
  const std::vector<AddressRange> ranges = {range("10.1.0.0", 24, "10.1.0.1", to)};
  std::vector<pid_t> children;
  for (int slot = 0; slot < kClaimers; ++slot) {
    const pid_t pid = fork();
    if (pid == 0) {
      live(temp_.path(), slot, ranges, beliefs);
      _exit(0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children)
    waitpid(pid, nullptr, 0);
  EXPECT_EQ(beliefs.violations, 0);
  EXPECT_EQ(beliefs.errors, 0);
  EXPECT_EQ(beliefs.taken, kClaimers * kRounds);
  EXPECT_EQ(listed(pool_), "");
  munmap(memory, sizeof(ClaimBeliefs));
}

TEST_F(AddressPoolTest, SurvivesAKillBeforeEverySystemCall) {
  std::vector<AddressRange> ranges = {range("fd00::", 64, "fd00::1", "fd00::9"), small_[0]};
  for (long call = 1;; ++call) {
    const TempDir temp;
    const auto traced = run_traced(
        [&] {
          const auto pool = AddressPool::open(temp.path());
          return pool && pool->take("fabric", 0, 0, ranges, "a") && pool->release_grant("a", {{"fabric", 0}}) ? 0 : 1;
        },
        call);
    if (!traced.possible) GTEST_SKIP() << "ptrace is not allowed here";
    const auto pool = AddressPool::open(temp.path());
    ASSERT_TRUE(pool) << call;
    // The same key continues, another key gets other addresses, and both can be released.
    const std::string again = shown(pool->take("fabric", 0, 0, ranges, "a"));
    const std::string other = shown(pool->take("fabric", 0, 0, ranges, "b"));
    ASSERT_EQ(again.find("cannot"), std::string::npos) << call << ": " << again;
    ASSERT_EQ(other.find("cannot"), std::string::npos) << call << ": " << other;
    ASSERT_EQ(pool->list()->size(), 4U) << call << ": " << listed(*pool);
    ASSERT_TRUE(pool->release_grant("a", {{"fabric", 0}}) && pool->release_grant("b", {})) << call;
    ASSERT_EQ(listed(*pool), "") << call;
    if (traced.stopped) continue;
    ASSERT_EQ(traced.exit_code, 0);
    ASSERT_GT(call, 20);
    break;
  }
}

}  // namespace
}  // namespace hook
