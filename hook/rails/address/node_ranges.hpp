// The ranges of which this node gives addresses: those of config.json, cut to the node's slices.
#pragma once

#include <functional>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "hook/config/config.hpp"

namespace hook {

// own: the node's addresses on the rail's netdev, which are in its slice and never given; asked only where there is
// one. Errors: the node's number cannot be told, or its slice is not there; never another node's.
using ReadOwnAddresses = std::function<fabric::Result<std::vector<fabric::Address>>()>;
fabric::Result<std::vector<AddressRange>> node_ranges(const Config& config, const Network& network, unsigned rail,
                                                      const ReadOwnAddresses& own);

// This node's index where no address tells it. Errors: as node_ranges().
fabric::Result<std::uint64_t> node_number(const Config& config);

// Of a netdev of this network namespace, by rtnetlink. Errors: that cannot be asked.
fabric::Result<std::vector<fabric::Address>> addresses_of_netdev(const std::string& name);

}  // namespace hook
