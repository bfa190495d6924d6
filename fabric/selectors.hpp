// How people name HCAs and ports: rdma-init's --hca, and what a container asks of rdma-hook.
//
//   LIST     = ["^"] SELECTOR *("," SELECTOR)        "^": all but these
//   SELECTOR = NAME [":" PORT] | "netdev:" NAME | "pci:" ADDRESS | "guid:" GUID
//            | "index:" N | "rail:" N | "gpu"        only where a whole node is known
//
// Names are exact; '*' in any of them is a glob.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"

namespace fabric {

struct Hca;
struct Port;

struct Selector {
  enum class Kind { kName, kNetdev, kPci, kGuid, kIndex, kRail, kGpu };
  Kind kind = Kind::kName;
  std::string pattern;
  std::optional<unsigned> port;  // kName only
  unsigned number = 0;           // kIndex, kRail
};

struct SelectorList {
  bool exclude = false;
  std::vector<Selector> selectors;
  std::string text;  // as given
};

// kPorts: index:, rail: and gpu are refused, because a container does not know the node's order of HCAs.
enum class SelectorScope { kPorts, kNode };

// Errors: an empty list or entry, an unknown prefix, a port that is not a number from 1.
Result<SelectorList> parse_selectors(std::string_view text, SelectorScope scope = SelectorScope::kPorts);

// Whether the list takes this port. kIndex, kRail and kGpu take none here: only a caller that knows the node's order of
// HCAs can tell. netdevs: every name by which the port's netdev may be meant (its own, its bond's, the one that has its
// address).
bool selects(const SelectorList& list, const Hca& hca, const Port& port, const std::vector<std::string>& netdevs);

}  // namespace fabric
