#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "init/ping/report.hpp"
#include "init/ping/totals.hpp"

namespace init::ping {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostFailures = 1000;  // a report of 1,024 ranks stays below 1 MB

Json or_null(const auto& value) {
  return value ? Json(*value) : Json();
}

// Returns the number in Gb/s without the digits that a float does not hold.
Json gbps_json(float gbps) {
  return std::round(static_cast<double>(gbps) * 1000) / 1000;
}

Json rail_json(const Rail& rail) {
  return {{"device", rail.device},
          {"port", rail.port},
          {"link_layer", rail.infiniband ? "InfiniBand" : "Ethernet"},
          {"rate_gbps", rail.rate_mbps % 1000 == 0 ? Json(rail.rate_mbps / 1000) : Json(rail.rate_mbps / 1000.0)},
          {"netdev", rail.netdev.empty() ? Json() : Json(rail.netdev)},
          {"gid_index", rail.gid_index},
          {"gid", to_gid_string(rail.gid)},
          {"mtu", rail.mtu},
          {"pkey", rail.pkey == 0 ? Json() : Json(fmt::format("{:#06x}", rail.pkey))}};
}

Json member_json(const Member& member) {
  Json json{{"rank", member.rank}, {"host", member.host}, {"waiting", member.waiting}, {"rails", Json::array()}};
  for (const Rail& rail : member.rails)
    json["rails"].push_back(rail_json(rail));
  json["unused"] = member.unused;
  return json;
}

Json cause_json(const Cause& cause) {
  constexpr std::array kKinds = {"rank",  "cables",       "rail",
                                 "group", "rail_of_rank", "link"};  // words in the order of Cause::Kind
  Json json{{"kind", kKinds[static_cast<std::size_t>(cause.kind)]},
            {"rank", or_null(cause.rank)},
            {"other", or_null(cause.other)},
            {"rail", or_null(cause.rail)},
            {"rails", cause.rails},
            {"layer", about(cause.layer).name},
            {"failed", cause.failed},
            {"tested", cause.tested},
            {"message", cause.message},
            {"remedy", cause.remedy.empty() ? Json() : Json(cause.remedy)}};
  if (cause.kind != Cause::Kind::kGroup) return json;
  json["ranks"] = cause.ranks;
  json["unreached"] = cause.unreached;
  return json;
}

Json failure_json(const Outcome& outcome, const FailedPair& pair) {
  const unsigned first = outcome.members[pair.first].rank;
  const unsigned second = outcome.members[pair.second].rank;
  Json culprit;
  if (pair.culprit != Side::kUnknown) culprit = pair.culprit == Side::kFirst ? first : second;
  return {{"ranks", {first, second}},
          {"rails", {pair.first_rail, pair.second_rail}},
          {"layer", about(pair.failure.layer).name},
          {"detail", pair.failure.detail},
          {"culprit", culprit}};
}

Json bandwidth_json(const Outcome& outcome) {
  Json json{{"median", gbps_json(median_gbps(outcome))}, {"slow", Json::array()}};
  for (const SlowPair& pair : find_slow_pairs(outcome)) {
    if (json["slow"].size() == kMostFailures) break;
    json["slow"].push_back({{"ranks", {outcome.members[pair.first].rank, outcome.members[pair.second].rank}},
                            {"rail", pair.rail},
                            {"gbps", gbps_json(pair.gbps)}});
  }
  return json;
}

}  // namespace

std::string json_report(const Outcome& outcome, const std::vector<Cause>& causes) {
  const Totals totals = count_tests(outcome);
  const std::size_t peers = std::max<std::size_t>(outcome.members.size(), 1) - 1;
  Json json{{"result", is_good(outcome, causes) ? "good" : "bad"},
            {"size", outcome.size},
            {"nodes", outcome.members.size()},
            {"rails", outcome.rails},
            {"seconds", std::round(outcome.seconds * 1000) / 1000},
            {"peers",
             {{"tested", static_cast<std::size_t>(std::round(share_of_pairs(outcome) * static_cast<double>(peers)))},
              {"of", peers},
              {"share", std::round(share_of_pairs(outcome) * 1e6) / 1e6}}},
            {"tests", {{"good", totals.good}, {"failed", totals.failed}, {"untested", totals.untested}}},
            {"members", Json::array()},
            {"absent", outcome.absent},
            {"unequal", outcome.unequal},
            {"strangers", outcome.strangers},
            {"causes", Json::array()},
            {"failures", Json::array()}};
  for (const Member& member : outcome.members)
    json["members"].push_back(member_json(member));
  for (const Cause& cause : causes)
    json["causes"].push_back(cause_json(cause));
  const std::size_t shown = std::min(outcome.failures.size(), kMostFailures);
  for (std::size_t i = 0; i < shown; ++i)
    json["failures"].push_back(failure_json(outcome, outcome.failures[i]));
  const std::string_view remedy = remedy_of_crossed(outcome);
  json["crossed"] = {{"tested", outcome.crossed_tested},
                     {"failed", outcome.crossed_failed()},
                     {"remedy", remedy.empty() ? Json() : Json(remedy)}};
  if (!outcome.gbps.empty()) json["gbps"] = bandwidth_json(outcome);
  // Writes ASCII only: a terminal obeys some characters of other ranks' texts.
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace init::ping
