// Moves the netdev and the RDMA device of one rail into the container's namespace. RailRestorer (restore_rails.hpp)
// restores them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/rails/netlink/links.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/record/network.hpp"

namespace fabric {
struct Hca;
}

namespace hook {

// Sockets and descriptors of the node's network namespace, in which the hook runs.
struct NodeSockets {
  Netlink route;
  std::optional<Netlink> rdma;  // nullopt: the kernel has no RDMA netlink
  base::UniqueFd netns;
  // The sysfs of the node's network namespace, from open_sysfs(). The descriptor is open only if the identity of a
  // netdev is read (netdev_identity()), or if settings in sysfs are restored.
  base::UniqueFd sysfs{};
  Ethtool ethtool{};  // the socket is opened when the first netdev moves
};
base::Result<NodeSockets> open_node_sockets();

// Reads the state of the rail's netdev on the node, without changes.
// sys: "/sys", or the sys directory of a file tree.
// warnings: gets a line for each setting that cannot be restored later.
// Errors: ENODEV, there is no such netdev, or the netdev belongs to another HCA; the state of a moving netdev cannot be
// read.
base::Result<HostNetdev> describe_host(NodeSockets& node, const Rail& rail, const fabric::Hca* hca,
                                       const std::string& sys, std::vector<std::string>& warnings);

// Moves the netdev into the container's namespace, or makes a child of it there. Leaves the netdev or child down. A
// move has this order: VF attributes, RDMA device, netdev. With IPoIB the netdev ends when the RDMA device moves, and
// the kernel makes a new one: on the node, or since Linux 6.16 in the container's namespace. The rail then gets the new
// netdev, which is moved from the node or, in the namespace, only renamed.
// Returns the ifindex in the container's namespace.
base::Result<int> place_rail(NodeSockets& node, NetworkNamespace& inside, const RailRecord& rail, std::uint32_t group);

// Makes the software RDMA device of a netdev again after the netdev moved. The netdev must be up. Does nothing if the
// rail has no software RDMA device.
base::Result<void> recreate_inside(NodeSockets& node, NetworkNamespace& inside, const RailRecord& record);

// Functions that place_rail.cpp and restore_rail.cpp use.
bool is_ipoib(const HostNetdev& host);
// Returns the node GUID of the rail's RDMA device; 0 if the record has none.
std::uint64_t guid_on_record(const RailRecord& rail);
// Finds the recorded netdev in the namespace of `route`: by its identity (netdev_identity()) if the record has one,
// which needs an open `sysfs`; otherwise like find_netdev().
// name: the name that find_netdev() prefers.
// Errors: EPERM, the record has an identity and `sysfs` is not open; EAGAIN, as find_by_identity().
base::Result<std::optional<Link>> find_recorded_netdev(Netlink& route, const base::UniqueFd& sysfs,
                                                       const std::string& name, const HostNetdev& host);
// Finds the recorded netdev by kind, bus address and MAC addresses; prefers a netdev with this name. Returns nullopt if
// no link matches, or several match and neither name nor MAC address decides. Pure.
std::optional<Link> find_netdev(const std::vector<Link>& links, const std::string& name, const HostNetdev& host);
// Sets attributes of the VF; does nothing if there are none. Errors: the netdev of the physical function is gone; the
// driver refuses an attribute.
base::Result<void> set_vf(NodeSockets& node, const HostNetdev& host, const VfAttributes& attributes);

}  // namespace hook
