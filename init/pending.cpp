#include "init/pending.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "base/text.hpp"
#include "fabric/port_use.hpp"
#include "init/candidates.hpp"

namespace init {
namespace {

using fabric::Inventory;
using fabric::Netdev;

// Returns true if any port has a GID for the address; the address then belongs to that port.
bool has_gid_anywhere(const Inventory& inventory, const fabric::Address& address) {
  return std::ranges::any_of(inventory.hcas, [&](const fabric::Hca& hca) {
    return std::ranges::any_of(hca.ports, [&](const fabric::Port& port) {
      return std::ranges::find(port.gids, address, &fabric::GidEntry::gid) != port.gids.end();
    });
  });
}

// iWARP has one GID, of the MAC, and gets none for an address.
bool is_open_roce(const Candidate& candidate) {
  return !candidate.hca->is_iwarp() && candidate.hca->is_accessible() && !candidate.hca->is_rejected() &&
         candidate.port->is_active() && candidate.port->is_ethernet();
}

// Returns true if the port will get GIDs for the addresses of this netdev, which is in this network namespace.
bool is_over(const Inventory& inventory, const fabric::Port& port, const Netdev& netdev) {
  return netdev.is_here() && carries(inventory.netdevs, port.netdev, netdev) == fabric::Carries::kYes;
}

// Returns an address that no port can use yet, because it has no GID or its test for duplicates has not ended, on the
// port's netdev or on a netdev that is stacked on it. global_only: the port has a link-local GID already, so only other
// addresses count.
const fabric::InterfaceAddress* awaited_address(const Inventory& inventory, const Candidate& candidate,
                                                const std::optional<fabric::Family>& family, bool global_only) {
  for (const Netdev& netdev : inventory.netdevs) {
    if (!netdev.is_up() || !is_over(inventory, *candidate.port, netdev)) continue;
    // If the port has GIDs already (global_only), only the netdevs of these GIDs and the port's own netdev are searched
    // for an address.
    const bool same = std::ranges::find(candidate.gids, netdev.name, &UsableGid::netdev) != candidate.gids.end();
    if (global_only && !same && candidate.port->netdev != netdev.name) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses) {
      // A duplicate address and the address beside a peer get no GID that serves.
      if (own.dad_failed || own.of_gid() != own.address) continue;
      if (own.address.is_loopback() || (global_only && own.address.is_link_local())) continue;
      if (family && own.address.family() != *family) continue;
      if (own.tentative || !has_gid_anywhere(inventory, own.address)) return &own;
    }
  }
  return nullptr;
}

// Describes the GID for which the wait is needed. The port can be opened and has no global GID of the wanted family,
// and an address that can get a GID on this port has none yet. nullopt: no GID is awaited.
std::optional<std::string> pending_gid(const Inventory& inventory, const Candidate& candidate,
                                       const std::optional<fabric::Family>& family) {
  const bool has_global = (candidate.best(GidRank::kIpv4) && family != fabric::Family::kIpv6) ||
                          (candidate.best(GidRank::kIpv6) && family != fabric::Family::kIpv4);
  if (!is_open_roce(candidate) || has_global) return std::nullopt;
  const auto* address = awaited_address(inventory, candidate, family, candidate.usable());
  if (!address) return std::nullopt;
  return fmt::format("a GID for {} on {}", to_string(address->address), printable(candidate.name()));
}

bool selected(const Policy& policy, const Candidate& candidate) {
  return !policy.hcas || selects(*policy.hcas, *candidate.hca, *candidate.port, candidate.netdevs);
}

// Describes the GID that the port still lacks: an open RoCE port with a netdev in this namespace has no usable GID, and
// the options filter GIDs or --hca names the port. nullopt: no GID is awaited, for example because another port has a
// matching GID and the options exclude all addresses of this port.
std::optional<std::string> pending_match(const Inventory& inventory, const Candidate& candidate,
                                         const std::optional<fabric::SelectorList>& hcas, const GidFilter& filter,
                                         bool others_match) {
  if (!is_open_roce(candidate) || candidate.usable() || !candidate.port->netdev) return std::nullopt;
  const bool included = hcas && !hcas->exclude;
  if (!filter.narrows() && !included) return std::nullopt;
  bool has_address = false;
  bool matching_address = false;
  for (const Netdev& netdev : inventory.netdevs) {
    if (!is_over(inventory, *candidate.port, netdev)) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses) {
      has_address |= !own.address.is_link_local();
      matching_address |= filter.allows(own.address);
    }
  }
  const bool settled = filter.narrows() && others_match && has_address && !matching_address;
  if (settled) return std::nullopt;
  return fmt::format("a GID on {} ({}) that the options allow", printable(candidate.name()),
                     printable(*candidate.port->netdev));
}

// Returns AF_INET6 if NCCL_IB_ADDR_FAMILY sets it: the wait then treats the variable like --family. nullopt: the
// variable is not AF_INET6, NCCL_IB_GID_INDEX fixes an index, or no netdev here has a global IPv6 address.
std::optional<fabric::Family> kept_family(const Inventory& inventory, const Settings& settings) {
  const Setting* family = find_setting(settings, "NCCL_IB_ADDR_FAMILY");
  const Setting* index = find_setting(settings, "NCCL_IB_GID_INDEX");
  if (!family || family->value != "AF_INET6" || (index && nccl::parse_index(index->value) >= 0)) return std::nullopt;
  const auto is_global = [](const fabric::InterfaceAddress& own) {
    return own.address.family() == fabric::Family::kIpv6 && !own.address.is_link_local() && !own.address.is_loopback();
  };
  const auto has_global = [&](const Netdev& netdev) {
    return netdev.is_here() && std::ranges::any_of(netdev.addresses, is_global);
  };
  return std::ranges::any_of(inventory.netdevs, has_global) ? std::optional(fabric::Family::kIpv6) : std::nullopt;
}

}  // namespace

std::optional<std::string> find_pending(const Inventory& inventory, const Settings& settings, const Policy& policy) {
  GidFilter filter = policy.gids;
  if (!filter.family) filter.family = kept_family(inventory, settings);
  // Leaves out GIDs of the node: the wait is for addresses of this network namespace.
  GidFilter own = filter;
  own.node_gids = false;
  GidFilter unfiltered;
  unfiltered.node_gids = false;
  const auto matching = find_candidates(inventory, own);
  const auto all = filter.narrows() || !filter.link_local ? find_candidates(inventory, unfiltered) : matching;
  std::optional<std::string> awaited;
  for (const Candidate& candidate : all) {
    if (!awaited && selected(policy, candidate)) awaited = pending_gid(inventory, candidate, filter.family);
  }
  const bool others_match = std::ranges::any_of(matching, [&](const Candidate& candidate) {
    return candidate.usable() && candidate.port->is_ethernet() && selected(policy, candidate);
  });
  for (const Candidate& candidate : matching) {
    if (!awaited && selected(policy, candidate))
      awaited = pending_match(inventory, candidate, policy.hcas, filter, others_match);
  }
  // Without an RDMA driver in the kernel, no HCA will appear.
  const std::size_t required = inventory.rdma_error == ENOENT ? 0 : std::max(policy.require, policy.require_used);
  std::size_t usable = count_usable_hcas(matching);
  if (usable >= required) return awaited;
  // --require also accepts HCAs that use the node's GIDs.
  usable = count_usable_hcas(find_candidates(inventory, filter));
  if (usable >= required) return awaited;
  return fmt::format("{} of {} HCAs with a usable port{}{}", required - usable, required,
                     awaited ? ", among them " : "", awaited.value_or(""));
}

}  // namespace init
