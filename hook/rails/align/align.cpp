#include "hook/rails/align/align.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>

#include "fabric/inventory.hpp"

namespace hook {
namespace {

constexpr unsigned kMostPlaceholders = 256;
constexpr unsigned kOutOfReach = std::numeric_limits<unsigned>::max();

// The GID indices to which placeholder addresses can bring the v2 GID of a rail.
struct Reach {
  unsigned from = 0;
  // fill[i]: number of placeholders that bring the GID to index i; 0: the GID has index i now; kOutOfReach: impossible.
  std::vector<unsigned> fill;
};

unsigned taken_slots(const GidTable& table) {
  return static_cast<unsigned>(table.slots.size());
}

Result<unsigned> current_index(const AlignRail& rail) {
  const auto is_own = [&](const GidSlot& slot) { return slot.v2 && slot.gid == rail.address; };
  const auto& slots = rail.table.slots;
  const auto own = std::ranges::find_if(slots, is_own);
  if (own == slots.end() || own->index >= rail.table.read) {
    return Error{
        fmt::format("cannot align `{}`: its address {} has no RoCE v2 GID in the first {} slots of the GID table",
                    rail.name, fabric::to_string(rail.address), rail.table.read),
        0, "check that the netdev is up and that the GID table of its RoCE port has a free slot"};
  }
  if (std::any_of(own + 1, slots.end(), is_own))
    return Error{fmt::format("cannot align `{}`: its address {} is in the GID table twice", rail.name,
                             fabric::to_string(rail.address)),
                 0, "remove the same address from the other netdev of this port"};
  return own->index;
}

// Computes for each index how many placeholders bring the v2 GID of the address to this index, if the address is
// removed and added again. The kernel puts each new GID into the first free slot. Each placeholder takes as many free
// slots as the port has GID types. The address replaces the last placeholder, and its v2 GID gets the last of these
// slots.
Result<Reach> reach_of(const AlignRail& rail, unsigned max_placeholders) {
  Reach reach{TRY(current_index(rail)), std::vector<unsigned>(rail.table.read, kOutOfReach)};
  std::vector<bool> is_free(rail.table.read, true);
  for (const GidSlot& slot : rail.table.slots)
    if (slot.index < rail.table.read && slot.gid != rail.address) is_free[slot.index] = false;
  const unsigned types = gid_types(rail.table);
  unsigned passed = 0;
  // The loop starts behind the first slots, one for each GID type: the kernel reserves them for the port's own GIDs,
  // even while they are empty.
  const unsigned end = std::min(rail.table.read, fabric::kUsableGids);
  for (unsigned index = types; index < end && passed / types < max_placeholders; ++index) {
    if (!is_free[index]) continue;
    if (passed % types == types - 1) reach.fill[index] = passed / types + 1;
    ++passed;
  }
  if (reach.from < end) reach.fill[reach.from] = 0;
  return reach;
}

// Returns true if the slots that were read of both tables are equal and at least one is in use. Two such tables are the
// table of one port, because every port has its own link-local GIDs.
bool is_one_port(const GidTable& left, const GidTable& right) {
  const unsigned read = std::min(left.read, right.read);
  const auto end = [&](const GidTable& table) {
    return std::ranges::find_if(table.slots, [&](const GidSlot& slot) { return slot.index >= read; });
  };
  return end(left) != left.slots.begin() && std::equal(left.slots.begin(), end(left), right.slots.begin(), end(right));
}

Result<void> check_ports(const std::vector<AlignRail>& rails) {
  for (std::size_t i = 0; i < rails.size(); ++i) {
    for (std::size_t j = i + 1; j < rails.size(); ++j) {
      if (rails[i].address == rails[j].address || !is_one_port(rails[i].table, rails[j].table)) continue;
      return Error{
          .message = fmt::format("cannot align `{}` and `{}`: they are on one port, and only one GID of a port "
                                 "can have an index",
                                 rails[i].name, rails[j].name),
          .hint = "request one child of each HCA, or set \"align_gids\": false for this network"};
    }
  }
  return {};
}

// Returns the lowest index that all rails can reach. For each index the function counts the rails that can reach it, so
// that one pass over each table is enough.
std::optional<unsigned> lowest_common(const std::vector<Reach>& reaches) {
  std::vector<std::size_t> rails_at;
  for (const Reach& reach : reaches) {
    if (rails_at.size() < reach.fill.size()) rails_at.resize(reach.fill.size());
    for (std::size_t index = 0; index < reach.fill.size(); ++index)
      rails_at[index] += reach.fill[index] != kOutOfReach;
  }
  const auto found = std::ranges::find(rails_at, reaches.size());
  if (found == rails_at.end()) return std::nullopt;
  return static_cast<unsigned>(found - rails_at.begin());
}

Error no_common_index(const std::vector<AlignRail>& rails, unsigned max_placeholders) {
  // Compares the used fractions of two tables. Multiplies instead of dividing, because integer division would round.
  const auto more_taken = [](const AlignRail& left, const AlignRail& right) {
    return taken_slots(left.table) * std::size_t{std::max(right.table.length, 1U)} <
           taken_slots(right.table) * std::size_t{std::max(left.table.length, 1U)};
  };
  const AlignRail& fullest = *std::ranges::max_element(rails, more_taken);
  return Error{
      fmt::format("cannot move {} rails to one GID index: with up to {} placeholder addresses for each "
                  "rail, no index is free for all rails; the GID table of `{}` is the fullest: {} "
                  "of {} slots are in use",
                  rails.size(), max_placeholders, fullest.name, taken_slots(fullest.table), fullest.table.length),
      ENOSPC, "let fewer containers share these HCAs"};
}

}  // namespace

std::optional<unsigned> v2_index(const GidTable& table, const fabric::Address& address) {
  const auto found =
      std::ranges::find_if(table.slots, [&](const GidSlot& slot) { return slot.v2 && slot.gid == address; });
  return found == table.slots.end() ? std::nullopt : std::optional(found->index);
}

// A port with both types always has a v1 GID, because the kernel makes the link-local GID in each type of the port. A
// table without a v1 GID therefore belongs to a port with v2 only.
unsigned gid_types(const GidTable& table) {
  return std::ranges::any_of(table.slots, [](const GidSlot& slot) { return !slot.v2; }) ? 2 : 1;
}

Result<Alignment> plan_alignment(const std::vector<AlignRail>& rails, unsigned max_placeholders) {
  if (rails.empty()) return Alignment{};
  max_placeholders = std::min(max_placeholders, kMostPlaceholders);
  std::vector<Reach> reaches;
  reaches.reserve(rails.size());
  for (const AlignRail& rail : rails)
    reaches.push_back(TRY(reach_of(rail, max_placeholders)));
  Alignment alignment{reaches.front().from, {}};
  const auto agrees = [&](const Reach& reach) {
    return reach.from == alignment.index && reach.from < fabric::kUsableGids;
  };
  if (std::ranges::all_of(reaches, agrees)) return alignment;
  TRY_VOID(check_ports(rails));
  const auto index = lowest_common(reaches);
  if (!index) return no_common_index(rails, max_placeholders);
  alignment.index = *index;
  for (std::size_t i = 0; i < rails.size(); ++i) {
    if (agrees(reaches[i])) continue;
    const unsigned fill = reaches[i].fill[*index];
    // Only the last placeholder is removed before the address is added: it is in the target slot.
    alignment.moves.push_back({i, reaches[i].from, fill, {fill - 1}});
  }
  return alignment;
}

std::string to_string(const Alignment& alignment, const std::vector<AlignRail>& rails) {
  std::string text;
  for (const AlignMove& move : alignment.moves) {
    text += text.empty() ? fmt::format("aligned rails at GID index {}: ", alignment.index) : ", ";
    text += fmt::format("{} {}->{}", rails[move.rail].name, move.from, alignment.index);
  }
  return text;
}

fabric::Address placeholder(unsigned n) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, static_cast<std::uint8_t>(n)}};
}

}  // namespace hook
