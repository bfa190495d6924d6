// Log lines about grants, and the reasons that a call notes for the grants that it releases.
#include <gtest/gtest.h>

#include "base/failure.hpp"
#include "base/json/json.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/events.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

using namespace test_support;
using test_support::book;
using Strings = std::vector<std::string>;

std::string field(std::string_view value) {
  return EventLine("e").add("k", value).text();
}

TEST(EventLine, QuotesUnsafeValuesAndCutsLongOnes) {
  const std::tuple<const char*, std::string, std::string> rows[] = {
      {"plain", "web-1", "web-1"},
      {"path", "/run/netns/cni-1", "/run/netns/cni-1"},
      {"address", "net1:mlx5_0:[fd00::5]/64:gid5", "net1:mlx5_0:[fd00::5]/64:gid5"},
      {"empty", "", R"("")"},
      {"blank", "a b", R"("a b")"},
      {"equals", "a=b", R"("a=b")"},
      {"quote", R"(a"b)", R"("a\"b")"},
      {"backslash", R"(a\b)", R"("a\\b")"},
      {"line break", "a\nreturned container=b", R"("a\nreturned container=b")"},
      {"carriage return and tab", "\r\t", R"("\r\t")"},
      {"escape sequence", "\x1b[2J", R"("\u001b[2J")"},
      {"NUL", std::string("a\0b", 3), R"("a\u0000b")"},
      {"DEL", "\x7f", R"("\u007f")"},
      {"UTF-8", "gr\xc3\xbc\xc3\x9f", R"("gr\u00fc\u00df")"},
      {"beyond 16 bits", "\xf0\x9f\x90\xb3", R"("\ud83d\udc33")"},
      {"writing to the left", "\xe2\x80\xae", R"("\u202e")"},
      {"C1 control", "\xc2\x9b", R"("\u009b")"},
      {"no UTF-8", "a\xff\xc3", R"("a\ufffd\ufffd")"},
      {"a shell's business", "`$;|&<>()'", R"("\u0060\u0024\u003b\u007c\u0026\u003c\u003e\u0028\u0029\u0027")"},
      {"closes its quotes", "\" x=\"", R"("\" x=\"")"}};
  for (const auto& [name, value, expected] : rows)
    EXPECT_EQ(field(value), "e k=" + expected) << name;
  EXPECT_EQ(field(std::string(128, 'x')), "e k=" + std::string(128, 'x'));
  EXPECT_EQ(field(std::string(129, 'x')), "e k=" + std::string(128, 'x') + "...");
  // Cut in the middle of a character.
  EXPECT_EQ(field(std::string(127, 'x') + "\xc3\xbc"), "e k=\"" + std::string(127, 'x') + "\\ufffd...\"");
}

TEST(EventLine, JoinsListsAndWritesNumbers) {
  EXPECT_EQ(EventLine("e").add("a", std::uint64_t{0}).add("b", UINT64_MAX).text(), "e a=0 b=18446744073709551615");
  EXPECT_EQ(EventLine("e").add("k", Strings()).text(), "e");
  EXPECT_EQ(EventLine("e").add("k", Strings{"a"}).text(), "e k=a");
  EXPECT_EQ(EventLine("e").add("k", Strings{"a", "b c"}).text(), "e k=\"a,b c\"");
  EXPECT_EQ(EventLine("e").add("k", Strings{"", ""}).text(), "e k=,");
  const Strings many(100, std::string(9, 'x'));
  const std::string text = EventLine("e").add("k", many).text();
  EXPECT_TRUE(text.ends_with(",xxxxxxxxx,+49")) << text;
  EXPECT_LE(text.size(), 530U);
  const std::string one = EventLine("e").add("k", Strings{std::string(5000, 'x'), "y"}).text();
  EXPECT_EQ(one, "e k=" + std::string(512, 'x') + ",+1");
}

TEST(EventLine, LeavesOutFieldsBeyondLimit) {
  EventLine line("e");
  const std::string worst(1000, '\x01');
  for (int i = 0; i < 10; ++i)
    line.add("worst", worst);
  line.add("n", std::uint64_t{7});
  const std::string text = line.text();
  EXPECT_LE(text.size(), EventLine::kLongest + 20);
  EXPECT_TRUE(text.ends_with("...\" n=7 left_out=8")) << text;
}

// Parses a line as a program does: key=value separated by blanks, values in quotes with JSON's escapes.
std::map<std::string, std::string> parse_line(const std::string& line) {
  std::map<std::string, std::string> fields;
  std::size_t at = line.find(' ');
  fields["event"] = line.substr(0, at);
  while (at < line.size()) {
    const std::size_t equals = line.find('=', ++at);
    const std::string key = line.substr(at, equals - at);
    std::size_t end = equals + 1;
    if (line[end] == '"') {
      for (++end; line[end] != '"'; ++end)
        end += line[end] == '\\' ? 1 : 0;
      fields[key] = Json::parse(line.substr(equals + 1, ++end - equals - 1)).get<std::string>();
    } else {
      end = std::min(line.find(' ', end), line.size());
      fields[key] = line.substr(equals + 1, end - equals - 1);
    }
    at = end;
  }
  return fields;
}

RailRecord rail(const std::string& name, const std::string& hca, const Strings& addresses,
                std::optional<unsigned> gid_index) {
  RailRecord record;
  record.rail.name = name;
  record.rail.hca = hca;
  for (const std::string& address : addresses)
    record.rail.addresses.push_back({*fabric::parse_address(address), 24, std::nullopt});
  record.gid_index = gid_index;
  return record;
}

std::vector<PlannedHca> hcas(const Strings& names, Mode mode = Mode::kShared) {
  std::vector<PlannedHca> planned;
  for (const std::string& name : names)
    planned.push_back({.name = name, .mode = mode, .limit = std::nullopt});
  return planned;
}

Granted granted(const Owner& owner, const std::vector<PlannedHca>& booked, const std::optional<NetworkRecord>& rails,
                const Timing& timing) {
  static const Strings no_rail = {"mlx5_1"};
  return {.container = "web-1",
          .owner = owner,
          .engine = Engine::kCrio,
          .hcas = booked,
          .source = "annotation rdma-init.io/devices",
          .rails = rails,
          .no_rail = no_rail,
          .require = "-:no-rail",
          .timing = timing};
}

TEST(GrantedLine, MasksToken) {
  const std::string token(32, 'a');
  const Owner owner = token_owner(token);
  const std::string line = granted_line("booked", granted(owner, hcas({"mlx5_0"}), {}, {}));
  EXPECT_EQ(line.find(token), std::string::npos) << line;
  EXPECT_EQ(parse_line(line)["key"], shown_key(owner.key));
  ReleaseEvent released;
  released.owner = owner;
  const std::string end = released_line(released, nullptr);
  EXPECT_EQ(end.find(token), std::string::npos) << end;
  EXPECT_EQ(parse_line(end)["key"], shown_key(owner.key));
}

TEST(GrantedLine, HasEveryField) {
  const Owner owner{Owner::Kind::kNetns, "netns-4-17", "pod", NetnsIdentity{4, 17, "/run/netns/my pod"}};
  const auto booked = hcas({"mlx5_0", "mlx5_1"});
  const std::optional<NetworkRecord> rails(
      {"netns-4-17", {}, 0, {rail("net1", "mlx5_0", {"10.0.0.5", "fd00::5"}, 5U), rail("net2", "mlx5_1", {}, 5U)}});
  Timing timing;
  timing.step("read");
  timing.step("links");
  auto fields = parse_line(granted_line("granted", granted(owner, booked, rails, timing)));
  EXPECT_GE(std::stoull(fields["total_us"]), std::stoull(fields["read_us"]) + std::stoull(fields["links_us"]));
  for (const char* const time : {"total_us", "read_us", "links_us"})
    fields.erase(time);
  EXPECT_EQ(fields, (std::map<std::string, std::string>{
                        {"event", "granted"},
                        {"container", "web-1"},
                        {"key", "netns-4-17"},
                        {"netns", "/run/netns/my pod"},
                        {"engine", "crio"},
                        {"hcas", "mlx5_0,mlx5_1"},
                        {"mode", "shared"},
                        {"aligned", "5"},
                        {"rails", "net1:mlx5_0:10.0.0.5/24+[fd00::5]/24:gid5,net2:mlx5_1:-:gid5"},
                        {"require", "-:no-rail"},
                        {"no_rail", "mlx5_1"},
                        {"source", "annotation rdma-init.io/devices"}}));
}

TEST(GrantedLine, HasAlignedOnlyIfAllRailsAre) {
  const Owner owner = container_owner("web-1", "/bundle");
  const auto booked = hcas({"mlx5_0"});
  const auto with = [&](std::optional<unsigned> first, std::optional<unsigned> second) {
    const std::optional<NetworkRecord> rails(
        {owner.key, {}, 0, {rail("net1", "a", {"10.0.0.5"}, first), rail("net2", "b", {"10.0.0.6"}, second)}});
    return parse_line(granted_line("granted", granted(owner, booked, rails, Timing())));
  };
  EXPECT_EQ(with(0U, 0U)["aligned"], "0");
  EXPECT_FALSE(with(5U, 4U).contains("aligned"));
  EXPECT_FALSE(with(5U, std::nullopt).contains("aligned"));
  EXPECT_FALSE(with(std::nullopt, 5U).contains("aligned"));
  EXPECT_EQ(with(5U, std::nullopt)["rails"], "net1:a:10.0.0.5/24:gid5,net2:b:10.0.0.6/24:-");
  const std::optional<NetworkRecord> none;
  const auto nodes_only = parse_line(granted_line("granted", granted(owner, booked, none, Timing())));
  EXPECT_FALSE(nodes_only.contains("rails") || nodes_only.contains("aligned") || nodes_only.contains("netns"));
}

TEST(ReturnedLine, HasEveryFieldOfAPoststop) {
  Timing timing;
  timing.step("return");
  timing.step("rails");
  ReleaseEvent released{.owner = container_owner("web-1", "/bundle"),
                        .containers = {"web-1"},
                        .hcas = hcas({"mlx5_0"}, Mode::kExclusive),
                        .rails = {},
                        .held = 86,
                        .reason = ReleaseReason::kPoststop};
  auto fields = parse_line(released_line(released, &timing));
  for (const char* time : {"total_us", "return_us", "rails_us"})
    EXPECT_EQ(fields.erase(time), 1U) << time;
  EXPECT_EQ(fields, (std::map<std::string, std::string>{{"event", "returned"},
                                                        {"container", "web-1"},
                                                        {"key", released.owner.key},
                                                        {"reason", "poststop"},
                                                        {"hcas", "mlx5_0"},
                                                        {"mode", "exclusive"},
                                                        {"held_s", "86"}}));
  released.left = true;
  EXPECT_EQ(parse_line(released_line(released, &timing))["event"], "left");
}

TEST(ReturnedLine, HasFieldsOfReleaseByAnotherCall) {
  const ReleaseEvent released{
      .owner = {Owner::Kind::kNetns, "netns-4-17", "pod", NetnsIdentity{4, 17, "/run/netns/\"x\" reason=recover"}},
      .containers = {},
      .hcas = {},
      .rails = {},
      .reason = ReleaseReason::kNamespaceEnded,
      .rails_us = 40};
  auto fields = parse_line(released_line(released, nullptr));
  EXPECT_EQ(fields["reason"], "namespace-gone");
  EXPECT_EQ(fields["netns"], "/run/netns/\"x\" reason=recover");
  EXPECT_EQ(fields["mode"], "none");
  EXPECT_EQ(fields["total_us"], "40");
  EXPECT_EQ(fields["rails_us"], "40");
  EXPECT_FALSE(fields.contains("container"));
}

TEST(Words, NamesModesAndReasons) {
  EXPECT_EQ(mode_of({}), "none");
  EXPECT_EQ(mode_of(hcas({"a", "b"}, Mode::kHca)), "hca");
  auto mixed = hcas({"a", "b"});
  mixed[1].mode = Mode::kExclusive;
  EXPECT_EQ(mode_of(mixed), "mixed");
  EXPECT_EQ(to_string(ReleaseReason::kPoststop), "poststop");
  EXPECT_EQ(to_string(ReleaseReason::kContainerEnded), "container-gone");
  EXPECT_EQ(to_string(ReleaseReason::kClaimEnded), "claim-ended");
  EXPECT_EQ(to_string(ReleaseReason::kInterrupted), "interrupted");
  EXPECT_EQ(to_string(FailureReason::kState), "state");
  EXPECT_EQ(to_string(FailureReason::kNoHca), "no-hca");
  EXPECT_EQ(to_string(FailureReason::kUnreachable), "unreachable");
  EXPECT_EQ(to_string(FailureReason::kInternal), "internal");
}

TEST(FailureReason, RefinesReasonByErrno) {
  const std::tuple<FailureReason, int, FailureReason> cases[] = {
      {FailureReason::kUnspecified, 0, FailureReason::kState},
      {FailureReason::kUnspecified, EPERM, FailureReason::kState},
      {FailureReason::kConfig, 0, FailureReason::kConfig},
      {FailureReason::kConfig, EACCES, FailureReason::kConfig},
      {FailureReason::kBusy, 0, FailureReason::kBusy},
      {FailureReason::kRefused, EBUSY, FailureReason::kBusy},
      {FailureReason::kBusy, ENOSPC, FailureReason::kLedger},
      {FailureReason::kBusy, EAGAIN, FailureReason::kTimeout},
      {FailureReason::kLedger, EAGAIN, FailureReason::kTimeout},
      {FailureReason::kNetwork, EHOSTUNREACH, FailureReason::kUnreachable},
      {FailureReason::kNetwork, EBUSY, FailureReason::kNetwork},
      {FailureReason::kNetwork, ETIMEDOUT, FailureReason::kTimeout},
      {FailureReason::kDevices, EAGAIN, FailureReason::kDevices},
      {FailureReason::kDevices, EPERM, FailureReason::kDevices}};
  for (const auto& [reason, code, expected] : cases)
    EXPECT_EQ(failure_reason({"", code, "", reason}), expected) << to_string(reason) << " " << code;
}

const PlannedHca kFirst{"mlx5_0", Mode::kExclusive, 1, std::nullopt};
const PlannedHca kSecond{"mlx5_1", Mode::kExclusive, 1, std::nullopt};

NodeSettings settings_of(const std::string& ledger) {
  NodeSettings node;
  node.ledger = ledger;
  return node;
}

class ReleaseReportTest : public testing::Test {
 protected:
  Owner make_pod() {
    const TempDir there;
    return netns_owner(identify_netns(there.path()).value());  // the directory is gone when this returns
  }
  Owner living_pod() { return netns_owner(identify_netns("/proc/self/ns/net").value()); }
  void book_user(const Owner& owner, const PlannedHca& hca, const GrantUser& user) {
    ASSERT_TRUE(book(ledger_, owner, {hca}, user).has_value());
    ASSERT_TRUE(ledger_.settle(owner.key).has_value());
  }
  // Returns the lines that report() writes, and the reasons that it counts.
  Strings reported() {
    testing::internal::CaptureStderr();
    call_.outcome = {};
    open_.report(by_, call_);
    Strings lines;
    const std::string text = testing::internal::GetCapturedStderr();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    for (const ReleaseReason reason : call_.outcome.released)
      lines.push_back("counted " + std::string(to_string(reason)));
    return lines;
  }
  void expect_one(const std::string& start, const std::string& part, const std::string& counted) {
    const auto lines = reported();
    ASSERT_EQ(lines.size(), counted.empty() ? 1U : 2U);
    EXPECT_TRUE(lines[0].starts_with("rdma-hook: " + start + " ")) << lines[0];
    EXPECT_TRUE(has_text(lines[0], part));
    if (!counted.empty()) {
      EXPECT_EQ(lines[1], "counted " + counted);
    }
    EXPECT_TRUE(reported().empty()) << "each is reported once";
  }

  TempDir directory_;
  std::string path_ = directory_ / "ledger";
  NodeSettings node_ = settings_of(path_);
  Log log_;
  Call call_{node_, log_, nullptr, {}, "web"};
  OpenLedger open_ = OpenLedger::open(call_).value();
  Releaser by_ = Releaser::kOther;
  const Ledger& ledger_ = open_.ledger;
  const Owner web_ = container_owner("web", "/b");
  const Owner db_ = container_owner("db", "/b");
};

TEST_F(ReleaseReportTest, ReportsPoststop) {
  book_user(web_, kFirst, {web_.key, "web", myself()});
  by_ = Releaser::kPoststop;
  ASSERT_TRUE(ledger_.leave(web_, web_.key).has_value());
  ASSERT_TRUE(ledger_.leave(web_, web_.key).has_value()) << "a second call succeeds";
  expect_one("returned container=web key=" + web_.key,
             "reason=poststop hcas=mlx5_0 mode=exclusive held_s=0 total_us=", "poststop");
  ASSERT_EQ(call_.timing.steps().size(), 2U);
  EXPECT_EQ(call_.timing.steps()[0].first, "return");
  EXPECT_EQ(call_.timing.steps()[1].first, "rails");
}

TEST_F(ReleaseReportTest, ReportsNothingWithoutGrantOrForFailedStart) {
  by_ = Releaser::kPoststop;
  ASSERT_TRUE(ledger_.leave(web_, web_.key).has_value());
  EXPECT_TRUE(reported().empty());
  by_ = Releaser::kOther;
  ASSERT_TRUE(book(ledger_, web_, {kFirst}, {web_.key, "web", myself()}).has_value());
  ASSERT_TRUE(ledger_.leave(web_, web_.key).has_value());
  EXPECT_TRUE(reported().empty());
}

TEST_F(ReleaseReportTest, ReportsContainerThatLeavesPod) {
  const Owner pod = living_pod();
  book_user(pod, kFirst, {web_.key, "web", myself()});
  by_ = Releaser::kPoststop;
  ASSERT_TRUE(ledger_.leave(web_, web_.key).has_value());
  ASSERT_TRUE(ledger_.leave(pod, web_.key).has_value());
  expect_one("left container=web key=" + pod.key + " netns=/proc/self/ns/net", "hcas=mlx5_0", "");
}

TEST_F(ReleaseReportTest, ReportsEndOfContainerAndNamespace) {
  book_user(web_, kFirst, {web_.key, "web", dead_process()});
  ASSERT_TRUE(book(ledger_, db_, {kFirst}, {db_.key, "db", myself()}).has_value());
  expect_one("returned container=web key=" + web_.key, "reason=container-gone", "container-gone");
  const Owner pod = make_pod();
  book_user(pod, kSecond, {web_.key, "web", dead_process()});
  ASSERT_TRUE(book(ledger_, db_, {kSecond}, {db_.key, "db", myself()}).has_value());
  expect_one("returned container=web key=" + pod.key + " netns=" + pod.netns->path, "reason=namespace-gone",
             "namespace-gone");
}

TEST_F(ReleaseReportTest, ReportsRecover) {
  by_ = Releaser::kRecover;
  const Owner pod = make_pod();
  book_user(pod, kFirst, {web_.key, "web", dead_process()});
  ASSERT_TRUE(ledger_.recover().has_value());
  expect_one("returned container=web", "reason=recover", "recover");
}

TEST_F(ReleaseReportTest, ReportsKilledStart) {
  const auto book_both = [&] {
    const auto ledger = Ledger::open(path_);
    return ledger && book(*ledger, web_, {kFirst, kSecond}, {web_.key, "web", myself()}) ? 0 : 1;
  };
  ASSERT_EQ(in_child(book_both), 0);
  ASSERT_TRUE(ledger_.repair_pending().has_value());
  expect_one("returned container=web", "reason=interrupted hcas=mlx5_0,mlx5_1", "interrupted");
}

}  // namespace
}  // namespace hook
