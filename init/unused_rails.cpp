#include <algorithm>
#include <set>
#include <string_view>

#include "fabric/pci_sysfs.hpp"
#include "init/deciding.hpp"

namespace init {
namespace {

// Returns true if the HCA belongs to this container and does not work.
bool is_broken(const Deciding& d, std::size_t i) {
  const Candidate& candidate = d.at(i);
  switch (candidate.obstacle) {
    case Obstacle::kNone:
      return std::ranges::find(d.plan.wrong, i) != d.plan.wrong.end();
    case Obstacle::kNotActive:
    case Obstacle::kNetdevDown:
    case Obstacle::kTypeUnreadable:
    case Obstacle::kOnlyV1:
    case Obstacle::kIndexTooHigh:
      return true;
    case Obstacle::kProvider:
      return candidate.port->is_infiniband() || !candidate.netdevs.empty();
    case Obstacle::kNoNetdev:
      return candidate.port->netdev.has_value();  // the netdev is here and needs an address
    default:
      return false;
  }
}

bool is_listed(const Deciding& d, const Candidate& candidate) {
  if (d.meant) return d.meant->matches(candidate.hca->name, candidate.port->number);
  const Setting* list = d.kept.in_effect("NCCL_IB_HCA");
  // A list of an earlier run has the ports that worked.
  if (list && !list->own) {
    return nccl::parse_hca_list(list->value, d.version()).matches(candidate.hca->name, candidate.port->number);
  }
  return !d.policy.hcas || selects(*d.policy.hcas, *candidate.hca, *candidate.port, candidate.netdevs);
}

bool is_equal(const Candidate& left, const Candidate& right) {
  return left.hca->vendor == right.hca->vendor && left.hca->device_id == right.hca->device_id &&
         left.port->is_infiniband() == right.port->is_infiniband();
}

}  // namespace

std::vector<std::size_t> find_unused_rails(Deciding& d) {
  std::vector<std::size_t> unused;
  std::set<std::string_view> slots;
  for (const std::size_t i : d.choice.ports)
    if (d.at(i).hca->pci) slots.insert(fabric::pci::slot_of(*d.at(i).hca->pci));
  std::set<const fabric::Hca*> equal;
  for (std::size_t i = 0; i < d.candidates.size(); ++i) {
    const Candidate& candidate = d.at(i);
    if (!candidate.hca->pci || !is_broken(d, i) || !is_listed(d, candidate)) continue;
    d.decision.needs_models |= !candidate.hca->device_id;
    if (!candidate.hca->device_id) continue;
    if (!slots.insert(fabric::pci::slot_of(*candidate.hca->pci)).second) continue;
    bool has_equal = false;
    for (const std::size_t used : d.choice.ports) {
      if (!is_equal(d.at(used), candidate)) continue;
      equal.insert(d.at(used).hca);
      has_equal = true;
    }
    if (has_equal) unused.push_back(i);
  }
  d.decision.unused_rails = unused.size();
  d.decision.equal_rails = equal.size() + unused.size();
  return unused;
}

}  // namespace init
