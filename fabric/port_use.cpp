#include "fabric/port_use.hpp"

#include <algorithm>

#include "fabric/netdev_map.hpp"

namespace fabric {

OwnAddresses::OwnAddresses(const Inventory& inventory) : inventory_(inventory) {
  for (const Netdev& netdev : inventory.netdevs) {
    if (!netdev.is_here()) continue;
    for (const InterfaceAddress& own : netdev.addresses)
      owners_.emplace(own.address, &netdev);
  }
}

// The netdev that the GID is of, one that is up if there is a choice; nullptr if it is another netns'. The same address
// may be there by chance, on a bridge for one, which no GID of this port can be of.
const Netdev* OwnAddresses::find_owner(const Port& port, const Address& gid) const {
  const Netdev* owner = nullptr;
  for (auto [entry, end] = owners_.equal_range(gid); entry != end; ++entry) {
    const Netdev& netdev = *entry->second;
    if (carries(inventory_.netdevs, port.netdev, netdev) == Carries::kNo) continue;
    if (netdev.is_up()) return &netdev;
    owner = &netdev;
  }
  return owner;
}

void OwnAddresses::survey_gids(const Port& port, PortUse& use) const {
  for (const GidEntry& entry : port.gids) {
    if (entry.gid.is_zero()) continue;
    const Netdev* owner = find_owner(port, entry.gid);
    if (!owner) {
      // A link-local GID says least about whose table it is.
      if (!use.foreign || use.foreign->gid.is_link_local()) use.foreign = &entry;
    } else if (!owner->is_up()) {
      use.on_down_netdev = {&entry, owner};
    } else if (entry.is_v2()) {
      use.gids.push_back({&entry, owner});
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
  if (!use.usable() || !port.is_ethernet()) return use;
  survey_gids(port, use);
  if (use.gids.empty()) use.obstacle = PortObstacle::kNoOwnGid;
  return use;
}

PortObstacle obstacle_of_rail(const Hca& hca, const Port& port) {
  if (const PortObstacle obstacle = port.obstacle(); obstacle != PortObstacle::kNone) return obstacle;
  if (!port.is_ethernet()) return PortObstacle::kNone;
  const auto has = [&](bool (GidEntry::*is_it)() const) {
    return std::any_of(port.gids.begin(), port.gids.end(), [&](const GidEntry& gid) { return (gid.*is_it)(); });
  };
  const bool is_v1 = has(&GidEntry::is_v1) && !has(&GidEntry::is_v2);
  return is_v1 || hca.is_iwarp() ? PortObstacle::kNoOwnGid : PortObstacle::kNone;
}

}  // namespace fabric
