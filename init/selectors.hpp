// The grammar of --hca: which HCAs and ports the operator means.
//
//   LIST     = ["^"] SELECTOR *("," SELECTOR)        "^": all but these
//   SELECTOR = NAME [":" PORT] | "netdev:" NAME | "pci:" ADDRESS | "guid:" GUID
//
// Names are exact; '*' in any of them is a glob.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"

namespace init {

struct Selector {
  enum class Kind { kName, kNetdev, kPci, kGuid };
  Kind kind = Kind::kName;
  std::string pattern;
  std::optional<unsigned> port;  // kName only
};

struct SelectorList {
  bool exclude = false;
  std::vector<Selector> selectors;
  std::string text;  // as given
};

// Errors: an empty list or entry, an unknown prefix, a port that is not a number from 1.
fabric::Result<SelectorList> parse_selectors(std::string_view text);

// netdevs: every name by which the port's netdev may be meant (its own, its bond's, the one that has its address).
bool selects(const SelectorList& list, const fabric::Hca& hca, const fabric::Port& port,
             const std::vector<std::string>& netdevs);

}  // namespace init
