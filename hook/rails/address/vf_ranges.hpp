// MAC addresses and GUIDs of virtual functions, of the ranges "macs" and "guids" of networks. They are booked as
// addresses are (address_pool.hpp), in one stock for all networks, so that no two functions of the node have the same:
// as fd00:0:0:1::MAC and fd00:0:0:2::GUID, which nobody gives to a netdev.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// One address of the pool for this rail, of this range of kStockOfAll.
using TakeOfStock = std::function<fabric::Result<std::vector<RailAddress>>(const std::vector<AddressRange>&)>;

// Fills in what comes from ranges of a rail whose netdev moves, and is not filled in yet. Never given: what a network
// has as "mac", "node_guid" or "port_guid". Errors: as node_ranges(); those of `take`, with EADDRNOTAVAIL: the range is
// used up, named with the remedy.
fabric::Result<void> take_vf_values(const Config& config, const Network& network, const TakeOfStock& take, Rail& rail);

}  // namespace hook
