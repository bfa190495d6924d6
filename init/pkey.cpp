// The P_Key index of the chosen ports. NCCL uses one index for all ports (NCCL_IB_PKEY, 0 if it is not set), and a port
// may have the job's partition at another index.
#include <fmt/core.h>

#include "base/text.hpp"
#include "init/deciding.hpp"

namespace init {
namespace {

constexpr std::string_view kPkey = "NCCL_IB_PKEY";

// An index of the P_Key tables.
struct Place {
  std::size_t index = 0;
  unsigned key = 0;
};

// Returns the key with which the port is a full member, 0 if it is none at the index. 0x8000 is no valid key.
unsigned full_key_at(const fabric::Port& port, std::size_t index) {
  const unsigned key = port.pkey_at(index).value_or(0);
  return key > fabric::kFullMember ? key : 0;
}

std::optional<Place> first_place(const fabric::Port& port) {
  for (std::size_t index = 0; port.pkeys && index < port.pkeys->size(); ++index)
    if (const unsigned key = full_key_at(port, index)) return Place{index, key};
  return std::nullopt;
}

// Returns an index at which all chosen ports are full members with one key: that of the key `meant`, else the first.
std::optional<Place> common_place(const Deciding& d, unsigned meant) {
  const fabric::Port& first = *d.at(d.choice.ports.front()).port;
  std::optional<Place> found;
  for (std::size_t index = 0; first.pkeys && index < first.pkeys->size(); ++index) {
    const unsigned key = full_key_at(first, index);
    const auto has_key = [&](std::size_t i) { return full_key_at(*d.at(i).port, index) == key; };
    if (key == 0 || !std::ranges::all_of(d.choice.ports, has_key)) continue;
    if (!found || key == meant) found = Place{index, key};
    if (key == meant) break;
  }
  return found;
}

// Returns the problem of the P_Key index of a port: the index has no P_Key, or one of a limited member. Empty: none.
std::string pkey_problem(const fabric::Port& port, std::string_view name, unsigned index, bool is_set) {
  if (!port.is_infiniband()) {
    // mlx5_query_port_roce() of drivers/infiniband/hw/mlx5/main.c and rxe_param.h, Linux 6.12.
    return index == 0 ? "" : fmt::format("{} is RoCE and has one P_Key, at index 0: no connection works", name);
  }
  const auto pkey = port.pkey_at(index);
  if (!port.pkeys || pkey > fabric::kFullMember) return {};
  if ((pkey.value_or(0) & ~fabric::kFullMember) == 0) {
    return fmt::format("{} has no P_Key at index {}{}: no connection works", name, index,
                       is_set ? " (NCCL_IB_PKEY is an index, not a key)" : "");
  }
  return fmt::format(
      "{} has the P_Key {:#x} at index {}: it is a limited member there, and two limited members cannot "
      "connect",
      name, *pkey, index);
}

// Returns the remedy if no index fits all ports.
std::string remedy_without_place(const Deciding& d) {
  std::vector<std::string> places;
  std::optional<unsigned> key;
  bool same = true;
  for (const std::size_t i : d.choice.ports) {
    const auto place = first_place(*d.at(i).port);
    if (!place) return "make the ports full members of the job's partition in the subnet manager (opensm: `=full`)";
    same &= !key || *key == place->key;
    key = place->key;
    places.push_back(fmt::format("{} {} ({:#x})", printable(d.at(i).name()), place->index, place->key));
  }
  const std::string list = base::join(places, ", ");
  if (!same) return fmt::format("the ports are full members of different partitions ({}): choose one by --hca", list);
  return fmt::format(
      "one NCCL_IB_PKEY does not fit all ports ({}): choose ports with one index by --hca, or let the subnet manager "
      "put the key at index 0 (opensm: `indx0`)",
      list);
}

}  // namespace

void check_pkey(Deciding& d) {
  const Setting* setting = d.kept.find(kPkey);
  const unsigned index = d.kept.pkey_index();
  for (const std::size_t i : d.choice.ports) {
    const fabric::Port& port = *d.at(i).port;
    const std::string problem = pkey_problem(port, printable(d.at(i).name()), index, setting != nullptr);
    if (problem.empty()) continue;
    // The user may have written a key in place of its index. The tables were perhaps read in part.
    d.decision.needs_full |= port.is_infiniband();
    const auto place = common_place(d, setting ? index | fabric::kFullMember : 0);
    const std::string remedy = !port.is_infiniband() ? "unset it"
                               : place ? fmt::format("set NCCL_IB_PKEY to {} ({:#x})", place->index, place->key)
                                       : remedy_without_place(d);
    if (!setting) return d.warn("pkey", Verdict::kBad, problem, remedy);
    d.kept.keep(kPkey, Problem{problem + "; " + remedy, Verdict::kBad}, "pkey");
    if (port.is_infiniband() && !place) return d.kept.hold(kPkey);
    if (d.kept.may_replace(kPkey))
      d.put(kPkey, std::to_string(place && port.is_infiniband() ? place->index : 0), "an index that fits all ports");
    return;
  }
}

}  // namespace init
