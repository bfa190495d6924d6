// The order of a container's HCAs: by a device plugin's variables, and by the planes of a rail.
//
// A rail can have HCAs of several planes, such as the VFs of one card with two planes. NCCL sorts the HCAs of a process
// by PCI address (since 2.29.7, src/transport/net_ib/init.cc) and connects the first one of a merged NIC with the first
// one of the peer. The planes are connected to themselves only if the PCI order has the planes in the same order in
// each container: here, ascending.
#pragma once

#include <optional>
#include <vector>

#include "hook/plan/pools.hpp"

namespace hook {

struct Request;

// Returns each HCA once: first in the order of a device plugin's PCIDEVICE_* variables (Request::order), then by rail.
std::vector<const NodeHca*> in_order(const std::vector<const NodeHca*>& hcas, const Request& request);

// Returns the HCAs in turns: each plane of each rail once before one of them comes twice. Otherwise the order stays.
// HCAs without an entry in "rails" come last.
std::vector<const NodeHca*> in_turns(const std::vector<const NodeHca*>& hcas);

// Replaces HCAs of rails with planes by other HCAs of the same rail and plane, such that the PCI order of each rail has
// its planes in ascending order. A rail stays as it is if one of its HCAs is not in `spare`, or if no such HCAs are
// there. spare: the HCAs that may be chosen, with those of `chosen` that may be replaced.
void follow_planes(const std::vector<const NodeHca*>& spare, std::vector<const NodeHca*>& chosen);

// Returns the first rail whose planes the PCI order of these HCAs has in another order; nullopt: none.
std::optional<unsigned> rail_out_of_order(const std::vector<const NodeHca*>& chosen);

}  // namespace hook
