// RDMA devices by RDMA netlink: moving between network namespaces, making software ones
// (include/uapi/rdma/rdma_netlink.h, drivers/infiniband/core/nldev.c, Linux 6.12).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {

struct RdmaDevice {
  // Stays at moves and renames, and is not used again: xa_alloc_cyclic() in assign_name(), drivers/infiniband/core/
  // device.c. Only a driver that is bound anew registers another one.
  std::uint32_t index = 0;
  std::string name;
  std::uint64_t node_guid = 0;  // 0: none, or it says nothing
  friend bool operator==(const RdmaDevice&, const RdmaDevice&) = default;
};

// The devices that the socket's namespace sees: its own, or in shared mode all of the node.
fabric::Result<std::vector<RdmaDevice>> rdma_devices(Netlink& rdma);
fabric::Result<std::optional<RdmaDevice>> find_rdma_device(Netlink& rdma, std::string_view name);
// The same, to be found again by the function below: with a node GUID only if no other device has it, nor can a
// software one that a container makes.
fabric::Result<std::optional<RdmaDevice>> describe_rdma_device(Netlink& rdma, std::string_view name);
// What that described, whatever it is called now: by its index, else by its node GUID.
fabric::Result<std::optional<RdmaDevice>> find_rdma_device(Netlink& rdma, const RdmaDevice& known);
// The software device of this node GUID, whatever its name; of several, as rxe and siw on one netdev, the one that has
// this name. GUID 0: by name. nullopt: none, or several under other names.
fabric::Result<std::optional<RdmaDevice>> find_software_device(Netlink& rdma, std::uint64_t node_guid,
                                                               std::string_view name);
// "5054:00ff:fe12:3456" of sysfs. 0: no node GUID.
std::uint64_t parse_node_guid(std::string_view text);
// The node GUID that rxe and siw make of their netdev's MAC (addrconf_addr_eui48()). 0: not of six bytes.
std::uint64_t node_guid_of_mac(const std::vector<std::uint8_t>& mac);
// Moves it into the namespace that the descriptor is of; needs exclusive mode and a driver that can let go of its
// users. The calling process has to be in the device's namespace itself, a socket of there is not enough: the kernel
// compares with current->nsproxy (ib_device_set_netns_put(), and ENODEV of rdma_dev_change_netns()). Errors with
// remedy: EOPNOTSUPP (shared mode, or a software device: make it anew inside), EBUSY, EPERM, EEXIST (its name is taken
// there).
fabric::Result<void> move_rdma_device(Netlink& rdma, std::uint32_t index, int netns);
// The way back, by a child that joins `from`. Errors: as move_rdma_device().
fabric::Result<void> move_rdma_device_from(int from, std::uint32_t index, int to);
fabric::Result<void> rename_rdma_device(Netlink& rdma, std::uint32_t index, std::string_view name);
// type: "rxe", "siw". netdev: in the socket's namespace. Errors with remedy: EINVAL (the kernel has no such type),
// ENODEV (no such netdev), ENFILE (the name is taken), EEXIST (the netdev has one already).
fabric::Result<void> create_rdma_link(Netlink& rdma, std::string_view name, std::string_view type,
                                      std::string_view netdev);
// By its index. Success when there is no such device. Errors with remedy: EINVAL (it is hardware).
fabric::Result<void> delete_rdma_link(Netlink& rdma, const RdmaDevice& device);

// What the above send (null without memory), and what a refusal means to people. Pure.
NetlinkMessage rdma_move_request(std::uint32_t index, int netns);
NetlinkMessage rdma_rename_request(std::uint32_t index, std::string_view name);
NetlinkMessage rdma_link_request(std::string_view name, std::string_view type, std::string_view netdev);
NetlinkMessage rdma_unlink_request(std::uint32_t index);
// ENFILE means in all three that an RDMA device has this name, in whatever network namespace.
// shared_mode: whether the RDMA subsystem is shared between network namespaces; nullopt: not known.
fabric::Error explain_rdma_move(fabric::Error refusal, std::optional<bool> shared_mode);
fabric::Error explain_rdma_rename(fabric::Error refusal);
fabric::Error explain_rdma_link(fabric::Error refusal, std::string_view type);

// The uverbs node of a device. sysfs: a descriptor of /sys. node_guid: 0: any. nullopt: the device has none (yet), is
// not visible there, or the name is that of a device with another node GUID.
std::optional<NewNode> find_uverbs(int sysfs, const std::string& hca, std::uint64_t node_guid = 0);

}  // namespace hook
