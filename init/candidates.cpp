#include "init/candidates.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>

#include "base/text.hpp"
#include "fabric/port_faults.hpp"
#include "fabric/port_use.hpp"
#include "init/starter.hpp"

namespace init {
namespace {

using fabric::GidEntry;
using fabric::Hca;
using fabric::Inventory;
using fabric::Netdev;
using fabric::Port;
using fabric::PortUse;

// Returns a text that was read and is not empty.
std::optional<std::string> known_text(const std::optional<base::Attr<std::string>>& attr) {
  const auto* text = attr ? std::get_if<std::string>(&*attr) : nullptr;
  return text && !text->empty() ? std::optional(*text) : std::nullopt;
}

// Returns the name of the port's netdev on the node: the parent of an rxe device, or the netdev of the GID at index 0
// if that is link-local, because the kernel places the netdev's default GID there.
std::optional<std::string> netdev_on_node(const fabric::Hca& hca, const Port& port) {
  if (hca.parent) return hca.parent;
  if (port.gids.empty() || port.gids.front().index != 0 || !port.gids.front().gid.is_link_local()) return std::nullopt;
  return known_text(port.gids.front().ndev);
}

std::string show(const GidEntry& entry) {
  return fmt::format("{} (index {})", to_string(entry.gid), entry.index);
}

// Finds the GIDs of the addresses that the node reported.
NodeGids reported_gids(const Port& port, const std::vector<fabric::Address>& addresses) {
  NodeGids node;
  for (const GidEntry& entry : port.gids) {
    if (entry.is_v2() && std::ranges::find(addresses, entry.gid) != addresses.end()) node.gids.push_back(&entry);
  }
  node.needs_table = node.gids.empty() && !port.gids_complete;
  if (node.gids.empty() && !addresses.empty()) {
    node.reason =
        fmt::format("its GID table has no RoCE v2 GID of the node's address {}", to_string(addresses.front()));
  }
  return node;
}

// Finds the GIDs of the node's netdev by its name. Netdevs in other network namespaces may have the same name.
NodeGids gids_of_netdev(const Port& port, const std::string& netdev) {
  std::vector<const GidEntry*> ipv4;
  std::vector<const GidEntry*> ipv6;
  std::set<fabric::Address> link_local;
  for (const GidEntry& entry : port.gids) {
    if (entry.gid.is_zero() || known_text(entry.ndev) != netdev) continue;
    if (entry.gid.is_link_local()) link_local.insert(entry.gid);
    if (entry.gid.is_link_local() || !entry.is_v2()) continue;
    (entry.gid.is_ipv4() ? ipv4 : ipv6).push_back(&entry);
  }
  // Each netdev with IPv6 has one link-local GID, so two of them prove two netdevs.
  if (link_local.size() > 1) {
    return {{}, fmt::format("the name {} of the node's netdev is used in two network namespaces", printable(netdev))};
  }
  if (ipv4.size() > 1 && ipv6.empty()) {
    return {{},
            fmt::format("{} and {} belong to netdevs named {}, and one may be in another container", show(*ipv4[0]),
                        show(*ipv4[1]), printable(netdev))};
  }
  NodeGids node{std::move(ipv6), {}};
  if (ipv4.size() == 1) node.gids.push_back(ipv4.front());
  std::ranges::sort(node.gids, {}, &GidEntry::index);
  return node;
}

// Stable names for programs, in the order of Obstacle.
constexpr const char* kCauses[] = {
    "",           "no-node",        "refused",           "not-active",       "no-guid",
    "link-layer", "provider",       "addresses-unknown", "table-unreadable", "no-netdev",
    "foreign",    "no-address",     "netdev-down",       "address",          "type-unreadable",
    "only-v1",    "index-too-high", "filtered"};
static_assert(std::size(kCauses) == static_cast<std::size_t>(Obstacle::kFiltered) + 1);

constexpr const char* kNetdevRemedy =
    "attach a netdev of this HCA to the container (macvlan, SR-IOV or host-device network), or use the host's network";

// An obstacle with its reason and remedy.
struct Block {
  Obstacle obstacle;
  std::string reason;
  std::string remedy = {};
};

void block(Candidate& candidate, Block found) {
  candidate.obstacle = found.obstacle;
  candidate.reason = std::move(found.reason);
  candidate.remedy = std::move(found.remedy);
}

GidRank rank_of(const fabric::Address& gid) {
  if (gid.is_ipv4()) return GidRank::kIpv4;
  return gid.is_link_local() ? GidRank::kLinkLocal : GidRank::kIpv6;
}

// Returns the text of an attribute for a message, or the name of its errno.
std::string text_of(const base::Attr<std::string>& attr) {
  if (const auto* failed = std::get_if<base::Unreadable>(&attr)) return base::errno_name(failed->code);
  return printable(std::get<std::string>(attr));
}

// Returns the obstacle of the device node. The device cgroup causes EPERM and the mode of the node EACCES; each has its
// own remedy.
std::optional<Block> blocked_node(const Hca& hca) {
  if (!hca.has_node()) {
    return Block{Obstacle::kNoNode, "the kernel has no uverbs node for it", "load the module ib_uverbs"};
  }
  if (hca.is_accessible()) return std::nullopt;
  const std::string node =
      hca.uverbs ? fmt::format("/dev/infiniband/uverbs{}", *hca.uverbs) : "/dev/infiniband/uverbs*";
  const int error = hca.access_error.value_or(0);
  if (hca.is_efa() && (error == 0 || error == ENOENT)) {
    return Block{
        Obstacle::kNoNode, fmt::format("no device node {} here", node),
        fmt::format("request EFA for the pod (vpc.amazonaws.com/efa), or start the container with --device={}", node)};
  }
  if (error == EPERM && hca.is_elsewhere) {
    return Block{Obstacle::kRefused,
                 fmt::format("{}: the HCA is in another network namespace (exclusive RDMA mode)", node),
                 "use the host's network (enroot: without ENROOT_UNSHARE_NET), or let rdma-hook move the HCA"};
  }
  if (error == EPERM) return Block{Obstacle::kRefused, node + ": the device cgroup refuses open", kCgroupRemedy};
  if (error == EACCES) {
    return Block{Obstacle::kRefused, node + ": no permission to open it as this user",
                 "make the node's mode 0666, or run as its owner"};
  }
  if (error == 0 || error == ENOENT) {
    return Block{Obstacle::kNoNode, fmt::format("no device node {} here", node), kNodeRemedy};
  }
  return Block{Obstacle::kRefused, fmt::format("{}: {}", node, std::strerror(error)), kNodeRemedy};
}

// Returns the port's own netdev, nullptr if it is not known to be in this network namespace. A snapshot does not record
// it, but the default GID names it. A netdev of this name counts if it is of the HCA's PCI function, or if the table
// has only default GIDs and the function is not known: another network namespace may have a netdev of the same name.
const Netdev* own_netdev(const Inventory& inventory, const Hca& hca, const Port& port, const PortUse& use) {
  if (port.netdev) return fabric::find_netdev(inventory, *port.netdev);
  if (use.of_mac.owner) return use.of_mac.owner;
  const auto name = netdev_on_node(hca, port);
  const Netdev* netdev = name ? fabric::find_netdev(inventory, *name) : nullptr;
  if (!netdev || carries(inventory.netdevs, port.netdev, *netdev) == fabric::Carries::kNo) return nullptr;
  if (hca.pci && netdev->pci == hca.pci) return netdev;
  const auto is_default = [&](const GidEntry& gid) { return gid.gid.is_link_local() && known_text(gid.ndev) == *name; };
  const bool is_likely = !netdev->pci && netdev->addresses.empty() && std::ranges::all_of(port.gids, is_default);
  return is_likely ? netdev : nullptr;
}

// Returns the obstacle of the port's netdev and its addresses.
std::optional<Block> blocked_by_netdev(const Inventory& inventory, const Netdev* of_port, const PortUse& use) {
  if (inventory.net_error) {
    return Block{Obstacle::kAddressesUnknown,
                 fmt::format("addresses of this network namespace are unknown: {}", *inventory.net_error),
                 "allow AF_NETLINK sockets in the seccomp profile"};
  }
  const auto down = [](const Netdev& netdev, std::string reason) {
    // The kernel reads the carrier only of a netdev that is up.
    const int* carrier = std::get_if<int>(&netdev.carrier);
    const std::string name = printable(netdev.name);
    return Block{Obstacle::kNetdevDown, std::move(reason),
                 carrier && *carrier == 0
                     ? fmt::format("check cable and the switch's port of {}{}", name, netdev.slaves ? "'s slaves" : "")
                     : fmt::format("ip link set {} up", name)};
  };
  if (const auto& [gid, netdev, own] = use.on_down_netdev; gid) {
    return down(*netdev, fmt::format("GID {} is {} of {}, which is down or has no carrier", gid->index,
                                     to_string(gid->gid), printable(netdev->name)));
  }
  if (const auto& [gid, netdev, own] = use.of_no_use; gid) {
    const std::string name = printable(netdev->name);
    if (own->peer && own->of_gid() != own->address) {
      return Block{Obstacle::kAddress,
                   fmt::format("GID {} is the peer of {} on {}, with which RDMA does not work", gid->index,
                               to_string(own->address), name),
                   fmt::format("assign an address without peer to {}", name)};
    }
    const std::string what = fmt::format("GID {} is {} of {}", gid->index, to_string(gid->gid), name);
    if (own->dad_failed) {
      return Block{Obstacle::kAddress, what + ", which another host has too (dadfailed)",
                   fmt::format("assign another address to {}", name)};
    }
    return Block{Obstacle::kAddress, what + ", and the test for duplicates has not ended (tentative)",
                 "wait for it, or add the address with `nodad`"};
  }
  // The scan of the GID table ignores netdevs that are down, so their GIDs may be missing.
  if (!of_port || of_port->is_up()) return std::nullopt;
  return down(*of_port, fmt::format("its netdev {} is down or has no carrier", printable(of_port->name)));
}

// Returns the obstacle of the GID table.
std::optional<Block> blocked_by_table(const Port& port, const PortUse& use) {
  if (use.too_high) {
    return Block{Obstacle::kIndexTooHigh,
                 fmt::format("GID index {} is above {}, and a queue pair cannot use it", use.too_high->index,
                             fabric::kUsableGids - 1),
                 "let fewer containers share the HCA"};
  }
  if (use.v1) {
    return Block{Obstacle::kOnlyV1, fmt::format("only RoCE v1 (or iWARP) GIDs, e.g. index {}", use.v1->index),
                 "switch the HCA to RoCE v2"};
  }
  if (use.unreadable) {
    return Block{Obstacle::kTypeUnreadable,
                 fmt::format("type of GID {} ({}) cannot be read, so it may be of RoCE v1", use.unreadable->index,
                             to_string(use.unreadable->gid)),
                 "let the container read all of /sys (ports/N/gid_attrs/types has the type)"};
  }
  if (!port.gids_error) return std::nullopt;
  return Block{Obstacle::kTableUnreadable,
               fmt::format("GID table cannot be read: {}", std::strerror(*port.gids_error))};
}

// Returns the obstacle of a port that is not ACTIVE.
Block blocked_by_state(const Inventory& inventory, const Hca& hca, const Port& port, const PortUse& use) {
  using fabric::InactiveCause;
  std::string reason = fmt::format("port state {} (physical state {})", text_of(port.state), text_of(port.phys_state));
  const Port* of_pf = fabric::port_of_pf(inventory.hcas, hca, port);
  const InactiveCause cause = fabric::inactive_cause(hca, port, of_pf);
  if (cause == InactiveCause::kNoGuid) {
    const bool managed = port.has_subnet_manager() || (of_pf && of_pf->has_subnet_manager());
    reason += fmt::format(": the VF has no GUID{}", managed ? ", and a subnet manager runs" : "");
  } else if (cause == InactiveCause::kUnserved) {
    reason += ": the VF has no LID, although a subnet manager runs";
  } else if (cause == InactiveCause::kPf) {
    reason += fmt::format("; its PF has the state {}", text_of(of_pf->state));
  }
  // The name in a GID table is one of the netdev's own network namespace, and a netdev here may have it too.
  const Netdev* own = own_netdev(inventory, hca, port, use);
  const std::string name = printable(own ? own->name : netdev_on_node(hca, port).value_or("NETDEV"));
  std::string remedy = fabric::inactive_remedy(cause, port, name, "PF");
  const bool is_elsewhere = !own && name != "NETDEV" && remedy.find(name) != std::string::npos;
  return {cause == InactiveCause::kNoGuid ? Obstacle::kNoGuid : Obstacle::kNotActive, std::move(reason),
          is_elsewhere ? "on the node, " + remedy : std::move(remedy)};
}

// Returns the obstacle of a port with its own netdev here, and without a GID for an address of this netdev. GIDs of
// other network namespaces occur beside it and are not the cause.
Block blocked_without_address(const Netdev& netdev, const Port& port, const GidEntry* foreign) {
  const std::string name = printable(netdev.name);
  const std::string remedy = fmt::format("assign an address to {0} (`ip address add ADDRESS/LENGTH dev {0}`)", name);
  if (!netdev.addresses.empty()) return {Obstacle::kNoAddress, "no GID for an address of " + name, remedy};
  // The scan of the table ends at once if no netdev here has an address.
  const char* const default_gids = port.gids.empty() ? "" : ": the port has only the default GIDs of its MAC address";
  return {Obstacle::kNoAddress,
          fmt::format("{} has no address{}", name,
                      foreign ? fmt::format(": GID {} is {}, of another network namespace", foreign->index,
                                            to_string(foreign->gid))
                              : default_gids),
          remedy};
}

// Returns the bond of the port's netdev, if its GID table is empty: the kernel has GIDs only on slaves that are active.
const Netdev* bond_of_inactive(const Inventory& inventory, const Hca& hca, const Port& port) {
  if (!std::ranges::all_of(port.gids, [](const GidEntry& entry) { return entry.gid.is_zero(); })) return nullptr;
  for (const Netdev& netdev : inventory.netdevs) {
    const bool is_own = port.netdev ? netdev.name == *port.netdev : hca.pci && netdev.pci == hca.pci;
    const Netdev* master = is_own && netdev.master ? fabric::find_netdev(inventory, *netdev.master) : nullptr;
    if (master && master->slaves && !master->addresses.empty()) return master;
  }
  return nullptr;
}

// Returns the first cause that applies. Each cause is checked before the causes that follow from it. If the addresses
// of this namespace are unknown, no GID can be attributed to it. A down netdev blocks its GIDs whatever else the table
// has. A v1 or unreadable GID belongs to this namespace, so it is more specific than a table that was read in part.
// An inactive slave of a bond has no address, because the bond has it. GIDs of other namespaces come late: upstream
// kernels list the GIDs of all namespaces (MLNX_OFED does not), so such GIDs occur together with every other cause.
Block blocked_without_gid(const Inventory& inventory, const Hca& hca, const Port& port, const PortUse& use) {
  const Netdev* own = own_netdev(inventory, hca, port, use);
  if (auto found = blocked_by_netdev(inventory, own, use)) return std::move(*found);
  if (auto found = blocked_by_table(port, use)) return std::move(*found);
  // This check precedes the check for GIDs of other namespaces, which would match too: an iWARP GID is no IP address,
  // so no netdev of this namespace has it.
  if (hca.is_iwarp()) {
    return {
        Obstacle::kOnlyV1, "iWARP device: its GID is no IP address, and NCCL needs RoCE v2",
        "switch the HCA to RoCE v2, if its driver can (irdma: roce_ena), or set NCCL_IB_DISABLE=1: NCCL selects this "
        "port, and its connections fail"};
  }
  if (const Netdev* bond = bond_of_inactive(inventory, hca, port)) {
    return {Obstacle::kNoNetdev,
            fmt::format("its GID table is empty: its netdev is an inactive slave of {}", printable(bond->name)),
            "use the HCA of the active slave, or a bond mode in which every slave sends"};
  }
  // A link-local GID does not show the network namespace of an address.
  const GidEntry* foreign = use.foreign && !use.foreign->gid.is_link_local() ? use.foreign : nullptr;
  if (own) return blocked_without_address(*own, port, foreign);
  if (foreign) {
    return {Obstacle::kForeign,
            fmt::format("no GID of this network namespace: index {} is {}, an address of another namespace",
                        foreign->index, to_string(foreign->gid)),
            kNetdevRemedy};
  }
  return {Obstacle::kNoNetdev,
          "no netdev of this HCA in this network namespace, and its GID table has no GID of this namespace",
          kNetdevRemedy};
}

std::string describe(const GidFilter& filter) {
  std::vector<std::string> parts;
  for (const fabric::Cidr& cidr : filter.cidrs)
    parts.push_back(to_string(cidr));
  if (filter.range) parts.push_back(to_string(*filter.range));
  if (filter.family) parts.emplace_back(*filter.family == fabric::Family::kIpv4 ? "IPv4" : "IPv6");
  if (!filter.link_local) parts.emplace_back("not link-local");
  return base::join(parts, ", ");
}

Block filtered(const GidFilter& filter, const GidEntry& entry) {
  return {Obstacle::kFiltered,
          fmt::format("no GID that the options allow ({}): it has {}", describe(filter), to_string(entry.gid)),
          "change --cidr, --family, --no-link-local or NCCL_IB_ADDR_*, or the address"};
}

// Returns the obstacle of an HCA that libibverbs rejects. The state of the port is checked before: a port that is down
// needs its link first, whatever the image has.
std::optional<Block> blocked_by_provider(const Hca& hca) {
  if (!hca.is_rejected()) return std::nullopt;
  return Block{Obstacle::kProvider,
               fmt::format("libibverbs rejects its provider {}: it accepts kernel ABI {} to {}, and the driver has {}",
                           printable(hca.provider->path), hca.provider->min, hca.provider->max, *hca.abi_version),
               kProviderRemedy};
}

// Sets the GIDs and netdevs of a candidate, or its obstacle.
void check_port(const Inventory& inventory, const fabric::OwnAddresses& own, const GidFilter& filter, const Port& port,
                Candidate& candidate) {
  const PortUse use = own.use_of(port);
  switch (use.obstacle) {
    case fabric::PortObstacle::kNone:
      if (auto blocked = blocked_by_provider(*candidate.hca)) return block(candidate, std::move(*blocked));
      break;
    case fabric::PortObstacle::kNotActive:
      return block(candidate, blocked_by_state(inventory, *candidate.hca, port, use));
    case fabric::PortObstacle::kLinkLayer:
      return block(candidate, {Obstacle::kLinkLayer, fmt::format("link layer {}: neither InfiniBand nor Ethernet",
                                                                 text_of(port.link_layer))});
    case fabric::PortObstacle::kNoOwnGid:
      if (auto blocked = blocked_by_provider(*candidate.hca)) return block(candidate, std::move(*blocked));
      return block(candidate, blocked_without_gid(inventory, *candidate.hca, port, use));
  }
  for (const auto& [entry, owner, address] : use.gids) {
    candidate.netdevs.push_back(owner->name);
    if (filter.allows(entry->gid)) {
      candidate.gids.push_back({entry->index, entry->gid, rank_of(entry->gid), owner->name, address->deprecated});
    }
  }
  if (!use.gids.empty() && candidate.gids.empty()) block(candidate, filtered(filter, *use.gids.back().entry));
}

// Returns true if the port is usable in this network namespace, or if a repair in this namespace can make it usable.
bool is_this_netns(const Candidate& candidate) {
  if (candidate.obstacle == Obstacle::kNone || candidate.obstacle == Obstacle::kAddressesUnknown) return true;
  return candidate.obstacle >= Obstacle::kNoAddress && !candidate.hca->is_iwarp();
}

// If the port's netdev is missing, uses the GIDs of the node's addresses instead, if they are known.
void use_node_gids(const GidFilter& filter, Candidate& candidate) {
  if (candidate.obstacle != Obstacle::kNoNetdev && candidate.obstacle != Obstacle::kForeign) return;
  NodeGids node = find_node_gids(*candidate.hca, *candidate.port, filter.node_addresses);
  candidate.needs_table = node.needs_table;
  if (!node.reason.empty()) candidate.reason = node.reason;
  std::erase_if(node.gids, [](const GidEntry* entry) { return entry->index >= fabric::kUsableGids; });
  if (node.gids.empty()) return;
  for (const fabric::GidEntry* entry : node.gids) {
    if (filter.allows(entry->gid)) candidate.gids.push_back({entry->index, entry->gid, rank_of(entry->gid), {}});
  }
  block(candidate, candidate.gids.empty() ? filtered(filter, *node.gids.back()) : Block{Obstacle::kNone, {}});
}

// Collects the names of the port's netdev. A snapshot does not record which netdev is the port's. The netdev is then
// found by the PCI function, which the HCA and the netdev have in common.
void add_netdev_names(const Inventory& inventory, const Hca& hca, const Port& port, Candidate& candidate) {
  std::vector<std::string>& names = candidate.netdevs;
  if (port.netdev) names.insert(names.begin(), *port.netdev);
  const auto of_function = [&](const Netdev& netdev) {
    return !port.netdev && netdev.is_here() && hca.pci && netdev.pci == hca.pci;
  };
  const auto count = std::ranges::count_if(inventory.netdevs, of_function);
  for (const Netdev& netdev : inventory.netdevs) {
    // Drivers count dev_port differently, so a function with one netdev and one port matches without it.
    const bool same_port = static_cast<unsigned>(netdev.dev_port.value_or(0)) + 1 == port.number;
    if (of_function(netdev) && (same_port || (count == 1 && hca.ports.size() == 1))) {
      names.insert(names.begin(), netdev.name);
    }
  }
  std::vector<std::string> unique;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Netdev* netdev = fabric::find_netdev(inventory, names[i]);
    if (netdev && netdev->master && fabric::find_netdev(inventory, *netdev->master)) names.push_back(*netdev->master);
    if (std::ranges::find(unique, names[i]) == unique.end()) unique.push_back(names[i]);
    if (names.size() > 64) break;  // netdevs that are each other's master would make an endless loop
  }
  names = std::move(unique);
}

}  // namespace

base::Result<NodeAddresses> parse_node_addresses(std::string_view text) {
  NodeAddresses addresses;
  for (const std::string_view part : base::split(text, ',')) {
    const std::string_view entry = base::trim(part);
    const auto [port, gid] = base::split_first(entry, '=');
    const std::size_t colon = std::min(port.rfind(':'), port.size());
    const auto number = base::parse_number<unsigned>(port.substr(std::min(colon + 1, port.size())));
    const auto address = fabric::parse_address(gid);
    if (!number || !address || colon == 0) {
      return base::make_error("expected HCA:PORT=ADDRESS, got `{}`", printable(entry));
    }
    addresses[{std::string(port.substr(0, colon)), *number}].push_back(*address);
  }
  return addresses;
}

NodeGids find_node_gids(const fabric::Hca& hca, const Port& port, const std::optional<NodeAddresses>& addresses) {
  if (addresses) {
    const auto own = addresses->find({hca.name, port.number});
    return own == addresses->end() ? NodeGids() : reported_gids(port, own->second);
  }
  const bool is_read = std::ranges::all_of(port.gids, [](const GidEntry& entry) { return entry.ndev.has_value(); });
  // A table that was not read completely may hide a second netdev of the same name, so the complete table is requested.
  if (!port.gids_complete || !is_read) return {{}, {}, !port.gids_error};
  const auto netdev = netdev_on_node(hca, port);
  return netdev ? gids_of_netdev(port, *netdev) : NodeGids();
}

bool GidFilter::allows(const fabric::Address& gid) const {
  if (!link_local && gid.is_link_local()) return false;
  if (family && gid.family() != *family) return false;
  if (range && !range->contains(gid)) return false;
  return cidrs.empty() || std::ranges::any_of(cidrs, [&](const fabric::Cidr& cidr) { return cidr.contains(gid); });
}

std::string_view cause_of(Obstacle obstacle) {
  return kCauses[static_cast<std::size_t>(obstacle)];
}

std::string Candidate::name() const {
  return fmt::format("{}:{}", hca->name, port->number);
}

const UsableGid* Candidate::best(GidRank rank) const {
  const UsableGid* found = nullptr;
  for (const UsableGid& gid : gids) {
    if (gid.rank == rank && (!found || (found->deprecated && !gid.deprecated))) found = &gid;
  }
  return found;
}

const UsableGid* Candidate::best() const {
  const auto first = std::ranges::min_element(gids, {}, &UsableGid::rank);
  return first == gids.end() ? nullptr : best(first->rank);
}

std::vector<Candidate> find_candidates(const Inventory& inventory, const GidFilter& filter) {
  std::vector<Candidate> candidates;
  const fabric::OwnAddresses own(inventory);
  for (const Hca& hca : inventory.hcas) {
    for (const Port& port : hca.ports) {
      Candidate candidate;
      candidate.hca = &hca;
      candidate.port = &port;
      if (auto blocked = blocked_node(hca)) {
        for (const auto& [entry, owner, address] : own.use_of(port).gids)
          candidate.netdevs.push_back(owner->name);
        block(candidate, std::move(*blocked));
      } else {
        check_port(inventory, own, filter, port, candidate);
      }
      add_netdev_names(inventory, hca, port, candidate);
      candidates.push_back(std::move(candidate));
    }
  }
  if (filter.node_gids && std::ranges::none_of(candidates, is_this_netns)) {
    for (Candidate& candidate : candidates)
      use_node_gids(filter, candidate);
  }
  return candidates;
}

std::size_t count_usable_hcas(const std::vector<Candidate>& candidates) {
  std::set<const Hca*> hcas;
  for (const Candidate& candidate : candidates) {
    if (candidate.usable()) hcas.insert(candidate.hca);
  }
  return hcas.size();
}

}  // namespace init
