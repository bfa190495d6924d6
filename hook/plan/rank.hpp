// Ranks the candidates of a request with a count, so that only the chosen HCAs have to be read and locked. The ranking
// reads the ledger's index without locks: it only proposes HCAs. Under their locks, the decision checks them again
// (choose.hpp).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/plan/choose.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

struct RankInput {
  const fabric::Inventory& inventory;  // all HCAs of the node, with the facts of ranking_facts()
  const NodeMap& node;                 // the HCAs of the inventory with their pools and rails
  const Request& request;
  const Config& config;
  // Facts about a candidate, which are read only for the candidates that the ranking reaches. holding() returns the
  // grants of other owners in the index; stale grants count. most: where counting may stop.
  std::function<Holding(const std::string& hca, unsigned most)> holding;
  std::function<bool(const std::string& hca)> is_active;  // returns whether a port of the HCA is ACTIVE
  std::map<std::string, unsigned> own = {};  // HCAs of the owner and their units; 0: booked, but not granted
  std::vector<std::string> granted = {};     // HCAs of the device nodes in linux.devices
  std::set<std::string> lost = {};           // HCAs that an earlier attempt could not get
  // Number of HCAs that this call lost to other calls. With each loss, twice as many HCAs count as equally good, so
  // that calls that start at once soon choose different HCAs. The first attempt takes the best.
  unsigned losses = 0;
  unsigned turn = 0;  // selects among equally good HCAs; it should differ between calls that run at once
};

// Returns the number of HCAs if the request is a count that nothing but counts narrows; otherwise nullopt.
std::optional<unsigned> count_of(const Request& request);

// Returns as many HCAs as the request counts: the HCAs that choose() would choose, if the index is right and the HCAs
// are usable. Returns nullopt if the request has no count, too few HCAs look free, or an HCA that is better than a
// returned one looks held: its grant may be stale. The decision must then be made among all candidates. Among equally
// good HCAs, an HCA that looks held comes last.
std::optional<std::vector<std::string>> rank(const RankInput& input);

}  // namespace hook
