#include "fabric/management_slots.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "fabric/pci_sysfs.hpp"

namespace fabric {

bool ManagementSlots::has(const Hca& hca) const {
  return hca.pci && slots.contains(pci::slot_of(*hca.pci));
}

ManagementSlots management_slots(const std::vector<const Hca*>& hcas) {
  constexpr std::size_t kManagementFunctions = 4;
  std::map<std::string_view, std::set<std::string_view>> functions;
  std::set<std::string_view> with_vf;
  std::set<std::string_view> unread;
  for (const Hca* hca : hcas) {
    if (!hca->pci) continue;
    const std::string_view slot = pci::slot_of(*hca->pci);
    functions[slot].insert(*hca->pci);
    if (is_vf(*hca)) with_vf.insert(slot);
    if (!hca->device_id) unread.insert(slot);
  }
  ManagementSlots found;
  for (const auto& [slot, members] : functions) {
    if (members.size() < kManagementFunctions) continue;
    if (!with_vf.contains(slot)) found.slots.insert(slot);
    found.needs_models |= unread.contains(slot);
  }
  return found;
}

bool is_vf(const Hca& hca) {
  constexpr std::array<std::string_view, 8> kIds = {"0x1012", "0x1014", "0x1016", "0x1018",
                                                    "0x101a", "0x101c", "0x101e", "0xa2d3"};
  return hca.physfn || std::ranges::find(kIds, hca.device_id.value_or("")) != kIds.end();
}

}  // namespace fabric
