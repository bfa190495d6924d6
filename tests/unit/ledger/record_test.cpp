// The record of a grant: what it is written as, how often, and that no damage to it or to what leads to it gives
// somebody's HCA to another.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "hook/ledger/record.hpp"
#include "hook/ledger/steps.hpp"
#include "unit/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using test_support::book;
using test_support::dead_process;
using test_support::entries;
using test_support::in_child;
using test_support::kAlone;
using test_support::kToken;
using test_support::ledger_problems;
using test_support::myself;
using test_support::read_file;
using test_support::write_file;

const PlannedHca kOther{"mlx5_1", Mode::kExclusive, 1, std::nullopt};
const PlannedHca kShared{"mlx5_0", Mode::kShared, 1, 2};
constexpr const char* kKey = "netns-4-7";

// With every member that there is.
StoredGrant full_grant() {
  StoredGrant grant;
  grant.owner = netns_owner({4, 7, "/run/netns/cni-1", 25, 4711});
  grant.hcas = {kAlone, {"mlx5_1", Mode::kSharedMulti, 3, 8}};
  grant.hcas[0].open = OpenState{.index = 3, .contexts = {7, 4294967295}, .node = DeviceNumber{231, 192}};
  grant.since = 1700000000;
  StoredUser first;
  first.user = {"c-1", "c-1", ProcessIdentity{4711, 99}, "/run/c-1",
                CgroupIdentity{"/sys/fs/cgroup", 1, 2, "/c", 1, 3}};
  first.user.pod = "sandbox";
  first.settled = true;
  StoredUser second;
  second.user = {"c-2", "c-2", std::nullopt};
  second.worker = StepWorker{{4712, 100}, 12345};
  second.hcas = {{"mlx5_2", Mode::kExclusive, 1, {}}};
  second.ended = true;
  grant.users = {first, second};
  return grant;
}

std::string flip(std::string text, std::size_t bit) {
  text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  return text;
}

TEST(GrantRecord, ReadsBack) {
  const auto grant = full_grant();
  const auto read = parse_grant(grant_text(grant), "p", kKey);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(grant_text(*read), grant_text(grant));
  EXPECT_EQ(read->users, grant.users);
  EXPECT_EQ(read->hcas, grant.hcas);
}

TEST(GrantRecord, EveryDamageIsAnError) {
  const std::string text = grant_text(full_grant());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit)
    ASSERT_FALSE(parse_grant(flip(text, bit), "p", kKey)) << "bit " << bit;
  for (std::size_t size = 0; size < text.size(); ++size)
    ASSERT_FALSE(parse_grant(text.substr(0, size), "p", kKey)) << "first " << size;
  ASSERT_FALSE(parse_grant(text + " ", "p", kKey));
  const auto damaged = parse_grant(flip(text, 800), "DIR/grants/k.json", kKey);
  EXPECT_EQ(damaged.error().message, "cannot read grant `DIR/grants/k.json`: its checksum is wrong");
  EXPECT_EQ(damaged.error().hint, "if nothing uses that grant any more, remove the file and run `rdma-hook recover`");
}

TEST(GrantRecord, OfAnotherFormatIsAnError) {
  std::string text = grant_text(full_grant());
  for (const char* format : {"1", "3"}) {
    text.replace(text.find("\"format\":") + 9, 1, format);
    const auto other = parse_grant(text, "DIR/grants/k.json", kKey);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().message,
              fmt::format("cannot read grant `DIR/grants/k.json`: its format is {}, this program's is 2", format));
  }
}

class LedgerRecord : public test_support::LedgerScene {
 protected:
  std::string file(const Owner& owner) const { return path_ + "/grants/" + owner.key + ".json"; }
  static ino_t inode(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
  }
  void damage(const Owner& owner) { write_file(file(owner), flip(read_file(file(owner)), 800)); }
  // Asks as a plan does, and then books whatever the answer was. Whether it was given nothing.
  bool is_refused(const Owner& owner, const PlannedHca& hca) {
    {
      const auto locked = ledger_.lock({hca.name});
      const auto holdings = locked->holdings(owner, {{hca.name, 1}});
      if (!holdings) return true;
      const Holding& holding = holdings->at(hca.name);
      if (!holding.exclusive_holder && holding.others == 0) return false;
    }
    const auto booked = book(ledger_, owner, {hca}, {owner.key, "rival", myself()});
    return !booked || !ledger_.give_back(owner.key);
  }
};

TEST_F(LedgerRecord, NoFlippedBitGivesAnHcaTwice) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", myself()}), "");
  const std::string text = read_file(file(web_));
  for (std::size_t byte = 0; byte < text.size(); ++byte) {
    write_file(file(web_), flip(text, byte * 8 + byte % 8));
    ASSERT_TRUE(is_refused(db_, kAlone)) << "byte " << byte;
    ASSERT_TRUE(is_refused(db_, kShared)) << "byte " << byte;
  }
  write_file(file(web_), text);
  EXPECT_EQ(ledger_problems(path_), "");
}

TEST_F(LedgerRecord, NoDamagedLinkGivesAnHcaTwice) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", myself()}), "");
  const std::string link = path_ + "/hca/mlx5_0/exclusive";
  for (std::size_t byte = 0; byte < web_.key.size(); ++byte) {
    const std::string key = flip(web_.key, byte * 8 + byte % 7);
    if (key.find('\0') != std::string::npos) continue;
    fs::remove(link);
    fs::create_symlink(key, link);
    ASSERT_TRUE(is_refused(db_, kAlone)) << key;
    ASSERT_TRUE(is_refused(db_, kShared)) << key;
  }
  fs::remove(link);
  fs::create_symlink("nobody", link);
  ASSERT_TRUE(ledger_.recover());
  EXPECT_EQ(ledger_problems(path_), "") << "recover() puts it right";
}

TEST_F(LedgerRecord, RecoverCorrectsOrRemovesLinkThatNamesNoGrant) {
  const std::string link = path_ + "/hca/mlx5_0/exclusive";
  const std::function<void()> damages[] = {[&] { fs::create_symlink("no/grant", link); },
                                           [&] { fs::create_symlink(std::string(300, 'x'), link); },
                                           [&] { write_file(link, "no link"); }};
  for (const auto& damage : damages) {
    ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", myself()}), "");
    fs::remove(link);
    damage();
    EXPECT_TRUE(is_refused(db_, kShared));
    const auto corrected = ledger_.recover();
    ASSERT_TRUE(corrected) << corrected.error().message;
    EXPECT_EQ(fs::read_symlink(link), web_.key);
    fs::remove(link);
    damage();
    ASSERT_TRUE(ledger_.leave(web_, web_.key)) << "a damaged link keeps no container from ending";
    EXPECT_TRUE(is_refused(db_, kShared));
    const auto removed = ledger_.recover();
    ASSERT_TRUE(removed) << removed.error().message;
    EXPECT_FALSE(fs::exists(fs::symlink_status(link)));
    EXPECT_FALSE(is_refused(db_, kAlone));
  }
}

TEST_F(LedgerRecord, RecoverKeepsDamagedLinkOfGrantThatCannotBeRead) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", myself()}), "");
  const std::string link = path_ + "/hca/mlx5_0/exclusive";
  fs::remove(link);
  fs::create_symlink("no/grant", link);
  write_file(file(web_), "{");
  EXPECT_FALSE(ledger_.recover());
  EXPECT_EQ(fs::read_symlink(link), "no/grant");
  EXPECT_TRUE(is_refused(db_, kShared));
}

TEST_F(LedgerRecord, WrongUnitsInTheIndexGiveNoHcaTwice) {
  ASSERT_EQ(give(web_, {kShared}, {web_.key, "web", myself()}), "");
  const std::string holders = path_ + "/hca/mlx5_0/holders/";
  for (const char* units : {"0", "3", "9"}) {
    fs::rename(holders + web_.key + "@1", holders + web_.key + "@" + units);
    ASSERT_TRUE(is_refused(db_, kAlone)) << units;
    EXPECT_EQ(ledger_problems(path_), "") << "put right by who asked";
    ASSERT_TRUE(ledger_.recover());
    EXPECT_EQ(ledger_problems(path_), "");
  }
}

TEST_F(LedgerRecord, RecoverRestoresWhatTheIndexHasLost) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", myself()}), "");
  ASSERT_EQ(give(db_, {{"mlx5_1", Mode::kShared, 1, {}}}, {db_.key, "db", myself()}), "");
  for (const char* lost : {"/hca/mlx5_0/exclusive", "/hca/mlx5_0/holders", "/hca"}) {
    fs::remove_all(path_ + lost);
    fs::create_directories(path_ + "/hca");
    fs::permissions(path_ + "/hca", fs::perms::owner_all);
    ledger_ = Ledger::open(path_).value();
    ASSERT_TRUE(ledger_.recover()) << lost;
    EXPECT_EQ(ledger_problems(path_), "") << lost;
  }
  ASSERT_TRUE(is_refused(db_, kAlone));
}

// One that is misnamed counts as done: then the HCA is held until its container has ended.
TEST_F(LedgerRecord, NoDamagedMarkerFreesAnHca) {
  const auto book_and_die = [&] {
    const auto me = myself();
    return in_child([&] {
      const auto ledger = Ledger::open(path_);
      return ledger && book(*ledger, web_, {kAlone}, {web_.key, "web", me}) ? 0 : 1;
    });
  };
  ASSERT_EQ(book_and_die(), 0);
  const std::string marker = entries(path_ + "/pending");
  for (std::size_t byte = 0; byte < marker.size(); ++byte) {
    const std::string other = flip(marker, byte * 8 + byte % 5);
    if (other.find('/') != std::string::npos || other.find('\0') != std::string::npos) continue;
    fs::rename(path_ + "/pending/" + marker, path_ + "/pending/" + other);
    EXPECT_TRUE(is_refused(db_, kAlone)) << other;
    fs::rename(path_ + "/pending/" + other, path_ + "/pending/" + marker);
  }
  EXPECT_FALSE(is_refused(db_, kAlone)) << "its worker is dead";
  EXPECT_FALSE(ledger_.find(web_.key).value());
}

TEST_F(LedgerRecord, IsWrittenOnceAChange) {
  const Owner token = token_owner(kToken);
  ASSERT_TRUE(book(ledger_, token, {kAlone}, {token.key, "web", myself()}));
  const ino_t booked = inode(file(token));
  ASSERT_TRUE(ledger_.settle(token.key));
  EXPECT_EQ(inode(file(token)), booked) << "settled";
  EXPECT_EQ(entries(path_ + "/pending"), "");
  GrantUser user{web_.key, "web", myself(), "/run/web"};
  ASSERT_TRUE(ledger_.bind(kToken, web_, user).value());
  const ino_t bound = inode(file(web_));
  ASSERT_TRUE(book(ledger_, web_, {kAlone}, user)) << "all of which bind() has brought";
  EXPECT_TRUE(ledger_.find(web_.key).value()->pending);
  ASSERT_TRUE(ledger_.settle(web_.key));
  EXPECT_EQ(inode(file(web_)), bound);
  EXPECT_FALSE(ledger_.find(web_.key).value()->pending);
  EXPECT_EQ(entries(path_ + "/pending"), "");
  ASSERT_TRUE(book(ledger_, web_, {kAlone}, user)) << "again, for what it has";
  EXPECT_EQ(inode(file(web_)), bound);
  EXPECT_EQ(ledger_problems(path_), "");
}

// The call before, by the same process, could not undo what it had begun.
TEST_F(LedgerRecord, SettlesWhatWasBegunThroughThisLedger) {
  const auto before = Ledger::open(path_);
  ASSERT_TRUE(book(*before, pod_, {kAlone}, {"c-1", "c-1", myself()}));
  ASSERT_EQ(give(pod_, {kOther}, {"c-2", "c-2", myself()}), "");
  EXPECT_TRUE(ledger_.find(pod_.key).value()->pending);
  ASSERT_TRUE(ledger_.leave(pod_, "c-1"));
  EXPECT_FALSE(ledger_.find(pod_.key).value()->pending);
  EXPECT_EQ(ledger_.find(pod_.key).value()->hcas, std::vector<PlannedHca>{kOther});
  EXPECT_EQ(entries(path_ + "/pending"), "");
}

// A marker that cannot be looked at is not one that is gone.
TEST_F(LedgerRecord, WhoseMarkerCannotBeLookedAtIsNotRead) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", myself()}), "");
  int seen = 0;
  const auto use = [&](const Grant&) -> fabric::Result<void> {
    ++seen;
    return {};
  };
  ASSERT_TRUE(Ledger::for_each_at(path_, use).value());
  fs::remove_all(path_ + "/pending");
  Ledger::Unread unread;
  ASSERT_TRUE(Ledger::for_each_at(path_, use, &unread).value());
  EXPECT_EQ(seen, 1);
  ASSERT_EQ(unread.size(), 1U);
  EXPECT_TRUE(unread[0].message.starts_with("cannot look at `")) << unread[0].message;
}

TEST_F(LedgerRecord, ThatIsBadHoldsItsOwnHcasOnly) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", myself()}), "");
  damage(web_);
  const std::string holder = "the grant `" + file(web_) +
                             "`, which cannot be read: its checksum is wrong (if nothing uses that grant any more, "
                             "remove the file and run `rdma-hook recover`)";
  const auto holdings = ledger_.lock({"mlx5_0", "mlx5_1"})->holdings(db_, {{"mlx5_0", 1}, {"mlx5_1", 1}});
  ASSERT_TRUE(holdings);
  EXPECT_EQ(holdings->at("mlx5_0").exclusive_holder, holder);
  EXPECT_FALSE(holdings->at("mlx5_1").exclusive_holder);
  EXPECT_EQ(holdings->at("mlx5_1").others, 0U);
  EXPECT_EQ(give(db_, {kOther}, {db_.key, "db", myself()}), "");
  EXPECT_TRUE(ledger_.leave(db_, db_.key));
}

TEST_F(LedgerRecord, ThatIsBadTakesAPlaceWhereOthersShare) {
  ASSERT_EQ(give(web_, {kShared}, {web_.key, "web", myself()}), "");
  damage(web_);
  EXPECT_EQ(give(db_, {kShared}, {db_.key, "db", myself()}), "") << "there is room";
  const Owner third = container_owner("third", "/");
  const auto holdings = ledger_.lock({"mlx5_0"})->holdings(third, {{"mlx5_0", 2}});
  ASSERT_TRUE(holdings);
  EXPECT_FALSE(holdings->at("mlx5_0").exclusive_holder);
  EXPECT_EQ(holdings->at("mlx5_0").others, 2U);
  EXPECT_TRUE(holdings->at("mlx5_0").doubtful.starts_with("the grant `" + file(web_) + "`, which cannot be read"));
  ASSERT_TRUE(ledger_.leave(db_, db_.key));
  const auto alone = book(ledger_, third, {kAlone}, {third.key, "third", myself()});
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find(file(web_)), std::string::npos) << alone.error().message;
}

TEST_F(LedgerRecord, ThatIsBadIsNamedBesideTheOthers) {
  GrantUser user{web_.key, "web", myself()};
  user.pod = "sandbox";
  ASSERT_EQ(give(web_, {kAlone}, user), "");
  user = {db_.key, "db", myself()};
  user.pod = "sandbox";
  ASSERT_EQ(give(db_, {kOther}, user), "");
  damage(web_);
  for (const bool all : {true, false}) {
    Ledger::Unread unread;
    const auto grants = all ? ledger_.list(&unread) : ledger_.find_by_id("sandbox", &unread);
    ASSERT_TRUE(grants);
    ASSERT_EQ(grants->size(), 1U);
    EXPECT_EQ(grants->front().owner.key, db_.key);
    ASSERT_EQ(unread.size(), 1U);
    EXPECT_NE(unread[0].message.find(file(web_)), std::string::npos);
    EXPECT_FALSE(all ? ledger_.list() : ledger_.find_by_id("sandbox"));
  }
  EXPECT_EQ(ledger_.find_by_id("db")->size(), 1U);
}

TEST_F(LedgerRecord, ThatIsBadIsNamedByRecoverWhichReturnsTheOthers) {
  ASSERT_EQ(give(web_, {kAlone}, {web_.key, "web", dead_process()}), "");
  ASSERT_EQ(give(db_, {kOther}, {db_.key, "db", dead_process()}), "");
  damage(web_);
  const std::string index = entries(path_ + "/hca/mlx5_0/holders") + entries(path_ + "/ids");
  const auto recovered = ledger_.recover();
  ASSERT_FALSE(recovered);
  EXPECT_EQ(recovered.error().message,
            "`" + web_.key + "`: cannot read grant `" + file(web_) + "`: its checksum is wrong");
  EXPECT_EQ(recovered.error().hint, "if nothing uses that grant any more, remove the file and run `rdma-hook recover`");
  EXPECT_FALSE(ledger_.find(db_.key).value());
  EXPECT_TRUE(is_refused(db_, kAlone));
  fs::remove(file(web_));
  ASSERT_TRUE(ledger_.recover());
  EXPECT_EQ(ledger_problems(path_), "");
  EXPECT_EQ(entries(path_ + "/ids") + entries(path_ + "/hca/mlx5_0/holders") + entries(path_ + "/pending"), "")
      << "of " << index;
  EXPECT_EQ(give(db_, {kAlone}, {db_.key, "db", myself()}), "");
}

// createRuntime knows no pod, and books after it has bound.
TEST_F(LedgerRecord, BookingMoreKeepsThePod) {
  GrantUser user{token_owner(kToken).key, "web", std::nullopt};
  user.pod = "sandbox";
  ASSERT_EQ(give(token_owner(kToken), {kAlone}, user), "");
  ASSERT_TRUE(ledger_.bind(kToken, web_, {web_.key, "web", myself()}).value());
  ASSERT_EQ(give(web_, {kAlone, kOther}, {web_.key, "web", myself()}), "");
  EXPECT_EQ(ledger_.find_by_id("sandbox")->size(), 1U);
  EXPECT_EQ(ledger_problems(path_), "");
}

}  // namespace
}  // namespace hook
