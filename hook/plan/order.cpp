#include "hook/plan/order.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "hook/request/request.hpp"

namespace hook {
namespace {

using Hcas = std::vector<const NodeHca*>;

bool has_plane(const NodeHca& node) {
  return node.entry && node.entry->plane && node.hca->pci;
}

// Returns the HCAs by rail, each with a plane, in PCI order.
std::map<unsigned, Hcas> by_rail_with_planes(const Hcas& hcas) {
  std::map<unsigned, Hcas> rails;
  for (const NodeHca* node : hcas)
    if (has_plane(*node)) rails[node->entry->rail].push_back(node);
  for (auto& [rail, of_rail] : rails)
    std::ranges::sort(
        of_rail, [](const NodeHca* left, const NodeHca* right) { return pci_less(*left->hca->pci, *right->hca->pci); });
  return rails;
}

unsigned plane_of(const NodeHca* node) {
  return *node->entry->plane;
}

// Returns as many HCAs of each plane as `chosen` has, in PCI order and ascending in planes. Takes the lowest PCI
// address each time, which leaves most HCAs for the next planes. nullopt: there are none. spare: HCAs of one rail, in
// PCI order.
std::optional<Hcas> ascending(const Hcas& spare, const Hcas& chosen) {
  std::map<unsigned, std::size_t> wanted;
  for (const NodeHca* node : chosen)
    ++wanted[plane_of(node)];
  Hcas found;
  auto at = spare.begin();
  for (auto& [plane, count] : wanted) {
    for (; count > 0 && at != spare.end(); ++at) {
      if (plane_of(*at) != plane) continue;
      found.push_back(*at);
      --count;
    }
    if (count > 0) return std::nullopt;
  }
  return found;
}

// Returns the position of the HCA in `order` (from a device plugin's PCIDEVICE_* variables), by PCI address, netdev or
// name; order.size() if it is not in the list.
std::size_t place_in_order(const NodeHca& node, const std::vector<std::string>& order) {
  const auto found = std::ranges::find_if(order, [&](const std::string& one) {
    return one == node.name() || node.hca->pci == one || std::ranges::find(node.netdevs, one) != node.netdevs.end();
  });
  return static_cast<std::size_t>(found - order.begin());
}

}  // namespace

Hcas in_order(const Hcas& found, const Request& request) {
  std::vector<std::pair<std::pair<std::size_t, unsigned>, const NodeHca*>> placed;
  for (const NodeHca* hca : found)
    placed.push_back({{place_in_order(*hca, request.order), hca->rail}, hca});
  std::ranges::sort(placed, [](const auto& left, const auto& right) { return left.first < right.first; });
  Hcas hcas;
  for (const auto& [ignored, hca] : placed)
    if (std::ranges::find(hcas, hca) == hcas.end()) hcas.push_back(hca);
  return hcas;
}

Hcas in_turns(const Hcas& hcas) {
  std::map<std::pair<unsigned, std::optional<unsigned>>, std::size_t> turns;
  std::vector<std::pair<std::size_t, const NodeHca*>> placed;
  for (const NodeHca* node : hcas) {
    const std::size_t turn = node->entry ? turns[{node->entry->rail, node->entry->plane}]++ : hcas.size();
    placed.emplace_back(turn, node);
  }
  std::ranges::stable_sort(placed, {}, &std::pair<std::size_t, const NodeHca*>::first);
  Hcas order;
  for (const auto& [ignored, node] : placed)
    order.push_back(node);
  return order;
}

void follow_planes(const Hcas& spare, Hcas& chosen) {
  const auto rails = by_rail_with_planes(spare);
  for (const auto& [rail, own] : by_rail_with_planes(chosen)) {
    const auto others = rails.find(rail);
    const auto is_spare = [&](const NodeHca* node) {
      return std::ranges::find(others->second, node) != others->second.end();
    };
    if (std::ranges::is_sorted(own, {}, plane_of) || others == rails.end() || !std::ranges::all_of(own, is_spare))
      continue;
    const auto better = ascending(others->second, own);
    if (!better) continue;
    auto next = better->begin();
    for (const NodeHca*& node : chosen)
      if (has_plane(*node) && node->entry->rail == rail) node = *next++;
  }
}

std::optional<unsigned> rail_out_of_order(const Hcas& chosen) {
  for (const auto& [rail, own] : by_rail_with_planes(chosen))
    if (!std::ranges::is_sorted(own, {}, plane_of)) return rail;
  return std::nullopt;
}

}  // namespace hook
