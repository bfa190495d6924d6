#include "fabric/port_use.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace fabric {
namespace {

constexpr int kMaxStack = 8;  // MAX_NEST_DEV (include/linux/netdevice.h, Linux 6.12); also ends a loop in hostile input
constexpr int kLoopbackType = 772;

// Returns the netdev with the ifindex. Returns nullptr if no netdev has it, or if it is 0, which means "not known".
const Netdev* by_ifindex(const std::vector<Netdev>& netdevs, int ifindex) {
  if (ifindex == 0) return nullptr;
  const auto found = std::ranges::find(netdevs, ifindex, &Netdev::ifindex);
  return found == netdevs.end() ? nullptr : &*found;
}

// Returns true for kinds with exactly one lower netdev, which carries their traffic.
bool stacks(const Netdev& netdev) {
  return netdev.kind && (*netdev.kind == "macvlan" || *netdev.kind == "macvtap" || *netdev.kind == "ipvlan" ||
                         *netdev.kind == "ipvtap" || *netdev.kind == "vlan");
}

// Returns the address in fe80::/64 that a MAC address yields, zero if the text is no MAC address of six bytes
// (addrconf_addr_eui48(), include/net/addrconf.h, Linux 6.12).
Address link_local_of(std::string_view mac) {
  const auto parts = base::split(mac, ':');
  if (parts.size() != 6) return {};
  Address address{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0}};
  for (std::size_t i = 0; i < parts.size(); ++i)
    address.bytes[i < 3 ? 8 + i : 10 + i] = base::parse_number<std::uint8_t>(parts[i], 16).value_or(0);
  address.bytes[8] ^= 2;
  return address;
}

// Returns the lowest netdev below `netdev` as a pair: the id of its network namespace (nullopt: this one), and its
// ifindex.
std::pair<std::optional<int>, int> bottom_of(const std::vector<Netdev>& netdevs, const Netdev& netdev) {
  const Netdev* current = &netdev;
  for (int depth = 0; depth < kMaxStack && stacks(*current); ++depth) {
    // An ifindex of another namespace must not be looked up here, where it may denote another netdev.
    if (current->lower_netns_id) return {current->lower_netns_id, current->lower_ifindex};
    const Netdev* lower = by_ifindex(netdevs, current->lower_ifindex);
    if (!lower) break;
    current = lower;
  }
  return {std::nullopt, current->ifindex};
}

bool is_master_of(const Netdev& master, const Netdev& slave) {
  // Live netdevs have ifindexes; snapshots have names only.
  return (master.ifindex != 0 && master.ifindex == slave.master_ifindex) || slave.master == master.name;
}

// Answers questions about the netdevs of one port. A machine has a netdev for each port, so each question visits only
// the netdevs that can matter: with 64 ports, half of the time of a start were these visits.
class NetdevStack {
 public:
  // Not inline, because two copies would make rdma-init larger.
  [[gnu::noinline]] NetdevStack(const std::vector<Netdev>& netdevs, const std::optional<std::string>& port_netdev)
      : netdevs_(netdevs), name_(port_netdev) {
    for (const Netdev& netdev : netdevs) {
      if (netdev.master_ifindex != 0 || netdev.master) slaves_.push_back(&netdev);
      if (!own_ && port_netdev && netdev.is_here() && netdev.name == *port_netdev) own_ = &netdev;
    }
  }

  // Walks down from `upper`: from a stacked netdev to its lower netdev, from a bond or bridge to its slaves.
  bool is_over(const Netdev& upper, const Netdev& lower, int depth = kMaxStack) const {
    if (&upper == &lower || upper.name == lower.name) return true;
    if (depth == 0) return false;
    if (is_master_of(upper, lower)) return true;
    if (stacks(upper)) {
      const Netdev* next = upper.lower_netns_id ? nullptr : by_ifindex(netdevs_, upper.lower_ifindex);
      return next && is_over(*next, lower, depth - 1);
    }
    return std::ranges::any_of(
        slaves_, [&](const Netdev* slave) { return is_master_of(upper, *slave) && is_over(*slave, lower, depth - 1); });
  }

  Carries carries(const Netdev& netdev) const {
    // The loopback netdev gives GIDs to no port, unless it is the own netdev of a software device.
    if (netdev.type == kLoopbackType && netdev.name != name_) return Carries::kNo;
    if (own_ ? is_over(netdev, *own_) : leaves_netns(netdevs_, netdev)) return Carries::kYes;
    // A netdev with a kind (veth, bridge, VLAN) that is not stacked on this port's netdev gives the port no GIDs. A
    // netdev without a kind may do so: it is hardware, or its kind was not read.
    return netdev.kind ? Carries::kNo : Carries::kMaybe;
  }

 private:
  const std::vector<Netdev>& netdevs_;
  const std::optional<std::string>& name_;
  const Netdev* own_ = nullptr;          // the port's netdev if it is in this network namespace
  std::vector<const Netdev*> slaves_{};  // netdevs with a master
};

}  // namespace

bool is_stacked_on(const std::vector<Netdev>& netdevs, const Netdev& upper, const Netdev& lower) {
  return NetdevStack(netdevs, {}).is_over(upper, lower);
}

bool leaves_netns(const std::vector<Netdev>& netdevs, const Netdev& netdev) {
  return stacks(netdev) && bottom_of(netdevs, netdev).first.has_value();
}

Carries carries(const std::vector<Netdev>& netdevs, const std::optional<std::string>& port_netdev,
                const Netdev& netdev) {
  return NetdevStack(netdevs, port_netdev).carries(netdev);
}

GidSearch::GidSearch(const std::vector<Netdev>& netdevs, const std::optional<std::string>& port_netdev) {
  const auto add = [&](const Netdev& netdev, std::size_t group) {
    for (const InterfaceAddress& own : netdev.addresses)
      candidates_.push_back({own.of_gid(), group, false});
  };
  std::map<std::pair<std::optional<int>, int>, std::size_t> groups;
  const NetdevStack of_port(netdevs, port_netdev);
  for (const Netdev& netdev : netdevs) {
    if (!netdev.is_here() || !netdev.is_up()) continue;
    const Carries verdict = of_port.carries(netdev);
    if (port_netdev) {
      if (verdict == Carries::kYes) add(netdev, 0);
    } else if (verdict != Carries::kNo) {
      // The port's own netdev is in another namespace, so it is not known yet which netdevs are stacked on it. Netdevs
      // over the same lower netdev form a group. All netdevs without a kind form one more group, so that no GID is
      // missed.
      const auto key = netdev.kind ? bottom_of(netdevs, netdev) : std::pair<std::optional<int>, int>{std::nullopt, 0};
      add(netdev, groups.try_emplace(key, groups.size()).first->second);
    }
  }
  if (port_netdev) group_ = 0;
}

bool GidSearch::found_v2(const Address& gid) {
  std::optional<std::size_t> group;
  bool ambiguous = false;
  for (Candidate& candidate : candidates_) {
    if (candidate.address != gid) continue;
    candidate.found = true;
    // If netdevs over two ports have this address, the GID does not identify the port.
    ambiguous |= group && *group != candidate.group;
    group = candidate.group;
  }
  // A group has the netdevs over one lower netdev (see the constructor), so its addresses are GIDs of one port only.
  // The first GID of this port that is an address of exactly one group therefore identifies the group of this port.
  if (!group_ && group && !ambiguous) group_ = group;
  return group.has_value();
}

bool GidSearch::wants(const Address& gid) const {
  return std::ranges::find(candidates_, gid, &Candidate::address) != candidates_.end();
}

bool GidSearch::any() const {
  return std::ranges::any_of(candidates_, &Candidate::found);
}

bool GidSearch::complete() const {
  // While the group of this port is unknown, a further slot may match any candidate, so the search is complete only
  // without candidates.
  if (!group_) return candidates_.empty();
  return std::ranges::all_of(
      candidates_, [this](const Candidate& candidate) { return candidate.found || candidate.group != *group_; });
}

OwnAddresses::OwnAddresses(const Inventory& inventory) : inventory_(inventory) {
  for (const Netdev& netdev : inventory.netdevs) {
    if (!netdev.is_here()) continue;
    for (const InterfaceAddress& own : netdev.addresses)
      owners_.emplace(own.of_gid(), std::pair(&netdev, &own));
  }
}

// Returns the netdev that has the address of the GID; if several have it, one that is up with an address that serves.
// Its owner is nullptr if the GID belongs to another network namespace. Skips a netdev that cannot carry GIDs of this
// port, such as a bridge over other netdevs: it may have the same address by chance.
OwnGid OwnAddresses::find_owner(const Port& port, const GidEntry& entry) const {
  OwnGid found{&entry};
  for (auto [known, end] = owners_.equal_range(entry.gid); known != end; ++known) {
    const auto& [netdev, own] = known->second;
    if (carries(inventory_.netdevs, port.netdev, *netdev) == Carries::kNo) continue;
    const bool better = !found.owner || !found.owner->is_up() || (netdev->is_up() && !found.own->serves());
    if (better) found = {&entry, netdev, own};
  }
  return found;
}

// Returns the default GID of a netdev here: the kernel makes it of the MAC address, whether the netdev has that address
// or not, and puts it into the first slots, one for each type.
OwnGid OwnAddresses::find_default_gid(const Port& port) const {
  OwnGid found;
  for (const GidEntry& entry : port.gids) {
    if (entry.index > 1) break;
    for (const Netdev& netdev : inventory_.netdevs) {
      if (netdev.is_here() && netdev.mac && link_local_of(*netdev.mac) == entry.gid &&
          carries(inventory_.netdevs, port.netdev, netdev) != Carries::kNo)
        found = {&entry, &netdev};
    }
  }
  return found;
}

void OwnAddresses::survey_gids(const Port& port, PortUse& use) const {
  for (const GidEntry& entry : port.gids) {
    if (entry.gid.is_zero()) continue;
    const OwnGid own = find_owner(port, entry);
    if (!own.owner) {
      // `foreign` is an example for a message. Prefer a global GID: a link-local GID does not show its network
      // namespace.
      if (!use.foreign || use.foreign->gid.is_link_local()) use.foreign = &entry;
    } else if (!own.owner->is_up()) {
      use.on_down_netdev = own;
    } else if (!own.own->serves()) {
      use.of_no_use = own;
    } else if (entry.is_v2() && entry.index >= kUsableGids) {
      use.too_high = &entry;
    } else if (entry.is_v2()) {
      use.gids.push_back(own);
    } else if (entry.is_v1()) {
      use.v1 = &entry;
    } else {
      use.unreadable = &entry;
    }
  }
}

PortUse OwnAddresses::use_of(const Port& port) const {
  PortUse use;
  use.obstacle = port.obstacle();
  // InfiniBand GIDs are not tied to a network namespace, so an InfiniBand port is usable without this check.
  if (!use.usable() || !port.is_ethernet()) return use;
  survey_gids(port, use);
  if (!use.gids.empty()) return use;
  use.obstacle = PortObstacle::kNoOwnGid;
  use.of_mac = find_default_gid(port);
  return use;
}

PortObstacle obstacle_of_rail(const Hca& hca, const Port& port) {
  if (const PortObstacle obstacle = port.obstacle(); obstacle != PortObstacle::kNone) return obstacle;
  if (!port.is_ethernet()) return PortObstacle::kNone;
  // If all GIDs of a port are of RoCE v1, the GIDs of a new address will also be of v1.
  const bool is_v1 =
      std::ranges::any_of(port.gids, &GidEntry::is_v1) && std::ranges::none_of(port.gids, &GidEntry::is_v2);
  return is_v1 || hca.is_iwarp() ? PortObstacle::kNoOwnGid : PortObstacle::kNone;
}

}  // namespace fabric
