// Explains why a RoCE rail does not reach a peer, from routes and neighbours of this network namespace. Needs no
// capability.
#pragma once

#include "fabric/address.hpp"
#include "init/ping/layers.hpp"
#include "init/ping/outcome.hpp"

namespace init::ping {

// Returns kRoute if no route of the rail's netdev covers the peer, kNeighbour if the kernel has no MAC address of the
// peer or of its gateway. Returns kGood if there is no such cause, or a look-up fails. Call it after a failure only: a
// connection can work without a route, because the kernel then takes the peer for a neighbour (net/ipv4/route.c,
// Linux 6.12).
Failure explain(const Rail& rail, const fabric::Address& peer);

}  // namespace init::ping
