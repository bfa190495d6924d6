// `rdma-hook devices`: the node's HCAs and who holds them. Pure.
#pragma once

#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/json/json.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

// {"hcas": [{"name", "pool", "rail", "pci", "numa_node", "driver", "netdev", "link_layer", "state", "rate", "node",
//            "physfn", "holders": [{"grant", "holder", "mode", "units", "containers", "since", "gone"}]}],
//  "grants": n}
Json devices_json(const fabric::Inventory& inventory, const Config& config, const std::vector<Grant>& grants);
// A table for people, one line per HCA and one below it per holder.
std::string devices_text(const fabric::Inventory& inventory, const Config& config, const std::vector<Grant>& grants);

}  // namespace hook
