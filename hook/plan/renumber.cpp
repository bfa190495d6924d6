#include "hook/plan/renumber.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "fabric/text.hpp"

namespace hook {
namespace {

struct Renumbered {
  std::string name;  // "uverbs3"
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
};

// What became of "uverbsN", by its old name.
std::map<std::string, Renumbered> new_names(const fabric::Inventory& inventory, const std::vector<NewNode>& nodes) {
  std::map<std::string, Renumbered> names;
  for (const NewNode& node : nodes) {
    const auto hca = std::find_if(inventory.hcas.begin(), inventory.hcas.end(),
                                  [&](const fabric::Hca& other) { return other.name == node.hca; });
    const auto numbers = fabric::split(node.dev, ':');
    if (hca == inventory.hcas.end() || !hca->uverbs || numbers.size() != 2) continue;
    const auto major = fabric::parse_number<std::uint32_t>(numbers[0]);
    const auto minor = fabric::parse_number<std::uint32_t>(numbers[1]);
    if (!major || !minor) continue;
    names[fmt::format("uverbs{}", *hca->uverbs)] = {fmt::format("uverbs{}", node.uverbs), *major, *minor};
  }
  return names;
}

}  // namespace

void renumber(const fabric::Inventory& inventory, const std::vector<NewNode>& nodes, Plan& plan) {
  constexpr std::string_view kDirectory = "/dev/infiniband/";
  const auto names = new_names(inventory, nodes);
  for (PlannedNode& planned : plan.nodes) {
    if (!planned.path.starts_with(kDirectory)) continue;
    const auto found = names.find(planned.path.substr(kDirectory.size()));
    if (found == names.end()) continue;
    planned.path = std::string(kDirectory) + found->second.name;
    planned.major = found->second.major;
    planned.minor = found->second.minor;
  }
  for (ViewEntry& entry : plan.view) {
    const auto found = entry.directory == "infiniband_verbs" ? names.find(entry.name) : names.end();
    if (found == names.end()) continue;
    if (entry.target.ends_with("/" + entry.name)) {
      entry.target.replace(entry.target.size() - entry.name.size(), entry.name.size(), found->second.name);
    }
    entry.name = found->second.name;
  }
}

}  // namespace hook
