// Moves the netdev and the RDMA device of one rail into the container's namespace; undo.hpp has the way back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
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
  fabric::UniqueFd netns;
  fabric::UniqueFd sysfs{};  // of open_sysfs(); only if a rail has or gets an identity, or settings are restored
  Ethtool ethtool{};         // opened when a netdev moves
};
fabric::Result<NodeSockets> open_node_sockets();

// Reads the state of the rail's netdev on the node, without changes.
// sys: "/sys", or a file tree's.
// warnings: gets a line for each setting that cannot be restored later.
// Errors: there is no such netdev, or it belongs to another HCA (ENODEV).
fabric::Result<HostNetdev> describe_host(NodeSockets& node, const Rail& rail, const fabric::Hca* hca,
                                         const std::string& sys, std::vector<std::string>& warnings);

// Moves the netdev inside, or makes its child there, and leaves it down. Order of a move: VF attributes, RDMA device,
// netdev. With IPoIB the kernel makes another netdev when the RDMA device moves, on the node or (Linux 6.16) inside,
// and this moves that one.
// Returns the ifindex inside.
fabric::Result<int> place_rail(NodeSockets& node, NetworkNamespace& inside, const RailRecord& rail,
                               std::uint32_t group);

// Makes the software RDMA device of a netdev that moved again, on that netdev. The netdev must be up.
fabric::Result<void> recreate_inside(NodeSockets& node, NetworkNamespace& inside, const RailRecord& record);

// Used by the way in and the way back.
bool is_ipoib(const HostNetdev& host);
// Returns the node GUID of the rail's RDMA device; 0: the record has none.
std::uint64_t guid_on_record(const RailRecord& rail);
// Finds the recorded netdev in the namespace of `route`: by its identity if the record has one, which needs sysfs; else
// as find_netdev().
// Errors: the identity is known and sysfs is not open (EPERM).
fabric::Result<std::optional<Link>> find_recorded_netdev(Netlink& route, const fabric::UniqueFd& sysfs,
                                                         const std::string& name, const HostNetdev& host);
// Finds the recorded netdev by kind, bus address and MAC addresses; prefers one with this name. Returns nullopt if no
// link matches, or several do and neither name nor MAC address decides. Pure.
std::optional<Link> find_netdev(const std::vector<Link>& links, const std::string& name, const HostNetdev& host);
// Sets attributes of the VF. Success if there are none. Errors: the physical function's netdev is gone; the driver
// refuses one.
fabric::Result<void> set_vf(NodeSockets& node, const HostNetdev& host, const VfAttributes& attributes);

}  // namespace hook
