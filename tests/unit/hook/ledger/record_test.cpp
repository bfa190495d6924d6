// The record of a grant: its text, how often it is written, and that no damage to it, its index or its markers
// allocates an HCA twice.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>

#include "hook/ledger/changes.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/record.hpp"
#include "support/results.hpp"
#include "tests/unit/sanitized.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace test_support;
using test_support::book;

const PlannedHca kSharedByTwo{"mlx5_0", Mode::kShared, 1, 2};
constexpr const char* kKey = "netns-4-7";

// A grant with all members.
StoredGrant full_grant() {
  StoredGrant grant;
  grant.owner = netns_owner({4, 7, "/run/netns/cni-1", 25, 4711});
  grant.hcas = {kAlone, {"mlx5_1", Mode::kSharedMulti, 3, 8}};
  grant.hcas[1].claim = "claim-1";
  grant.hcas[0].open = OpenState{.index = 3, .contexts = {7, 8, 9, 4294967295}, .node = DeviceNumber{231, 192}};
  grant.since = 1700000000;
  StoredUser first;
  first.user = {"c-1", "c-1", ProcessIdentity{4711, 99}, "/run/c-1",
                CgroupIdentity{"/sys/fs/cgroup", 1, 2, "/c", 1, 3}};
  first.user.pod = "sandbox";
  first.user.view = "set-1";
  first.user.more_views = {"lent-2", "set-3"};
  first.settled = true;
  StoredUser second;
  second.user = {"c-2", "c-2", std::nullopt};
  second.worker = StepWorker{{4712, 100}, 12345};
  second.hcas = {{"mlx5_2", Mode::kExclusive, 1, {}}};
  second.ended = true;
  grant.users = {first, second};
  return grant;
}

TEST(GrantRecord, KeepsFactsOfClaim) {
  StoredGrant grant;
  grant.owner = claim_owner("3f2a", {.space = "team",
                                     .name = "nics",
                                     .token = kToken,
                                     .pods = {"pod-1", "pod-2"},
                                     .hcas = {{"mlx5_0", "0000.3b.00.0", "pci-0000-3b-00-0"},
                                              {"mlx5_1", "mlx5_1", "mlx5-1", true, "rails"}}});
  grant.hcas = {kAlone};
  const std::string text = grant_text(grant);
  const auto read = must(parse_grant(text, "p", "claim-3f2a"));
  EXPECT_EQ(read.owner.claim, grant.owner.claim);
  EXPECT_EQ(grant_text(read), text);
  // An owner is a claim if, and only if, the record has its facts.
  StoredGrant without = grant;
  without.owner.claim.reset();
  EXPECT_FALSE(parse_grant(grant_text(without), "p", "claim-3f2a"));
  grant.owner.kind = Owner::Kind::kToken;
  EXPECT_FALSE(parse_grant(grant_text(grant), "p", "claim-3f2a"));
}

std::string flip(std::string text, std::size_t bit) {
  text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  return text;
}

TEST(GrantRecord, DetectsAnyDamage) {
  const auto grant = full_grant();
  const auto read = must(parse_grant(grant_text(grant), "p", kKey));
  EXPECT_EQ(grant_text(read), grant_text(grant));
  EXPECT_EQ(read.users, grant.users);
  EXPECT_EQ(read.hcas, grant.hcas);
  const std::string text = grant_text(full_grant());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit)
    ASSERT_FALSE(parse_grant(flip(text, bit), "p", kKey)) << "bit " << bit;
  for (std::size_t size = 0; size < text.size(); ++size)
    ASSERT_FALSE(parse_grant(text.substr(0, size), "p", kKey)) << "first " << size;
  ASSERT_FALSE(parse_grant(text + " ", "p", kKey));
  const auto damaged = parse_grant(flip(text, 800), "DIR/grants/k.json", kKey);
  EXPECT_EQ(damaged.error().message, "cannot read grant `DIR/grants/k.json`: its checksum is wrong");
  EXPECT_EQ(damaged.error().hint, "if nothing uses that grant any more, remove the file and run `rdma-hook recover`");
  std::string other_text = grant_text(full_grant());
  for (const char* format : {"1", "3"}) {
    other_text.replace(other_text.find("\"format\":") + 9, 1, format);
    EXPECT_EQ(error_message(parse_grant(other_text, "DIR/grants/k.json", kKey)),
              fmt::format("cannot read grant `DIR/grants/k.json`: its format is {}, this program's is 2", format));
  }
}

// The line with a correct checksum.
std::string signed_text(const std::string& line) {
  return fmt::format("{}\n{:016x}\n", line, checksum(line));
}

// Returns the grant as text, or the error.
std::string outcome(const std::string& line) {
  const auto grant = parse_grant(signed_text(line), "p", kKey);
  return grant ? grant_text(*grant) : fmt::format("{} {}", grant.error().message, grant.error().code);
}

// Returns outcome() of a line that the fast scan does not read, because it does not know spaces.
std::string outcome_of_document(const std::string& line) {
  constexpr std::string_view kQuotedSpace = "last read: ' ";
  std::string text = outcome(" " + line);
  const auto quoted = text.find(kQuotedSpace);
  return quoted == std::string::npos ? text : text.erase(quoted + kQuotedSpace.size() - 1, 1);
}

// The scan and the document must give the same result for every text.
TEST(GrantRecord, ScanAgreesWithDocument) {
  const std::string text = grant_text(full_grant());
  const std::string line = text.substr(0, text.find('\n'));
  ASSERT_EQ(outcome(line), text);
  ASSERT_EQ(outcome_of_document(line), text);
  constexpr std::size_t kStep = kIsSanitized ? 11 : 1;
  for (std::size_t at = 0; at < line.size(); at += kStep) {
    std::string without = line;
    without.erase(at, 1);
    ASSERT_EQ(outcome(without), outcome_of_document(without)) << without;
    for (const char c :
         {'0', '9', '-', '.', '"', '\\', ',', ':', '{', '}', '[', ']', 'a', ' ', '/', '\t', '\x7f', '\xc3', '\0'}) {
      std::string other = line;
      other[at] = c;
      ASSERT_EQ(outcome(other), outcome_of_document(other)) << other;
      other = line;
      other.insert(at, 1, c);
      ASSERT_EQ(outcome(other), outcome_of_document(other)) << other;
    }
    const std::string part = line.substr(0, at);
    ASSERT_EQ(outcome(part), outcome_of_document(part)) << part;
  }
}

TEST(GrantRecord, ScanAgreesWithDocumentAboutMembers) {
  const std::string text = grant_text(full_grant());
  const std::string line = text.substr(0, text.find('\n'));
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string other = line;
    const auto at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? other : other.replace(at, from.size(), to);
  };
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"since\":1700000000", "\"since\":9223372036854775807"},
           {"\"since\":1700000000", "\"since\":9223372036854775808"},
           {"\"since\":1700000000", "\"since\":99999999999999999999"},
           {"\"since\":1700000000", "\"since\":1.7e9"},
           {"\"since\":1700000000", "\"since\":\"1700000000\""},
           {"\"since\":1700000000", "\"since\":1700000000,\"since\":1700000000"},
           {"\"since\":1700000000", "\"since\":1700000000,\"more\":{}"},
           {",\"since\":1700000000", ""},
           {"\"lent-2\"", "\"../2\""},
           {"[\"lent-2\",\"set-3\"]", "[]"},
           {"\"settled\":true", "\"settled\":1"},
           {"\"settled\":true", "\"settled\":null"},
           {"\"pid\":4711", "\"pid\":2147483648"},
           {"\"pid\":4711", "\"pid\":04711"},
           {"\"id\":\"c-1\"", "\"id\":\"\\u0063-\xc3\xa4\""},
           {"\"id\":\"c-1\"", "\"id\":\"\xff\""},
           {"\"mode\":\"exclusive\"", "\"mode\":\"none\""},
           {"\"name\":\"mlx5_1\"", "\"name\":\"..\""},
           {"\"contexts\":[]", "\"contexts\":[7,4294967296]"},
           {"\"contexts\":[]", "\"contexts\":[7,]"},
           {"\"contexts\":[]", "\"contexts\":[7]"},
           {"\"ranges\":\"7-9,4294967295\"", "\"ranges\":\"\""},
           {"\"ranges\":\"7-9,4294967295\"", "\"ranges\":\"7-9,4294967296\""},
           {"\"ranges\":\"7-9,4294967295\"", "\"ranges\":\"7-9,9\""},
           {"\"ranges\":\"7-9,4294967295\"", "\"ranges\":\"9-7\""},
           {"\"ranges\":\"7-9,4294967295\"", "\"ranges\":[7,9]"}}) {
    const std::string other = replaced(from, to);
    EXPECT_EQ(outcome(other), outcome_of_document(other)) << other;
  }
  EXPECT_TRUE(has_text(outcome(replaced("\"lent-2\"", "\"../2\"")), "more_views")) << "a path is no name of a view";
}

TEST(ContextIds, KeepsRangesInOrder) {
  ContextIds ids{0, 1, 2, 4, 4294967294};
  EXPECT_EQ(ids.text(), "0-2,4,4294967294");
  EXPECT_TRUE(ids.add(4294967295));
  for (const std::uint32_t id : {0U, 3U, 4U, 4294967295U})
    EXPECT_FALSE(ids.add(id)) << id;
  EXPECT_EQ(ids.text(), "0-2,4,4294967294-4294967295");
  for (const std::uint32_t id : {0U, 1U, 2U, 4U, 4294967294U, 4294967295U})
    EXPECT_TRUE(ids.contains(id)) << id;
  for (const std::uint32_t id : {3U, 5U, 4294967293U})
    EXPECT_FALSE(ids.contains(id)) << id;
  EXPECT_FALSE(ContextIds().contains(0));
  EXPECT_EQ(ContextIds::parse(ids.text()), ids);
  EXPECT_EQ(ContextIds::parse(""), ContextIds());
  for (const char* text :
       {",", "1,", "1-", "-1", "2-1", "1-2-3", "3,3", "3,1", "3-5,4", "1,4294967296", "a", " 1", "+1"})
    EXPECT_FALSE(ContextIds::parse(text)) << text;
}

// The line is that of an earlier version, which listed each context.
TEST(GrantRecord, ReadsListOfContexts) {
  std::string line = grant_text(full_grant());
  line.resize(line.find('\n'));
  const std::string now = R"("contexts":[],"ranges":"7-9,4294967295")";
  line.replace(line.find(now), now.size(), R"("contexts":[7,8,9,4294967295])");
  EXPECT_EQ(must(parse_grant(signed_text(line), "p", kKey)).hcas, full_grant().hcas);
}

class LedgerRecord : public ConsistentLedger {
 protected:
  void damage(const Owner& owner) { write_file(grant_file(owner), flip(read_file(grant_file(owner)), 800)); }
  // Requests as a plan does, then books regardless of the answer. Returns true if it got nothing.
  bool is_refused(const Owner& owner, const PlannedHca& hca) {
    {
      const auto locked = ledger_.lock({hca.name});
      const auto holdings = locked->holdings(owner, {{hca.name, {1, 1}}});
      if (!holdings) return true;
      const Holding& holding = holdings->at(hca.name);
      if (!holding.exclusive_owner && holding.others == 0) return false;
    }
    return !book(ledger_, owner, {hca}, {owner.key, "rival", myself()}) || !ledger_.release_grant(owner.key);
  }
};

// No context may be missing in the record: the release would count it as one of the owner.
TEST_F(LedgerRecord, HasEachContextThatWasOpenBefore) {
  PlannedHca hca = kAlone;
  hca.open.emplace();
  for (std::uint32_t id = 0; id < 150'000; ++id)
    ASSERT_TRUE(hca.open->contexts.add(id));
  ASSERT_EQ(allocate(web_, {hca}), "");
  EXPECT_LT(fs::file_size(grant_file(web_)), 2000U);
  const auto read = must(ledger_.find(web_.key));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->hcas.at(0).open->contexts, hca.open->contexts);
  ASSERT_TRUE(ledger_.release_grant(web_.key));
  // Gaps between all of them: a record has no room for so many ranges.
  for (std::uint32_t id = 150'000; id < 600'000; id += 2)
    ASSERT_TRUE(hca.open->contexts.add(id));
  EXPECT_TRUE(
      has_text(allocate(web_, {hca}), "(users: 1, ranges of contexts that were open on its HCAs before: 225000)"));
  EXPECT_FALSE(find(web_));
}

TEST_F(LedgerRecord, FlippedBitNeverAllocatesHcaTwice) {
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  const std::string text = read_file(grant_file(web_));
  for (std::size_t byte = 0; byte < text.size(); ++byte) {
    write_file(grant_file(web_), flip(text, byte * 8 + byte % 8));
    ASSERT_TRUE(is_refused(db_, kAlone)) << "byte " << byte;
    ASSERT_TRUE(is_refused(db_, kSharedByTwo)) << "byte " << byte;
  }
  write_file(grant_file(web_), text);
}

TEST_F(LedgerRecord, DamagedLinkNeverAllocatesHcaTwice) {
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  const std::string link = path_ + "/hca/mlx5_0/exclusive";
  for (std::size_t byte = 0; byte < web_.key.size(); ++byte) {
    const std::string key = flip(web_.key, byte * 8 + byte % 7);
    if (key.find('\0') != std::string::npos) continue;
    fs::remove(link);
    fs::create_symlink(key, link);
    ASSERT_TRUE(is_refused(db_, kAlone)) << key;
    ASSERT_TRUE(is_refused(db_, kSharedByTwo)) << key;
  }
  fs::remove(link);
  fs::create_symlink("nobody", link);
  ASSERT_TRUE(ledger_.recover());
  EXPECT_EQ(ledger_problems(path_), "") << "recover() corrects it";
}

TEST_F(LedgerRecord, RecoverCorrectsOrRemovesLinkThatNamesNoGrant) {
  const std::string link = path_ + "/hca/mlx5_0/exclusive";
  const std::function<void()> damages[] = {[&] { fs::create_symlink("no/grant", link); },
                                           [&] { fs::create_symlink(std::string(300, 'x'), link); },
                                           [&] { write_file(link, "no link"); }};
  for (const auto& damage : damages) {
    ASSERT_EQ(allocate(web_, {kAlone}), "");
    fs::remove(link);
    damage();
    EXPECT_TRUE(is_refused(db_, kSharedByTwo));
    ASSERT_OK(ledger_.recover());
    EXPECT_EQ(fs::read_symlink(link), web_.key);
    fs::remove(link);
    damage();
    ASSERT_TRUE(ledger_.leave(web_, web_.key)) << "a container can end despite a damaged link";
    EXPECT_TRUE(is_refused(db_, kSharedByTwo));
    ASSERT_OK(ledger_.recover());
    EXPECT_FALSE(fs::exists(fs::symlink_status(link)));
    EXPECT_FALSE(is_refused(db_, kAlone));
  }
}

TEST_F(LedgerRecord, RecoverKeepsDamagedLinkOfGrantThatCannotBeRead) {
  is_damaged_ = true;
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  const std::string link = path_ + "/hca/mlx5_0/exclusive";
  fs::remove(link);
  fs::create_symlink("no/grant", link);
  write_file(grant_file(web_), "{");
  EXPECT_FALSE(ledger_.recover());
  EXPECT_EQ(fs::read_symlink(link), "no/grant");
  EXPECT_TRUE(is_refused(db_, kSharedByTwo));
}

TEST_F(LedgerRecord, WrongUnitsInIndexNeverAllocateHcaTwice) {
  ASSERT_EQ(allocate(web_, {kSharedByTwo}), "");
  const std::string entries_path = path_ + "/hca/mlx5_0/holders/";
  for (const char* units : {"0", "3", "9"}) {
    fs::rename(entries_path + web_.key + "@1", entries_path + web_.key + "@" + units);
    ASSERT_TRUE(is_refused(db_, kAlone)) << units;
    EXPECT_EQ(ledger_problems(path_), "") << "corrected by the request";
    ASSERT_TRUE(ledger_.recover());
    EXPECT_EQ(ledger_problems(path_), "");
  }
}

TEST_F(LedgerRecord, RecoverRestoresMissingIndexEntries) {
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  ASSERT_EQ(allocate(db_, {{"mlx5_1", Mode::kShared, 1, {}}}, {db_.key, "db", myself()}), "");
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

// Each kind of damage to the index of an HCA that is held exclusively, or shared. The next decision about the HCA makes
// the parts again that it needs, and recover() all parts.
struct IndexDamage {
  const char* name;
  std::function<void(const std::string& directory, const std::string& key)> make;
  bool is_known = true;  // the decision finds the state of the HCA; otherwise the HCA is held until recover()
};

class LedgerIndexDamage : public LedgerRecord, public testing::WithParamInterface<IndexDamage> {};

TEST_P(LedgerIndexDamage, NeverAllocatesHcaTwice) {
  for (const PlannedHca& held : {kAlone, PlannedHca{"mlx5_0", Mode::kShared, 1, {}}}) {
    SCOPED_TRACE(to_string(held.mode));
    ASSERT_EQ(allocate(web_, {held}), "");
    GetParam().make(path_ + "/hca", web_.key);
    ledger_ = Ledger::open(path_).value();
    EXPECT_TRUE(is_refused(db_, kAlone));
    EXPECT_EQ(is_refused(db_, kSharedByTwo), held.mode == Mode::kExclusive || !GetParam().is_known);
    ASSERT_TRUE(ledger_.release_grant(db_.key));
    ASSERT_OK(ledger_.recover());
    EXPECT_EQ(ledger_problems(path_), "");
    ASSERT_TRUE(ledger_.leave(web_, web_.key));
    EXPECT_EQ(allocate(db_, {kAlone}), "") << "it is free";
    ASSERT_TRUE(ledger_.release_grant(db_.key));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LedgerIndexDamage,
    testing::Values(
        IndexDamage{"WholeIndexRemovedByHand", [](const std::string& all, const std::string&) { fs::remove_all(all); }},
        IndexDamage{"DirectoryOfHcaRemovedByHand",
                    [](const std::string& all, const std::string&) { fs::remove_all(all + "/mlx5_0"); }},
        IndexDamage{"EntriesRemovedByHand",
                    [](const std::string& all, const std::string&) { fs::remove_all(all + "/mlx5_0/holders"); }},
        IndexDamage{
            "EntryRemovedByHand",
            [](const std::string& all, const std::string& key) { fs::remove(all + "/mlx5_0/holders/" + key + "@1"); }},
        IndexDamage{"LinkRemovedByHand",
                    [](const std::string& all, const std::string&) { fs::remove(all + "/mlx5_0/exclusive"); }},
        IndexDamage{"LinkAndEntryRemovedByHand",
                    [](const std::string& all, const std::string& key) {
                      fs::remove(all + "/mlx5_0/exclusive");
                      fs::remove(all + "/mlx5_0/holders/" + key + "@1");
                    }},
        IndexDamage{"LockRemovedByHand",
                    [](const std::string& all, const std::string&) { fs::remove(all + "/mlx5_0/lock"); }},
        IndexDamage{"EntryTruncated",
                    [](const std::string& all, const std::string& key) {
                      fs::resize_file(all + "/mlx5_0/holders/" + key + "@1", 0);
                      fs::rename(all + "/mlx5_0/holders/" + key + "@1",
                                 all + "/mlx5_0/holders/" + key.substr(9) + "@1");
                    }},
        IndexDamage{"LinkTruncated",
                    [](const std::string& all, const std::string& key) {
                      fs::remove(all + "/mlx5_0/exclusive");
                      fs::create_symlink(key.substr(0, 9), all + "/mlx5_0/exclusive");
                    }},
        IndexDamage{"LinkReplacedByFile",
                    [](const std::string& all, const std::string&) {
                      fs::remove(all + "/mlx5_0/exclusive");
                      write_file(all + "/mlx5_0/exclusive", "");
                    },
                    false},
        IndexDamage{"StaleEntryAndLink",
                    [](const std::string& all, const std::string&) {
                      write_file(all + "/mlx5_0/holders/nobodys@1", "");
                      fs::remove(all + "/mlx5_0/exclusive");
                      fs::create_symlink("nobodys", all + "/mlx5_0/exclusive");
                    }}),
    [](const auto& damage) { return std::string(damage.param.name); });

// The link `exclusive` of an HCA with a grant is never "none": ledger_problems() reports it at the end of the test.
// A request with a limit of one makes the index again if the link is "shared" without an entry.
TEST_F(LedgerRecord, HcaWithLimitOfOneIsNotFreeWhenItIsSharedAgain) {
  const PlannedHca shared{"mlx5_0", Mode::kShared, 1, 1};
  ASSERT_EQ(allocate(web_, {shared}), "");
  ASSERT_OK(ledger_.leave(web_, web_.key));
  {
    auto locked = must(ledger_.lock({"mlx5_0"}));
    ASSERT_OK(locked.holdings(db_, {{"mlx5_0", {1, 1}}}));
    ASSERT_OK(locked.book(db_, {shared}, {db_.key, "db", myself()}));
  }
  ASSERT_OK(ledger_.settle(db_.key));
}

// A release needs no lock of the HCA, so an owner can lose an HCA between its decision and its booking.
TEST_F(LedgerRecord, HcaIsNotFreeIfTheOwnerLostItBeforeItSharesIt) {
  const PlannedHca shared{"mlx5_0", Mode::kShared, 1, {}};
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  {
    auto locked = must(ledger_.lock({"mlx5_0"}));
    ASSERT_OK(locked.holdings(web_, {}));
    ASSERT_OK(ledger_.leave(web_, web_.key));
    ASSERT_OK(locked.book(web_, {shared}, {web_.key, "web", myself()}));
  }
  ASSERT_OK(ledger_.settle(web_.key));
}

TEST_F(LedgerRecord, RecoverCorrectsLinkThatShowsASharedHcaAsFree) {
  ASSERT_EQ(allocate(web_, {kSharedByTwo}), "");
  const std::string link = path_ + "/hca/mlx5_0/exclusive";
  fs::remove(link);
  fs::create_symlink("none", link);
  ASSERT_OK(ledger_.recover());
  EXPECT_EQ(fs::read_symlink(link), "shared");
}

TEST_F(LedgerRecord, ReadOnlyIndexAllocatesNothing) {
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  const std::string all = path_ + "/hca";
  fs::remove(all + "/mlx5_0/exclusive");
  constexpr int kNotPossible = 77;
  const int code = in_child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(all.c_str(), all.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        mount(nullptr, all.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return kNotPossible;
    }
    const auto ledger = Ledger::open(path_);
    const auto locked = ledger ? ledger->lock({"mlx5_0"}) : ledger.error();
    return locked ? 1 : 0;
  });
  if (code == kNotPossible) GTEST_SKIP() << "a mount namespace needs CAP_SYS_ADMIN";
  EXPECT_EQ(code, 0) << "a decision needs the lock, which it cannot write";
  EXPECT_TRUE(is_refused(db_, kAlone)) << "writable again";
}

// An HCA without a directory was never held, or its directory was removed. A grant that cannot be read may hold it.
TEST_F(LedgerRecord, RemovedIndexAndDamagedRecordHoldEachHca) {
  is_damaged_ = true;
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  damage(web_);
  EXPECT_FALSE(is_refused(db_, kOtherAlone)) << "never held";
  ASSERT_TRUE(ledger_.release_grant(db_.key));
  fs::remove_all(path_ + "/hca/mlx5_0");
  fs::remove_all(path_ + "/hca/mlx5_1");
  const auto holdings = must(ledger_.lock({"mlx5_1"})->holdings(db_, {}));
  EXPECT_TRUE(has_text(holdings.at("mlx5_1").exclusive_owner.value_or(""), grant_file(web_)));
}

// Steps with a misnamed marker count as done: the HCA is then held until its container has ended.
TEST_F(LedgerRecord, DamagedMarkerNeverFreesHca) {
  book_and_die(web_, {kAlone}, {web_.key, "web", myself()});
  const std::string marker = entries(path_ + "/pending");
  for (std::size_t byte = 0; byte < marker.size(); ++byte) {
    const std::string other = flip(marker, byte * 8 + byte % 5);
    if (other.find('/') != std::string::npos || other.find('\0') != std::string::npos) continue;
    fs::rename(path_ + "/pending/" + marker, path_ + "/pending/" + other);
    EXPECT_TRUE(is_refused(db_, kAlone)) << other;
    fs::rename(path_ + "/pending/" + other, path_ + "/pending/" + marker);
  }
  EXPECT_FALSE(is_refused(db_, kAlone)) << "its worker is dead";
  EXPECT_FALSE(find(web_));
}

TEST_F(LedgerRecord, WritesRecordOnceForEachChange) {
  const Owner token = token_owner(kToken);
  ASSERT_TRUE(book(ledger_, token, {kAlone}, {token.key, "web", myself()}));
  const ino_t booked = inode(grant_file(token));
  ASSERT_TRUE(ledger_.settle(token.key));
  EXPECT_EQ(inode(grant_file(token)), booked) << "settled";
  EXPECT_EQ(entries(path_ + "/pending"), "");
  GrantUser user{web_.key, "web", myself(), "/run/web"};
  ASSERT_TRUE(ledger_.bind(kToken, web_, user).value());
  const ino_t bound = inode(grant_file(web_));
  ASSERT_TRUE(book(ledger_, web_, {kAlone}, user)) << "bind() has added all of it";
  EXPECT_TRUE(find(web_)->pending);
  ASSERT_TRUE(ledger_.settle(web_.key));
  EXPECT_EQ(inode(grant_file(web_)), bound);
  EXPECT_FALSE(find(web_)->pending);
  EXPECT_EQ(entries(path_ + "/pending"), "");
  ASSERT_TRUE(book(ledger_, web_, {kAlone}, user)) << "the same HCAs again";
  EXPECT_EQ(inode(grant_file(web_)), bound);
}

// An earlier call of the same process could not roll back its steps.
TEST_F(LedgerRecord, SettlesOnlyStepsOfThisLedger) {
  const auto before = Ledger::open(path_);
  ASSERT_TRUE(book(*before, pod_, {kAlone}, {"c-1", "c-1", myself()}));
  ASSERT_EQ(allocate(pod_, {kOtherAlone}, {"c-2", "c-2", myself()}), "");
  EXPECT_TRUE(find(pod_)->pending);
  ASSERT_TRUE(ledger_.leave(pod_, "c-1"));
  EXPECT_FALSE(find(pod_)->pending);
  EXPECT_EQ(find(pod_)->hcas, std::vector<PlannedHca>{kOtherAlone});
  EXPECT_EQ(entries(path_ + "/pending"), "");
}

// A marker that cannot be read is not missing.
TEST_F(LedgerRecord, GrantWithUnreadableMarkerIsAnError) {
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  int seen = 0;
  const auto use = [&](const Grant&) -> base::Result<void> {
    ++seen;
    return {};
  };
  ASSERT_TRUE(Ledger::for_each_at(path_, use).value());
  fs::remove_all(path_ + "/pending");
  Ledger::Unread unread;
  ASSERT_TRUE(Ledger::for_each_at(path_, use, &unread).value());
  EXPECT_EQ(seen, 1);
  ASSERT_EQ(unread.size(), 1U);
  EXPECT_TRUE(unread[0].message.starts_with("cannot read `")) << unread[0].message;
}

TEST_F(LedgerRecord, DamagedRecordHoldsItsOwnHcasOnly) {
  is_damaged_ = true;
  ASSERT_EQ(allocate(web_, {kAlone}), "");
  damage(web_);
  const std::string owner_text = "the grant `" + grant_file(web_) +
                                 "`, which cannot be read: its checksum is wrong (if nothing uses that grant any more, "
                                 "remove the file and run `rdma-hook recover`)";
  const auto holdings =
      must(ledger_.lock({"mlx5_0", "mlx5_1"})->holdings(db_, {{"mlx5_0", {1, 1}}, {"mlx5_1", {1, 1}}}));
  EXPECT_EQ(holdings.at("mlx5_0").exclusive_owner, owner_text);
  EXPECT_FALSE(holdings.at("mlx5_1").exclusive_owner);
  EXPECT_EQ(holdings.at("mlx5_1").others, 0U);
  EXPECT_EQ(allocate(db_, {kOtherAlone}), "");
  EXPECT_TRUE(ledger_.leave(db_, db_.key));
}

TEST_F(LedgerRecord, DamagedRecordCountsAsSharer) {
  is_damaged_ = true;
  ASSERT_EQ(allocate(web_, {kSharedByTwo}), "");
  damage(web_);
  EXPECT_EQ(allocate(db_, {kSharedByTwo}), "") << "there is room";
  const Owner third = container_owner("third", "/");
  const auto holdings = must(ledger_.lock({"mlx5_0"})->holdings(third, {{"mlx5_0", {2, 2}}}));
  EXPECT_FALSE(holdings.at("mlx5_0").exclusive_owner);
  EXPECT_EQ(holdings.at("mlx5_0").others, 2U);
  EXPECT_TRUE(holdings.at("mlx5_0").doubtful.starts_with("the grant `" + grant_file(web_) + "`, which cannot be read"));
  ASSERT_TRUE(ledger_.leave(db_, db_.key));
  EXPECT_TRUE(
      has_text(error_message(book(ledger_, third, {kAlone}, {third.key, "third", myself()})), grant_file(web_)));
}

TEST_F(LedgerRecord, ListsGrantsBesideDamagedRecord) {
  is_damaged_ = true;
  GrantUser user{web_.key, "web", myself()};
  user.pod = "sandbox";
  ASSERT_EQ(allocate(web_, {kAlone}, user), "");
  user = {db_.key, "db", myself()};
  user.pod = "sandbox";
  ASSERT_EQ(allocate(db_, {kOtherAlone}, user), "");
  damage(web_);
  for (const bool all : {true, false}) {
    Ledger::Unread unread;
    const auto grants = must(all ? ledger_.list(&unread) : ledger_.find_by_id("sandbox", &unread));
    ASSERT_EQ(grants.size(), 1U);
    EXPECT_EQ(grants.front().owner.key, db_.key);
    ASSERT_EQ(unread.size(), 1U);
    EXPECT_TRUE(has_text(unread[0].message, grant_file(web_)));
    EXPECT_FALSE(all ? ledger_.list() : ledger_.find_by_id("sandbox"));
  }
  EXPECT_EQ(ledger_.find_by_id("db")->size(), 1U);
}

TEST_F(LedgerRecord, RecoverReportsDamagedRecordAndReleasesRest) {
  ASSERT_EQ(allocate(web_, {kAlone}, dead_process()), "");
  ASSERT_EQ(allocate(db_, {kOtherAlone}, dead_process()), "");
  damage(web_);
  const std::string index = entries(path_ + "/hca/mlx5_0/holders") + entries(path_ + "/ids");
  const auto recovered = ledger_.recover();
  EXPECT_EQ(error_message(recovered),
            "`" + web_.key + "`: cannot read grant `" + grant_file(web_) + "`: its checksum is wrong");
  EXPECT_EQ(error_hint(recovered), "if nothing uses that grant any more, remove the file and run `rdma-hook recover`");
  EXPECT_FALSE(find(db_));
  EXPECT_TRUE(is_refused(db_, kAlone));
  fs::remove(grant_file(web_));
  ASSERT_TRUE(ledger_.recover());
  EXPECT_EQ(ledger_problems(path_), "");
  EXPECT_EQ(entries(path_ + "/ids") + entries(path_ + "/hca/mlx5_0/holders") + entries(path_ + "/pending"), "")
      << "of " << index;
  EXPECT_EQ(allocate(db_, {kAlone}), "");
}

// createRuntime does not know the pod, and books after it has bound.
TEST_F(LedgerRecord, SecondBookingKeepsPod) {
  GrantUser user{token_owner(kToken).key, "web", std::nullopt};
  user.pod = "sandbox";
  ASSERT_EQ(allocate(token_owner(kToken), {kAlone}, user), "");
  ASSERT_TRUE(ledger_.bind(kToken, web_, {web_.key, "web", myself()}).value());
  ASSERT_EQ(allocate(web_, {kAlone, kOtherAlone}, {web_.key, "web", myself()}), "");
  EXPECT_EQ(ledger_.find_by_id("sandbox")->size(), 1U);
}

}  // namespace
}  // namespace hook
