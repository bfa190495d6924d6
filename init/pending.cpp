#include "init/pending.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/netdev_map.hpp"
#include "fabric/text.hpp"

namespace init {
namespace {

using fabric::Inventory;
using fabric::Netdev;
using fabric::printable;

bool has_gid_anywhere(const Inventory& inventory, const fabric::Address& address) {
  for (const fabric::Hca& hca : inventory.hcas) {
    for (const fabric::Port& port : hca.ports) {
      for (const fabric::GidEntry& entry : port.gids)
        if (entry.gid == address) return true;
    }
  }
  return false;
}

// True if GIDs for the netdev's addresses are to be expected on the port.
bool may_be_over(const Inventory& inventory, const fabric::Port& port, const Netdev& netdev) {
  return fabric::carries(inventory.netdevs, port.netdev, netdev) == fabric::Carries::kYes;
}

bool is_open_ethernet(const Candidate& candidate) {
  return candidate.hca->is_accessible() && candidate.port->is_active() && candidate.port->is_ethernet();
}

// An address that awaits its GID on this port; global_only when the port has a link-local GID already.
const fabric::InterfaceAddress* awaited_address(const Inventory& inventory, const Candidate& candidate,
                                                const std::optional<fabric::Family>& family, bool global_only) {
  for (const Netdev& netdev : inventory.netdevs) {
    if (!netdev.is_here() || !netdev.is_up() || !may_be_over(inventory, *candidate.port, netdev)) continue;
    // With a link-local GID it is known which netdev of ours is on this port.
    const bool same = std::any_of(candidate.gids.begin(), candidate.gids.end(),
                                  [&](const UsableGid& gid) { return gid.netdev == netdev.name; });
    if (global_only && !same && candidate.port->netdev != netdev.name) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses) {
      if (own.address.is_loopback() || (global_only && own.address.is_link_local())) continue;
      if (family && own.address.family() != *family) continue;
      if (!has_gid_anywhere(inventory, own.address)) return &own;
    }
  }
  return nullptr;
}

std::optional<std::string> pending_gid(const Inventory& inventory, const Candidate& candidate,
                                       const std::optional<fabric::Family>& family) {
  const bool has_global = (candidate.best(GidRank::kIpv4) && family != fabric::Family::kIpv6) ||
                          (candidate.best(GidRank::kIpv6) && family != fabric::Family::kIpv4);
  if (!is_open_ethernet(candidate) || has_global) return std::nullopt;
  const auto* address = awaited_address(inventory, candidate, family, candidate.usable());
  if (!address) return std::nullopt;
  return fmt::format("a GID for {} on {}", to_string(address->address), printable(candidate.name()));
}

bool selected(const Policy& policy, const Candidate& candidate) {
  return !policy.hcas || selects(*policy.hcas, *candidate.hca, *candidate.port, candidate.netdevs);
}

// What the options ask of a port whose netdev is here, and it does not have yet.
std::optional<std::string> pending_match(const Inventory& inventory, const Policy& policy, const Candidate& candidate,
                                         bool others_match) {
  if (!is_open_ethernet(candidate) || candidate.usable() || !candidate.port->netdev) return std::nullopt;
  const bool included = policy.hcas && !policy.hcas->exclude;
  if (!policy.gids.narrows() && !included) return std::nullopt;
  bool has_address = false;
  bool matching_address = false;
  for (const Netdev& netdev : inventory.netdevs) {
    if (!netdev.is_here() || !may_be_over(inventory, *candidate.port, netdev)) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses) {
      has_address |= !own.address.is_link_local();
      matching_address |= policy.gids.allows(own.address);
    }
  }
  const bool settled = policy.gids.narrows() && others_match && has_address && !matching_address;
  if (settled) return std::nullopt;
  return fmt::format("a GID on {} ({}) that the options allow", printable(candidate.name()),
                     printable(*candidate.port->netdev));
}

// What is set of the family is an option like --family, where it is not void and some address can come of it.
std::optional<fabric::Family> kept_family(const Inventory& inventory, const Settings& settings) {
  const Setting* family = find_setting(settings, "NCCL_IB_ADDR_FAMILY");
  const Setting* index = find_setting(settings, "NCCL_IB_GID_INDEX");
  if (!family || family->value != "AF_INET6" || (index && nccl::parse_index(index->value) >= 0)) return std::nullopt;
  for (const Netdev& netdev : inventory.netdevs) {
    const auto is_global = [](const fabric::InterfaceAddress& own) {
      return own.address.family() == fabric::Family::kIpv6 && !own.address.is_link_local() &&
             !own.address.is_loopback();
    };
    if (netdev.is_here() && std::any_of(netdev.addresses.begin(), netdev.addresses.end(), is_global)) {
      return fabric::Family::kIpv6;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_pending(const Inventory& inventory, const Settings& settings, const Policy& asked) {
  Policy policy = asked;
  if (!policy.gids.family) policy.gids.family = kept_family(inventory, settings);
  // The node's addresses are no reason not to wait for those of this netns.
  GidFilter own = policy.gids;
  own.node_gids = false;
  GidFilter unfiltered;
  unfiltered.node_gids = false;
  const auto matching = find_candidates(inventory, own);
  const auto all = policy.gids.narrows() || !policy.gids.link_local ? find_candidates(inventory, unfiltered) : matching;
  std::optional<std::string> awaited;
  for (const Candidate& candidate : all) {
    if (!awaited && selected(policy, candidate)) awaited = pending_gid(inventory, candidate, policy.gids.family);
  }
  const bool others_match = std::any_of(matching.begin(), matching.end(), [&](const Candidate& candidate) {
    return candidate.usable() && candidate.port->is_ethernet() && selected(policy, candidate);
  });
  for (const Candidate& candidate : matching) {
    if (!awaited && selected(policy, candidate)) awaited = pending_match(inventory, policy, candidate, others_match);
  }
  std::size_t usable = count_usable_hcas(matching);
  if (usable >= policy.require) return awaited;
  usable = count_usable_hcas(find_candidates(inventory, policy.gids));
  if (usable >= policy.require) return awaited;
  return fmt::format("{} of {} HCAs with a usable port{}{}", policy.require - usable, policy.require,
                     awaited ? ", among them " : "", awaited.value_or(""));
}

}  // namespace init
