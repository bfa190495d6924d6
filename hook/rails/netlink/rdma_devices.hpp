// RDMA devices by RDMA netlink: moving between network namespaces, making software ones
// (include/uapi/rdma/rdma_netlink.h, drivers/infiniband/core/nldev.c, Linux 6.12).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/netlink.hpp"
#include "hook/base/result.hpp"
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
Result<std::vector<RdmaDevice>> rdma_devices(Netlink& rdma);
Result<std::optional<RdmaDevice>> find_rdma_device(Netlink& rdma, std::string_view name);
// The same, to be found again by the function below: with a node GUID only if no other device has it, nor can a
// software one that a container makes.
Result<std::optional<RdmaDevice>> describe_rdma_device(Netlink& rdma, std::string_view name);
// What that described, whatever it is called now: by its index, else by its node GUID.
Result<std::optional<RdmaDevice>> find_rdma_device(Netlink& rdma, const RdmaDevice& known);
// The software device of this node GUID, whatever its name; of several, as rxe and siw on one netdev, the one that has
// this name. GUID 0: by name. nullopt: none, or several under other names.
Result<std::optional<RdmaDevice>> find_software_device(Netlink& rdma, std::uint64_t node_guid, std::string_view name);
// "5054:00ff:fe12:3456" of sysfs. 0: no node GUID.
std::uint64_t parse_node_guid(std::string_view text);
// The node GUID that rxe and siw make of their netdev's MAC (addrconf_addr_eui48()). 0: not of six bytes.
std::uint64_t node_guid_of_mac(const std::vector<std::uint8_t>& mac);
// Moves it into the namespace that the descriptor is of; needs exclusive mode and a driver that can let go of its
// users. The calling process has to be in the device's namespace itself, a socket of there is not enough: the kernel
// compares with current->nsproxy (ib_device_set_netns_put(), and ENODEV of rdma_dev_change_netns()). Errors with
// remedy: EOPNOTSUPP (shared mode, or a software device: make it anew inside), EBUSY, EPERM, EEXIST (its name is taken
// there).
Result<void> move_rdma_device(Netlink& rdma, std::uint32_t index, int netns);
// The way back, by a child that joins `from`. Errors: as move_rdma_device().
Result<void> move_rdma_device_from(int from, std::uint32_t index, int to);
Result<void> rename_rdma_device(Netlink& rdma, std::uint32_t index, std::string_view name);
// type: "rxe", "siw". netdev: in the socket's namespace. Errors with remedy: EINVAL (the kernel has no such type),
// ENODEV (no such netdev), ENFILE (the name is taken), EEXIST (the netdev has one already).
Result<void> create_rdma_link(Netlink& rdma, std::string_view name, std::string_view type, std::string_view netdev);
// By its index. Success when there is no such device. Errors with remedy: EINVAL (it is hardware).
Result<void> delete_rdma_link(Netlink& rdma, const RdmaDevice& device);

// What the above send (null without memory), and what a refusal means to people. Pure.
NetlinkMessage rdma_move_request(std::uint32_t index, int netns);
NetlinkMessage rdma_rename_request(std::uint32_t index, std::string_view name);
NetlinkMessage rdma_link_request(std::string_view name, std::string_view type, std::string_view netdev);
NetlinkMessage rdma_unlink_request(std::uint32_t index);
// ENFILE means in all three that an RDMA device has this name, in whatever network namespace.
// shared_mode: whether the RDMA subsystem is shared between network namespaces; nullopt: not known.
Error explain_rdma_move(Error refusal, std::optional<bool> shared_mode);
Error explain_rdma_rename(Error refusal);
Error explain_rdma_link(Error refusal, std::string_view type);

// The uverbs node of a device. sysfs: a descriptor of /sys. node_guid: 0: any. nullopt: the device has none (yet), is
// not visible there, or the name is that of a device with another node GUID.
std::optional<NewNode> find_uverbs(int sysfs, const std::string& hca, std::uint64_t node_guid = 0);

// Contexts that are open on RDMA devices, by RDMA netlink: fill_res_info() and res_get_common_dumpit() of
// drivers/infiniband/core/nldev.c, Linux 6.12.

// One RDMA device and the number of user contexts on it. The kernel has no contexts of its own.
struct RdmaUse {
  std::uint32_t index = 0;  // as RdmaDevice has it
  std::string name;
  std::uint64_t contexts = 0;
  friend bool operator==(const RdmaUse&, const RdmaUse&) = default;
};

// Lists the devices that this network namespace sees, with four system calls for up to 64 devices. Returns nullopt if
// this kernel has no RDMA netlink, or none that counts contexts (before Linux 4.17).
Result<std::optional<std::vector<RdmaUse>>> rdma_use();

struct RdmaContext {
  std::uint32_t id = 0;          // unique on its device, and not used again soon
  std::vector<pid_t> processes;  // as known in this PID namespace, ascending; empty: none is known
  friend bool operator==(const RdmaContext&, const RdmaContext&) = default;
};

// The contexts of one device. A context names the process that opened it, until that process ends. PDs, QPs and MRs
// name those that made them. Before Linux 5.14 contexts cannot be listed: they are numbered from 0, and each gets all
// processes of the device.
Result<std::vector<RdmaContext>> rdma_contexts(const RdmaUse& device);

// Collects the entries of the tables. Pure.
class RdmaContextTable {
 public:
  void add_context(const fabric::netlink::Attributes& entry);
  void add_domain(const fabric::netlink::Attributes& entry);     // a PD
  void add_in_domain(const fabric::netlink::Attributes& entry);  // a QP or MR: after all PDs
  std::vector<RdmaContext> take() &&;
  // For a kernel that does not list contexts: so many, numbered from 0, each with all processes.
  std::vector<RdmaContext> number(std::uint64_t count) &&;

 private:
  void add(std::optional<std::uint32_t> context, const fabric::netlink::Attributes& entry);
  std::map<std::uint32_t, std::vector<pid_t>> contexts_;
  std::map<std::uint32_t, std::uint32_t> domains_;  // context by PD
  std::vector<pid_t> all_;
};

// What one message of the kernel says of a device; nullopt: it is of another kind. Pure.
std::optional<RdmaUse> parse_rdma_use(const fabric::netlink::Attributes& device);

}  // namespace hook
