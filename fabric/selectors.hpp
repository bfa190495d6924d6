// Selectors of HCAs and ports: the syntax of rdma-init's --hca and of requests to rdma-hook.
//
//   LIST     = ["^"] SELECTOR *("," SELECTOR)        "^": all except these
//   SELECTOR = NAME [":" PORT] | "netdev:" NAME | "pci:" ADDRESS | "guid:" GUID
//            | "index:" N | "rail:" N | "gpu"        only with SelectorScope::kNode
//
// A name matches exactly; '*' in it matches any text.
//
// "rails" of config.json has NAME without a port, pci:, guid: and "pf:" NAME: that physical function and its VFs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace fabric {

struct Hca;
struct Port;

struct Selector {
  enum class Kind { kName, kNetdev, kPci, kGuid, kIndex, kRail, kGpu, kPf };
  Kind kind = Kind::kName;
  std::string pattern;
  std::optional<unsigned> port;  // only for kName
  unsigned number = 0;           // only for kIndex and kRail
  friend bool operator==(const Selector&, const Selector&) = default;
};

struct SelectorList {
  bool exclude = false;
  std::vector<Selector> selectors;
  std::string text;  // original text
  friend bool operator==(const SelectorList&, const SelectorList&) = default;
};

// Describe the members for records (base/json/record.hpp, base/packed_record.hpp).
void describe(auto& members, Selector& selector) {
  auto& [kind, pattern, port, number] = selector;
  members("kind", kind);
  members("pattern", pattern);
  members("port", port);
  members("number", number);
}
void describe(auto& members, SelectorList& list) {
  auto& [exclude, selectors, text] = list;
  members("exclude", exclude);
  members("selectors", selectors);
  members("text", text);
}

// Where a list is used. kPorts (rdma-init) refuses index: and rail:, because a container does not know the node's order
// of HCAs, and gpu, which only a request on the node can use.
enum class SelectorScope { kPorts, kNode };

// Parses a list of selectors. Errors: an empty list or entry, a list that starts with `=`, a selector that the scope
// refuses, `index:` or `rail:` without a number, a port that is not a number from 1. An unknown prefix counts as a
// name.
Result<SelectorList> parse_selectors(std::string_view text, SelectorScope scope = SelectorScope::kPorts);

// Parses an entry of "rails" of config.json. Errors: another prefix, a port, a character that no name of an HCA has.
Result<Selector> parse_rail_selector(std::string_view entry);

// Returns true if the list selects this port. kIndex, kRail, kGpu and kPf select no port here: only a caller with the
// node's HCAs can resolve them. netdevs: every name that may denote the port's netdev, such as its own name, the name
// of its bond, and the name of the netdev with the port's address.
bool selects(const SelectorList& list, const Hca& hca, const Port& port, const std::vector<std::string>& netdevs);
bool selects(const Selector& selector, const Hca& hca, const Port& port, const std::vector<std::string>& netdevs);

}  // namespace fabric
