#include "hook/plan/renumber.hpp"

#include <algorithm>

#include "fabric/text.hpp"

namespace hook {

void renumber(const fabric::Inventory& inventory, const NewNode& node, Plan& plan) {
  const auto hca = std::find_if(inventory.hcas.begin(), inventory.hcas.end(),
                                [&](const fabric::Hca& other) { return other.name == node.hca; });
  const auto numbers = fabric::split(node.dev, ':');
  if (hca == inventory.hcas.end() || !hca->uverbs || numbers.size() != 2) return;
  const std::string old_name = fmt::format("uverbs{}", *hca->uverbs);
  const std::string new_name = fmt::format("uverbs{}", node.uverbs);
  for (PlannedNode& planned : plan.nodes) {
    if (planned.path != "/dev/infiniband/" + old_name) continue;
    planned.path = "/dev/infiniband/" + new_name;
    planned.major = fabric::parse_number<std::uint32_t>(numbers[0]);
    planned.minor = fabric::parse_number<std::uint32_t>(numbers[1]);
  }
  for (ViewEntry& entry : plan.view) {
    if (entry.directory != "infiniband_verbs" || entry.name != old_name) continue;
    entry.name = new_name;
    if (entry.target.ends_with("/" + old_name)) {
      entry.target.replace(entry.target.size() - old_name.size(), old_name.size(), new_name);
    }
  }
}

}  // namespace hook
