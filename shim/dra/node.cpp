#include "shim/dra/node.hpp"

#include <algorithm>
#include <utility>

#include "hook/plan/choose.hpp"
#include "shim/dra/slices.hpp"
#include "shim/kubelet/away_hcas.hpp"

namespace shim {

fabric::HcaFacts dra_facts(const hook::Config& config) {
  fabric::HcaFacts facts = fabric::kUsualFacts;
  facts.pfs = facts.vfs = true;
  facts.gids = std::ranges::any_of(config.pools, [](const hook::Pool& pool) { return pool.network.has_value(); });
  return facts;
}

DeviceNames names_on(const fabric::Inventory& inventory, const hook::NodeSettings& settings) {
  std::vector<std::string> names;
  for (const fabric::Hca& hca : inventory.hcas)
    names.push_back(hca.name);
  const auto devices =
      settings.snapshot ? hook::HcaDevices() : hook::devices_of(names, inventory, settings.root).devices;
  return device_names(inventory, devices);
}

bool DraNode::read() {
  if (read_config() == ConfigRead::kNone) return false;
  auto read = read_node(dra_facts(config()));
  if (!read) return true;
  away_.clear();
  for (const auto& [device, hca] : held_hcas().away()) {
    add_away_hca(device, hca, node_.ledger, node_.root, read->inventory);
    away_.insert(hca.name);
  }
  inventory_ = std::move(read->inventory);
  holds_ = std::move(read->holds);
  names_ = names_on(inventory_, node_);
  std::vector<std::string> of_pools;
  const hook::NodeMap map(inventory_, config());
  for (const hook::NodeHca* hca : map.by_rail())
    if (hca->pool && !away_.contains(hca->name())) of_pools.push_back(hca->name());
  set_silent_ports(silent_ports(inventory_, of_pools, holds_));
  ++version_;
  return true;
}

}  // namespace shim
