#include "init/ping/report.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "init/ping/schedule.hpp"

namespace {

using namespace init::ping;
using Json = nlohmann::ordered_json;

// An outcome without failures: every member is alone on its node.
Outcome outcome_of(unsigned members, unsigned rails = 2) {
  Outcome outcome;
  outcome.size = members;
  outcome.rails = rails;
  outcome.seconds = 0.4;
  for (unsigned i = 0; i < members; ++i) {
    Member& member = outcome.members.emplace_back();
    member.rank = i;
    member.host = "host-" + std::to_string(i);
    for (unsigned rail = 0; rail < rails; ++rail) {
      Rail& port = member.rails.emplace_back();
      port.device = "mlx5_" + std::to_string(rail);
      port.rate_mbps = 400000;
      port.netdev = "rdma" + std::to_string(rail);
      port.gid_index = 3;
      port.gid = *fabric::parse_address("10.0.0.2");
      port.mtu = 4096;
    }
  }
  outcome.cells.resize(std::size_t{members} * (members - 1) / 2 * rails, Layer::kGood);
  return outcome;
}

void fail_pair(Outcome& outcome, std::size_t first, std::size_t second, unsigned rail, Layer layer) {
  outcome.cells[outcome.cell_of(first, second, rail)] = layer;
  if (layer == Layer::kUntested) return;
  outcome.failures.push_back({first, second, rail, rail, {layer, "no answer"}, Side::kSecond});
}

// The rail of one member fails with two members and is not tested with the other members.
void break_rail(Outcome& outcome, std::size_t member, unsigned rail, Layer layer) {
  std::size_t failures = 0;
  for (std::size_t other = 0; other < outcome.members.size(); ++other) {
    if (other == member) continue;
    const auto [first, second] = std::minmax(member, other);
    fail_pair(outcome, first, second, rail, failures++ < 2 ? layer : Layer::kUntested);
  }
}

Cause cause_of(unsigned rank, unsigned rail, Layer layer, std::string message) {
  Cause cause;
  cause.kind = Cause::Kind::kRailOfRank;
  cause.rank = rank;
  cause.rail = rail;
  cause.layer = layer;
  cause.failed = 2;
  cause.tested = 3;
  cause.message = std::move(message);
  cause.remedy = std::string(about(layer).remedy);
  return cause;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    widest = std::max(widest, end - at);
    at = end + 1;
  }
  return widest;
}

TEST(TextReport, PrintsMatrixOfFewGoodRanks) {
  EXPECT_EQ(text_report(outcome_of(4), {}),
            "rdma-ping: good: 4 ranks, 2 rails, 12 tests in 0.4 s\n"
            "    0 1 2 3\n"
            "  0   . . .\n"
            "  1 .   . .\n"
            "  2 . .   .\n"
            "  3 . . .\n"
            "  . good\n");
}

TEST(TextReport, PrintsOneLineForManyGoodRanks) {
  EXPECT_EQ(text_report(outcome_of(9, 1), {}), "rdma-ping: good: 9 ranks, 1 rail, 36 tests in 0.4 s\n");
}

// 200 ranks, each of which meets 16 peers.
Outcome sparse_outcome() {
  Outcome outcome = outcome_of(200, 1);
  std::vector<Pair> all;
  const Schedule schedule(200, false, 1);
  for (std::size_t round = 0; round < schedule.rounds(); ++round)
    for (const Pair& pair : schedule.pairs(round))
      all.push_back(pair);
  outcome.cells.clear();
  outcome.add_pairs(all);
  outcome.cells.assign(outcome.cells.size(), Layer::kGood);
  return outcome;
}

TEST(TextReport, PrintsWhatSparseScheduleLeavesOut) {
  EXPECT_EQ(text_report(sparse_outcome(), {}),
            "rdma-ping: good: 200 ranks, 1 rail, 1600 tests in 0.4 s\n"
            "  tested 16 of 199 peers for each rail; one bad pair is found with a probability\n"
            "  of 8.0 %; --pairs all tests every pair\n");
}

TEST(TextReport, SparseOneNamesTestedPairsOnly) {
  Outcome outcome = sparse_outcome();
  const auto [first, second] = outcome.pairs[700];
  fail_pair(outcome, first, second, 0, Layer::kRetry);
  const std::string text = text_report(outcome, {cause_of(first, 0, Layer::kRetry, "rank")});
  EXPECT_NE(text.find("1599 of 1600 tests are good\n"), std::string::npos) << text;
  EXPECT_NE(text.find(fmt::format("rank {}:", second)), std::string::npos) << text;
  EXPECT_EQ(text.find("untested"), std::string::npos) << text;
}

TEST(TextReport, CountsNodesIfRanksWait) {
  Outcome outcome = outcome_of(4);
  outcome.size = 32;
  EXPECT_TRUE(
      text_report(outcome, {}).starts_with("rdma-ping: good: 32 ranks on 4 nodes, 2 rails, 12 tests in 0.4 s\n"));
}

TEST(TextReport, NamesCauseAndRemedyBeforeMatrix) {
  Outcome outcome = outcome_of(4);
  break_rail(outcome, 2, 1, Layer::kMemlock);
  EXPECT_EQ(text_report(outcome, {cause_of(2, 1, Layer::kMemlock, "rank 2 (host-2): 64 KiB of locked memory")}),
            "rdma-ping: bad: 1 cause; 9 of 12 tests are good, 1 untested\n"
            "  rank 2 (host-2): 64 KiB of locked memory\n"
            "    remedy: set the limit to unlimited: `--ulimit memlock=-1`,\n"
            "    LimitMEMLOCK=infinity of the engine or slurmd, or CAP_IPC_LOCK\n"
            "    0 1 2 3\n"
            "  0   . M .\n"
            "  1 .   M .\n"
            "  2 M M   ?\n"
            "  3 . . ?\n"
            "  . good, M memlock, ? untested\n");
}

TEST(TextReport, ShowsFirstFailedLayerOfTheRails) {
  Outcome outcome = outcome_of(2, 3);
  fail_pair(outcome, 0, 1, 0, Layer::kUntested);
  fail_pair(outcome, 0, 1, 1, Layer::kRetry);
  fail_pair(outcome, 0, 1, 2, Layer::kGid);
  EXPECT_NE(text_report(outcome, {}).find("  0   G\n  1 G\n  G gid\n"), std::string::npos);
}

TEST(TextReport, IsBadWithoutCauseIfATestIsMissing) {
  Outcome outcome = outcome_of(3, 1);
  fail_pair(outcome, 0, 2, 0, Layer::kUntested);
  outcome.out_of_time = true;
  EXPECT_TRUE(text_report(outcome, {})
                  .starts_with("rdma-ping: bad: 0 causes; 2 of 3 tests are good, 1 untested; out of time\n"));
}

TEST(TextReport, IsBadIfRanksDiffer) {
  Outcome outcome = outcome_of(2);
  outcome.cells.clear();
  outcome.unequal = {"rank 1 (host-1) has 1 x RoCE 400 Gb/s"};
  EXPECT_EQ(text_report(outcome, {}), "rdma-ping: bad: 0 causes; nothing was tested\n");
}

TEST(TextReport, IsBadWithoutRails) {
  EXPECT_EQ(text_report(outcome_of(2, 0), {}), "rdma-ping: no rank has an HCA port that NCCL uses\n");
}

TEST(TextReport, FitsInTerminalWith64Ranks) {
  Outcome outcome = outcome_of(64);
  break_rail(outcome, 63, 0, Layer::kRetry);
  for (Member& member : outcome.members)
    member.rank += 1000;
  const std::string text = text_report(outcome, {});
  EXPECT_LE(widest_line(text), 80U);
  EXPECT_EQ(count(text, "X"), 5U);  // two pairs in both halves, and the legend
  EXPECT_NE(text.find("       1111"), std::string::npos);
}

TEST(TextReport, ShowsOnlyRowsWithFailuresOfManyRanks) {
  Outcome outcome = outcome_of(200);
  break_rail(outcome, 17, 1, Layer::kRetry);
  fail_pair(outcome, 40, 50, 0, Layer::kGid);
  EXPECT_EQ(text_report(outcome, {}),
            "rdma-ping: bad: 0 causes; 39600 of 39800 tests are good, 197 untested\n"
            "ranks with failures, and the ranks that they do not reach on each rail:\n"
            "  rank 0:    X 17\n"
            "  rank 1:    X 17\n"
            "  rank 17:   X 0-1; ? 2-16, 18-199\n"
            "  rank 40:   G 50; ? 17\n"
            "  rank 50:   G 40; ? 17\n"
            "  G gid, X retry, ? untested\n"
            "failures per rank:\n"
            "            0  195 ranks   #######################################\n"
            "            1  4 ranks     #\n"
            "          2-3  1 rank      #\n");
}

TEST(TextReport, LimitsRowsAndRangesOfManyRanks) {
  Outcome outcome = outcome_of(1024, 1);
  for (std::size_t i = 0; i + 2 < 1024; i += 2)
    fail_pair(outcome, i, 1023, 0, Layer::kRetry);
  const std::string text = text_report(outcome, {});
  EXPECT_NE(text.find("  and 480 more with fewer failures\n"), std::string::npos) << text;
  EXPECT_NE(text.find("20, 22, and 499 more\n"), std::string::npos) << text;
  EXPECT_LE(std::ranges::count(text, '\n'), 45);
  EXPECT_LE(widest_line(text), 80U);
}

TEST(TextReport, LimitsCauses) {
  const std::vector<Cause> causes(53, cause_of(1, 0, Layer::kVerbs, "rank 1"));
  const std::string text = text_report(outcome_of(2), causes);
  EXPECT_EQ(count(text, "\n  rank 1\n"), 50U);
  EXPECT_NE(text.find("  and 3 more\n"), std::string::npos);
}

TEST(TextReport, NamesSlowestPairs) {
  Outcome outcome = outcome_of(8, 1);
  outcome.gbps.assign(outcome.cells.size(), 100);
  for (std::size_t other = 1; other < 8; ++other)
    outcome.gbps[outcome.cell_of(0, other, 0)] = static_cast<float>(10 * other);
  const std::string text = text_report(outcome, {});
  EXPECT_NE(text.find("bandwidth: median 100.0 Gb/s, 7 pairs below 80 % of it\n"
                      "  10.0 Gb/s: rank 0 (host-0) and rank 1 (host-1), rail 0\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(count(text, "Gb/s: rank"), 5U);
}

TEST(TextReport, ShowsCrossedRailsAndStrangersAsInformation) {
  Outcome outcome = outcome_of(9, 2);
  outcome.crossed_tested = 36;
  outcome.crossed.resize(12);
  outcome.strangers = {"refused 10.9.9.9: it has the token of another job"};
  EXPECT_EQ(text_report(outcome, {}),
            "rdma-ping: good: 9 ranks, 2 rails, 72 tests in 0.4 s\n"
            "  refused 10.9.9.9: it has the token of another job\n"
            "crossed rails: 36 tests, 24 reach: information only\n");
}

TEST(TextReport, NamesCrossNicIfNoCrossedRailReaches) {
  Outcome outcome = outcome_of(9, 2);
  outcome.crossed_tested = 1200;
  outcome.crossed.resize(1000);
  outcome.crossed_dropped = 200;
  EXPECT_EQ(text_report(outcome, {}),
            "rdma-ping: good: 9 ranks, 2 rails, 72 tests in 0.4 s\n"
            "crossed rails: 1200 tests, 0 reach: information only\n"
            "    remedy: set NCCL_CROSS_NIC=0 on all ranks, because NCCL may otherwise\n"
            "    connect two different rails\n");
  EXPECT_EQ(Json::parse(json_report(outcome, {}))["crossed"]["failed"], 1200);
}

constexpr const char* kHostile = "a\x1b[31m\nb\xff<script>&\"\xEF\xBF\xBE";

TEST(TextReport, ReplacesControlCharacters) {
  Outcome outcome = outcome_of(2, 1);
  outcome.strangers = {kHostile};
  outcome.members[0].host = kHostile;
  outcome.gbps = {1};
  Cause cause = cause_of(1, 0, Layer::kVerbs, kHostile);
  cause.remedy = kHostile;
  const std::string text = text_report(outcome, {cause});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\xff'), std::string::npos);
  EXPECT_EQ(count(text, "a?[31m?b?"), 3U);
}

TEST(JsonReport, DescribesGoodOutcome) {
  Outcome outcome = outcome_of(2, 1);
  outcome.members[0].waiting = {5, 6};
  outcome.members[0].unused = {"mlx5_9: down"};
  const std::string text = json_report(outcome, {});
  EXPECT_TRUE(text.ends_with("}\n"));
  const Json json = Json::parse(text);
  EXPECT_EQ(json["result"], "good");
  EXPECT_EQ(json["seconds"], 0.4);
  EXPECT_EQ(json["tests"].dump(), R"({"good":1,"failed":0,"untested":0})");
  EXPECT_EQ(json["members"][0].dump(),
            R"({"rank":0,"host":"host-0","waiting":[5,6],"rails":[{"device":"mlx5_0","port":1,"link_layer":"Ethernet",)"
            R"("rate_gbps":400,"netdev":"rdma0","gid_index":3,"gid":"0000:0000:0000:0000:0000:ffff:0a00:0002",)"
            R"("mtu":4096,"pkey":null}],"unused":["mlx5_9: down"]})");
  EXPECT_EQ(json["crossed"].dump(), R"({"tested":0,"failed":0,"remedy":null})");
  EXPECT_FALSE(json.contains("gbps"));
}

TEST(JsonReport, NamesCausesAndFailures) {
  Outcome outcome = outcome_of(4, 1);
  fail_pair(outcome, 1, 3, 0, Layer::kGid);
  Cause link;
  link.rank = 1;
  link.other = 3;
  link.message = "m";
  const Json json = Json::parse(json_report(outcome, {cause_of(3, 0, Layer::kGid, "no GID"), link}));
  EXPECT_EQ(json["result"], "bad");
  EXPECT_EQ(json["causes"][0]["kind"], "rail_of_rank");
  EXPECT_EQ(json["causes"][0]["layer"], "gid");
  EXPECT_EQ(
      json["causes"][1].dump(),
      R"({"kind":"link","rank":1,"other":3,"rail":null,"rails":[],"layer":"good","failed":0,"tested":0,"message":"m",)"
      R"("remedy":null})");
  EXPECT_EQ(json["failures"].dump(),
            R"([{"ranks":[1,3],"rails":[0,0],"layer":"gid","detail":"no answer","culprit":3}])");
}

TEST(JsonReport, ListsRanksOfGroup) {
  Cause group;
  group.kind = Cause::Kind::kGroup;
  group.rail = 1;
  group.ranks = {2, 3};
  group.unreached = {0};
  const Json json = Json::parse(json_report(outcome_of(4, 2), {group}));
  EXPECT_EQ(
      json["causes"][0].dump(),
      R"({"kind":"group","rank":null,"other":null,"rail":1,"rails":[],"layer":"good","failed":0,"tested":0,"message":"",)"
      R"("remedy":null,"ranks":[2,3],"unreached":[0]})");
}

TEST(JsonReport, LimitsFailures) {
  Outcome outcome = outcome_of(64, 1);
  for (std::size_t second = 1; second < 64; ++second) {
    for (std::size_t first = 0; first < second; ++first)
      fail_pair(outcome, first, second, 0, Layer::kRetry);
  }
  const Json json = Json::parse(json_report(outcome, {}));
  EXPECT_EQ(json["failures"].size(), 1000U);
  EXPECT_EQ(json["tests"]["failed"], 2016);
}

TEST(JsonReport, NamesSlowPairsInDecimalDigits) {
  Outcome outcome = outcome_of(3, 1);
  outcome.gbps = {92.3F, 12.3F, 92.3F};
  const Json json = Json::parse(json_report(outcome, {}));
  EXPECT_EQ(json["gbps"].dump(), R"({"median":92.3,"slow":[{"ranks":[0,2],"rail":0,"gbps":12.3}]})");
}

TEST(JsonReport, ReplacesInvalidBytes) {
  Outcome outcome = outcome_of(2, 1);
  outcome.members[0].host = kHostile;
  const std::string text = json_report(outcome, {});
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
  EXPECT_TRUE(Json::parse(text)["members"][0]["host"].get<std::string>().starts_with("a\x1b[31m\nb\xEF\xBF\xBD<"));
}

// Returns the first error of an XML text without comments, CDATA and DTD; empty if it is well-formed.
std::string xml_error(std::string_view text) {
  std::vector<std::string_view> open;
  while (!text.empty()) {
    const std::size_t tag = std::min(text.find('<'), text.size());
    for (std::size_t at = 0; at < tag; ++at) {
      const std::string_view rest = text.substr(at, tag - at);
      const bool is_reference = rest.starts_with("&amp;") || rest.starts_with("&lt;") || rest.starts_with("&gt;");
      if (rest[0] == '>' || (rest[0] == '&' && !is_reference)) return "not escaped: " + std::string(rest.substr(0, 20));
      if (static_cast<unsigned char>(rest[0]) < ' ' && rest[0] != '\n') return "control character";
      if (rest.starts_with("\xEF\xBF\xBE") || rest[0] == '\xff') return "not a character of XML";
    }
    if (tag == text.size()) break;
    const std::size_t end = text.find('>', tag);
    if (end == std::string_view::npos) return "tag without end";
    const std::string_view inner = text.substr(tag + 1, end - tag - 1);
    if (inner.find_first_of("<&") != std::string_view::npos) return "not escaped in a tag: " + std::string(inner);
    if (std::ranges::count(inner, '"') % 2 != 0) return "quote: " + std::string(inner);
    const std::string_view name = inner.substr(0, inner.find_first_of(" \n/", 1));
    if (inner.starts_with('/')) {
      if (open.empty() || open.back() != inner.substr(1)) return "closes another tag: " + std::string(inner);
      open.pop_back();
    } else if (!inner.ends_with('/')) {
      open.push_back(name);
    }
    text.remove_prefix(end + 1);
  }
  return open.empty() ? "" : "not closed: " + std::string(open.back());
}

TEST(SvgReport, CheckOfXmlFindsErrors) {
  EXPECT_EQ(xml_error("<a><b/>x</a>\n"), "");
  EXPECT_EQ(xml_error("<a>"), "not closed: a");
  EXPECT_EQ(xml_error("<a></b>"), "closes another tag: /b");
  EXPECT_EQ(xml_error("<a>&x</a>"), "not escaped: &x");
}

TEST(SvgReport, IsWellFormedWithAnyNumberOfRanks) {
  for (const unsigned members : {0U, 1U, 2U, 3U, 63U, 64U, 65U, 200U, 769U}) {
    Outcome outcome = members == 0 ? Outcome() : outcome_of(members, 1);
    if (members > 1) break_rail(outcome, members / 2, 0, Layer::kNeighbour);
    const std::string svg = svg_report(outcome, {cause_of(members / 2, 0, Layer::kNeighbour, "rank <1>")});
    EXPECT_EQ(xml_error(svg), "") << members;
  }
}

TEST(SvgReport, EscapesHostileTexts) {
  Cause cause = cause_of(0, 0, Layer::kVerbs, kHostile);
  cause.remedy = kHostile;
  const std::string svg = svg_report(outcome_of(2, 1), {cause});
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_EQ(count(svg, "a?[31m?b?&lt;script&gt;&amp;\"?"), 2U);
}

TEST(SvgReport, CutsLongTextBetweenCharacters) {
  std::string message(1, 'x');
  for (int i = 0; i < 200; ++i)
    message += "ä";
  const std::string svg = svg_report(outcome_of(2, 1), {cause_of(0, 0, Layer::kVerbs, message)});
  EXPECT_NE(svg.find("ää...</text>"), std::string::npos);
}

TEST(SvgReport, IsSmallIfAllIsGood) {
  const std::string svg = svg_report(outcome_of(1024, 1), {});
  EXPECT_LT(svg.size(), 20'000U);
}

TEST(SvgReport, SparseOneDrawsItsTestsOnly) {
  Outcome outcome = sparse_outcome();
  const std::string good = svg_report(outcome, {});
  EXPECT_EQ(xml_error(good), "");
  EXPECT_EQ(good.find("d=\"M0 100h200\""), std::string::npos) << "no background";
  EXPECT_GT(count(good, "h1"), 1000U);
  EXPECT_LT(good.size(), 60'000U);
}

TEST(SvgReport, DrawsRunsOfEqualCellsOnce) {
  Outcome outcome = outcome_of(5, 1);
  outcome.cells.assign(outcome.cells.size(), Layer::kRetry);
  fail_pair(outcome, 0, 2, 0, Layer::kGood);
  EXPECT_NE(svg_report(outcome, {}).find("d=\"M1 0.5h1m1 0h2M2 1.5h3M3 2.5h2M4 3.5h1\""), std::string::npos)
      << svg_report(outcome, {});
}

TEST(SvgReport, IsBoundedIfNoTwoCellsAreEqual) {
  Outcome outcome = outcome_of(1024, 1);
  for (std::size_t i = 0; i < outcome.cells.size(); ++i)
    outcome.cells[i] = static_cast<Layer>(i * 7 % 13 + 1);
  EXPECT_LT(svg_report(outcome, {}).size(), 5'000'000U);
}

}  // namespace
