// Which HCAs of a node are for training jobs, for `rdma-hook config generate`.
#pragma once

#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/plan/pools.hpp"

namespace hook {

struct FabricHcas {
  struct LeftOut {
    const NodeHca* hca = nullptr;
    std::string reason;  // predicate without subject: "25 Gb/s is below the highest rate, 400 Gb/s"
  };
  std::vector<const NodeHca*> used;  // in the order of their PCI addresses
  // HCAs of the model and link layer of `used` without an ACTIVE port. A down port in the PCI slot of an ACTIVE HCA
  // does not count, because cards often have one port with a cable and one without.
  std::vector<const NodeHca*> down;
  std::vector<LeftOut> left_out;  // all other HCAs

  std::vector<const NodeHca*> all() const;  // `used` and `down` in the order of their PCI addresses
};

// Chooses the HCAs of a node by the rules by which rdma-init chooses ports (docs/rdma-init.md, "Which ports, and why"):
// no EFA, no NVSwitch management, one link layer, hardware before software, the highest rate without a faster NIC of
// the default route, and not the NIC of the default route. A physical function is left out if its VFs are chosen. Pure.
// The map must be of the inventory.
FabricHcas fabric_hcas(const fabric::Inventory& inventory, const NodeMap& map);

}  // namespace hook
