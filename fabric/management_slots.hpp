// NVLink management HCAs of NVSwitch baseboards. They are ACTIVE InfiniBand HCAs, but lead to no other node.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric {

struct ManagementSlots {
  std::set<std::string_view> slots;  // PCI slots, as pci::slot_of() returns them; they point into the HCAs
  bool needs_models = false;         // the result depends on models of HCAs that were not read
  bool has(const Hca& hca) const;
};

// Returns the slots of management HCAs: an HCA for hosts usually has one or two PCI functions, one for each port. Four
// or more functions in one slot, none of them a VF, are the management HCAs of an NVSwitch baseboard (DGX B200, HGX
// B300). hcas: HCAs with a usable port; duplicates are allowed. Pure. The HCAs must outlive the result.
ManagementSlots management_slots(const std::vector<const Hca*>& hcas);

// Returns true for a VF. In a virtual machine a VF has no physfn link, so the VF ids of mlx5 decide
// (mlx5_core_pci_table, Linux 6.12).
bool is_vf(const Hca& hca);

}  // namespace fabric
