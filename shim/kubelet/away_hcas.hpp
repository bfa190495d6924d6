// HCAs that the node does not show, because they are in the network namespace of a container.
#pragma once

#include <string>
#include <vector>

#include "fabric/inventory.hpp"

namespace shim {

// An HCA of a grant.
struct BookedHca {
  std::string name;   // the HCA's name when it was booked
  std::string owner;  // Owner::key of the grant
};

// Adds the HCA `device` of the ledger to an inventory that does not show it, with the facts by which pools select HCAs,
// as far as the node still has them: the facts of its PCI function, and of the netdev in the record of its rail. If a
// fact is missing, the inventory gets an error of this HCA, so that no pool that selects by it counts as another one.
// An HCA whose PCI function no longer exists is not added. ledger: its directory. root: prefix of the node's /sys.
void add_away_hca(const std::string& device, const BookedHca& booked, const std::string& ledger,
                  const std::string& root, fabric::Inventory& inventory);

}  // namespace shim
