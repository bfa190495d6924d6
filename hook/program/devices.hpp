// `rdma-hook devices`: the node's HCAs and who holds them. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hook/base/json/json_fwd.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/record/network_record.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

using NetworkRecords = std::map<std::string, NetworkRecord>;  // by the grant's key

// {"hcas": [{"name", "pool", "rail", "pci", "numa_node", "driver", "netdev", "link_layer", "state", "rate", "node",
//            "physfn", "holders": [{"grant", "holder", "mode", "units", "containers", "since", "gone", "netns",
//              "rails": [{"name", "rail", "kind", "host", "addresses", "gid_index"}]}]}],
//  "grants": n}; an HCA that is in a container's namespace and not on the node has "name", "away": true, "holders"
Json devices_json(const fabric::Inventory& inventory, const Config& config, const std::vector<Grant>& grants,
                  const NetworkRecords& networks);
// A table for people, one line per HCA, below it one per holder and one per rail.
std::string devices_text(const fabric::Inventory& inventory, const Config& config, const std::vector<Grant>& grants,
                         const NetworkRecords& networks);

}  // namespace hook
