#include "hook/plan/terms.hpp"

#include <algorithm>

#include "fabric/text.hpp"
#include "hook/request/request_parsers.hpp"

namespace hook {
namespace {

using fabric::make_error;
using fabric::Result;

// No container has a use for more.
constexpr unsigned kNoBound = kMaxCount;

struct GidSpace {
  unsigned slots = 0;
  unsigned used = 0;
  unsigned per_child = 2;
};

// nullopt: not known, or no RoCE port. The fullest of several ports counts: a child may be of either.
std::optional<GidSpace> gid_space(const fabric::Hca& hca) {
  std::optional<GidSpace> least;
  for (const fabric::Port& port : hca.ports) {
    if (!port.is_ethernet() || !port.gid_tbl_len || !port.gids_complete || port.gids_error) continue;
    GidSpace space{*port.gid_tbl_len, std::min(static_cast<unsigned>(port.gids.size()), *port.gid_tbl_len), 2};
    const auto has_type = [](const fabric::GidEntry& gid) {
      return gid.type && std::holds_alternative<std::string>(*gid.type) && !gid.is_v2();
    };
    if (std::any_of(port.gids.begin(), port.gids.end(), has_type)) space.per_child = 4;
    if (!least || (space.slots - space.used) / space.per_child < (least->slots - least->used) / least->per_child) {
      least = space;
    }
  }
  return least;
}

// The tighter bound stays, with its reason.
void bound(Room& room, unsigned units, std::string why, bool held) {
  if (units < room.units) room = {units, std::move(why), held};
}

}  // namespace

Result<Terms> terms_for(const NodeHca& node, const Request& request, const Config& config) {
  Terms terms;
  const auto& network = request.network ? request.network : node.pool->network;
  if (network) {
    const auto found = config.networks.find(*network);
    if (found == config.networks.end()) {
      fabric::Error error = make_error("config.json has no network `{}`", fabric::printable(*network));
      error.hint = "add it to \"networks\"";
      return error;
    }
    terms.network = &found->second;
  }
  const auto& modes = node.pool->modes;
  terms.mode = request.mode                           ? *request.mode
               : terms.network && terms.network->mode ? *terms.network->mode
                                                      : modes.front();
  if (std::find(modes.begin(), modes.end(), terms.mode) == modes.end()) {
    std::vector<std::string> allowed;
    allowed.reserve(modes.size());
    for (const Mode mode : modes)
      allowed.emplace_back(to_string(mode));
    fabric::Error error = make_error("`{}`: pool `{}` does not allow {}", fabric::printable(node.name()),
                                     node.pool->name, to_string(terms.mode));
    error.hint = "it allows " + fabric::join(allowed, ", ");
    return error;
  }
  const auto limit = node.pool->limits.find(terms.mode);
  if (limit != node.pool->limits.end()) terms.limit = limit->second;
  return terms;
}

Room room_for(const NodeHca& node, const Terms& terms, const Holdings& holdings) {
  const auto found = holdings.find(node.name());
  const Holding holding = found == holdings.end() ? Holding{} : found->second;
  const bool multi = terms.mode == Mode::kSharedMulti;
  const unsigned own = holding.own ? std::max(holding.own_units, 1U) : 0;
  Room room{multi ? kNoBound : 1, {}, false};
  if (holding.exclusive_holder) bound(room, 0, "is held by " + fabric::printable(*holding.exclusive_holder), true);
  if (terms.mode == Mode::kExclusive && holding.others > 0) {
    bound(room, 0, fmt::format("is shared by {} others", holding.others), true);
  }
  if (terms.limit) {
    bound(room, *terms.limit - std::min(*terms.limit, holding.others),
          fmt::format("has {} of {} places taken in {}", holding.others, *terms.limit, to_string(terms.mode)), true);
  }
  if (multi) {
    if (const auto space = gid_space(*node.hca)) {
      const unsigned free = space->slots - space->used;
      bound(room, own + free / space->per_child,
            fmt::format("has {} of {} GID slots free, a child netdev takes {}", free, space->slots, space->per_child),
            false);
    }
  }
  // What the container, or its pod, has already it keeps.
  if (room.units < own) room = {own, room.why, room.held};
  return room;
}

}  // namespace hook
