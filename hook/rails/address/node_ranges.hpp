// Computes the ranges from which this node allocates: the ranges of config.json, cut to the node's slices.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fabric/address.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// Returns the ranges of a network for this rail. A range with `per_node` is cut to the node's slice.
// own: reads the node's addresses on the rail's netdev. The node's addresses are never allocated from a slice. `own` is
// called only if a range for this rail has `per_node`.
// Errors: the node's index is unknown; the range has no slice with this index; `own` fails. After an error the function
// returns no range, because a guess could be the slice of another node.
using ReadOwnAddresses = std::function<Result<std::vector<fabric::Address>>()>;
Result<std::vector<AddressRange>> node_ranges(const Config& config, const Network& network, unsigned rail,
                                              const ReadOwnAddresses& own);

// Returns this node's index for ranges of MAC addresses and GUIDs. The index is not computed from an address, because
// the node has none in such ranges. Errors: those of node_ranges().
Result<std::uint64_t> node_number(const Config& config);

// Returns the addresses of the netdev that has this name.
std::vector<fabric::Address> addresses_on(const std::vector<fabric::Netdev>& netdevs, const std::string& name);

// MAC addresses and GUIDs of virtual functions come from the ranges "macs" and "guids" of networks. Both are booked
// like addresses (pool.hpp), as the IPv6 addresses fd00:0:0:1::MAC and fd00:0:0:2::GUID, which no netdev gets. All
// networks book them in one set (kVfValues), so that no two functions of the node have the same value.

// A function that allocates one MAC address or GUID from each of these ranges, as an address of kVfValues.
using TakeVfValue = std::function<Result<std::vector<RailAddress>>(const std::vector<AddressRange>&)>;

// Allocates the MAC address and GUIDs of a rail that moves a VF, if the network has ranges for them and they are not
// set yet. Leaves out values that a network sets as "mac", "node_guid" or "port_guid".
// Errors: those of node_ranges(); an error of `take`; EADDRNOTAVAIL with remedy, the range is used up.
Result<void> take_vf_values(const Config& config, const Network& network, const TakeVfValue& take, Rail& rail);

}  // namespace hook
