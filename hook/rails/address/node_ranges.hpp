// The ranges of which this node gives addresses: those of config.json, cut to the node's slices.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/inventory.hpp"
#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// own: the node's addresses on the rail's netdev, which are in its slice and never given; asked only where there is
// one. Errors: the node's number cannot be told, or its slice is not there; never another node's.
using ReadOwnAddresses = std::function<Result<std::vector<fabric::Address>>()>;
Result<std::vector<AddressRange>> node_ranges(const Config& config, const Network& network, unsigned rail,
                                              const ReadOwnAddresses& own);

// This node's index where no address tells it. Errors: as node_ranges().
Result<std::uint64_t> node_number(const Config& config);

// Those of the netdev of this name.
std::vector<fabric::Address> addresses_on(const std::vector<fabric::Netdev>& netdevs, const std::string& name);

// MAC addresses and GUIDs of virtual functions, of the ranges "macs" and "guids" of networks. They are booked as
// addresses are (pool.hpp), in one stock for all networks, so that no two functions of the node have the same:
// as fd00:0:0:1::MAC and fd00:0:0:2::GUID, which nobody gives to a netdev.
// One address of the pool for this rail, of this range of kStockOfAll.
using TakeOfStock = std::function<Result<std::vector<RailAddress>>(const std::vector<AddressRange>&)>;

// Fills in what comes from ranges of a rail whose netdev moves, and is not filled in yet. Never given: what a network
// has as "mac", "node_guid" or "port_guid". Errors: as node_ranges(); those of `take`, with EADDRNOTAVAIL: the range is
// used up, named with the remedy.
Result<void> take_vf_values(const Config& config, const Network& network, const TakeOfStock& take, Rail& rail);

}  // namespace hook
