// The netdev and the RDMA device of one rail: into the container's namespace, and back onto the node.
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

// The node's side: sockets and descriptor of the namespace that the hook itself is in.
struct NodeSockets {
  Netlink route;
  std::optional<Netlink> rdma;  // nullopt: the kernel has none
  fabric::UniqueFd netns;
  fabric::UniqueFd sysfs{};  // as open_sysfs(), only where a rail has or gets an identity, or settings are restored
  Ethtool ethtool{};         // opened where a netdev moves
};
fabric::Result<NodeSockets> open_node_sockets();

// What the rail's netdev on the node is like now; nothing is changed. sys: "/sys", or a file tree's. warnings: what
// of it will not be put back. Errors: there is no such netdev.
fabric::Result<HostNetdev> describe_host(NodeSockets& node, const Rail& rail, const fabric::Hca* hca,
                                         const std::string& sys, std::vector<std::string>& warnings);

// Moves the netdev in, or makes its child there; VF attributes first, then the RDMA device, then the netdev: with IPoIB
// the kernel makes another netdev when the RDMA device moves, on the node or (Linux 6.16) inside, and that one is
// moved. It is down then. Returns its ifindex inside.
fabric::Result<int> place_rail(NodeSockets& node, NetworkNamespace& inside, const RailRecord& rail,
                               std::uint32_t group);

// The software RDMA device of a netdev that moved, made anew on it. Once it is up.
fabric::Result<void> recreate_inside(NodeSockets& node, NetworkNamespace& inside, const RailRecord& record);

// Parts of both ways.
bool is_ipoib(const HostNetdev& host);
// The node GUID of its RDMA device; 0: none is on record.
std::uint64_t guid_on_record(const RailRecord& rail);
// The host's netdev in that namespace: by its identity if that is known, and then sysfs must be there; else by what it
// is, its name first where several may be. nullopt: none is, or several may be.
fabric::Result<std::optional<Link>> find_given(Netlink& route, const fabric::UniqueFd& sysfs, const std::string& name,
                                               const HostNetdev& host);
std::optional<Link> find_netdev(const std::vector<Link>& links, const std::string& name, const HostNetdev& host);
// Sets the attributes; success when there are none. Errors: the physical function's netdev is gone, the driver's.
fabric::Result<void> set_vf(NodeSockets& node, const HostNetdev& host, const VfAttributes& attributes);

}  // namespace hook
