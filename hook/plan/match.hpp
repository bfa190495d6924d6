// Which HCAs a wish can be about, before it matters who holds them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/pools.hpp"
#include "hook/request/request.hpp"

namespace hook {

// HCAs that one part of the wish names.
struct MatchedGroup {
  std::vector<const NodeHca*> hcas;
  bool any_of_them = false;  // equally near to a GPU: those that are free will do, at least one
};

struct Matched {
  std::vector<MatchedGroup> groups;  // in the order of the wish; an HCA may be in several
  std::optional<unsigned> count;     // so many of them; nullopt: all of them
  std::optional<unsigned> at_most;   // narrowed to so many
  bool is_narrowed = false;          // a list left some out
  std::vector<std::string> warnings;

  std::vector<const NodeHca*> hcas() const;  // of all groups, each once
};

// Errors are refusals: an HCA that does not exist, is in no pool or not in the network's, has no device node; a given
// node that belongs to none; `gpu` without a GPU; nothing left.
fabric::Result<Matched> match(const fabric::Inventory& inventory, const NodeMap& node, const Request& request,
                              const Config& config);

}  // namespace hook
