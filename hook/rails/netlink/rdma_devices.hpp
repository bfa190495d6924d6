// RDMA devices by RDMA netlink: finds and renames them, moves them between network namespaces, makes and deletes
// software devices (include/uapi/rdma/rdma_netlink.h, drivers/infiniband/core/nldev.c, Linux 6.12).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fabric/read_network.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {

struct RdmaDevice {
  // The index stays the same when the device is moved or renamed, and no later device gets it (xa_alloc_cyclic() in
  // assign_name(), drivers/infiniband/core/device.c). If the driver is bound again, the device gets another index.
  std::uint32_t index = 0;
  std::string name;
  std::uint64_t node_guid = 0;  // 0: unknown, or another device can have the same GUID
  friend bool operator==(const RdmaDevice&, const RdmaDevice&) = default;
};

// Reads the devices that the socket's namespace shows: all devices of the node if the RDMA subsystem is shared,
// otherwise those of the namespace.
Result<std::vector<RdmaDevice>> rdma_devices(Netlink& rdma);
// Returns the device with this name; nullopt if there is none.
Result<std::optional<RdmaDevice>> find_rdma_device(Netlink& rdma, std::string_view name);
// Returns the device with this name, with the index and GUID by which find_rdma_device(rdma, known) finds it later;
// nullopt if there is none. node_guid is set only if it identifies the device: the GUID is unique, and a container
// cannot make a software device that has it.
Result<std::optional<RdmaDevice>> describe_rdma_device(Netlink& rdma, std::string_view name);
// Returns the device that describe_rdma_device() returned earlier, even if it was renamed; nullopt if it is gone.
// Compares the index first, then the node GUID.
Result<std::optional<RdmaDevice>> find_rdma_device(Netlink& rdma, const RdmaDevice& known);
// Returns the software device with this node GUID, whatever its name is. If several devices have the GUID, such as rxe
// and siw on one netdev, returns the one with this name. With GUID 0, searches only the name. Returns nullopt if there
// is no such device, or if several have the GUID and none has the name.
Result<std::optional<RdmaDevice>> find_software_device(Netlink& rdma, std::uint64_t node_guid, std::string_view name);
// Parses a GUID of sysfs, such as "5054:00ff:fe12:3456"; 0 if it is no node GUID.
std::uint64_t parse_node_guid(std::string_view text);
// Returns the node GUID that rxe and siw make from the MAC address of their netdev (addrconf_addr_eui48()); 0 if the
// address does not have six bytes.
std::uint64_t node_guid_of_mac(const std::vector<std::uint8_t>& mac);
// Moves a device into another namespace. The RDMA subsystem must be exclusive, and the driver must be able to
// disconnect the users of the device. The calling process must be in the namespace of the device. A socket of that
// namespace is not enough, because the kernel compares with current->nsproxy (ib_device_set_netns_put(), and ENODEV of
// rdma_dev_change_netns()).
// netns: a descriptor of the target.
// Errors, with remedy: EOPNOTSUPP (the RDMA subsystem is shared; or a software device, which has to be made again in
// the target), EBUSY, EPERM, EEXIST (the name is taken in the target).
Result<void> move_rdma_device(Netlink& rdma, std::uint32_t index, int netns);
// Moves a device from another namespace: a child process joins `from` and moves it. Errors: those of
// move_rdma_device().
Result<void> move_rdma_device_from(int from, std::uint32_t index, int to);
// Renames a device. Errors, with remedy: EEXIST and ENFILE (the name is taken).
Result<void> rename_rdma_device(Netlink& rdma, std::uint32_t index, std::string_view name);
// Restores the name of a device of the node. A container with CAP_NET_ADMIN can rename its device, and use the old name
// for another device. Names are unique among all namespaces, so the other device is renamed first. elsewhere: socket of
// the container's namespace; may be nullptr. warnings: gets a line if another device was renamed. Errors, with remedy:
// EEXIST, a device of another container has the name; those of rename_rdma_device().
Result<void> restore_rdma_name(Netlink& rdma, Netlink* elsewhere, const RdmaDevice& device, const std::string& name,
                               std::vector<std::string>& warnings);
// Renames the device `name` to a name that a container cannot predict. Searches the device on the node, then elsewhere.
// Returns false if neither has it.
Result<bool> free_rdma_name(Netlink& rdma, Netlink* elsewhere, const std::string& name,
                            std::vector<std::string>& warnings);
// Makes a software device on a netdev of the socket's namespace. type: "rxe", "siw".
// Errors, with remedy: EINVAL (the kernel does not have the type), ENODEV (no such netdev), ENFILE (the name is taken),
// EEXIST (the netdev has a device already).
Result<void> create_rdma_link(Netlink& rdma, std::string_view name, std::string_view type, std::string_view netdev);
// Deletes a software device by its index. A missing device is no error. Errors, with remedy: EINVAL (hardware).
Result<void> delete_rdma_link(Netlink& rdma, const RdmaDevice& device);

// Starts a request to RDMA netlink, which has no fixed header: the attributes follow at once.
RequestBuilder rdma_request(unsigned command, unsigned flags = 0);
// Make the messages of the functions above. Pure.
RequestBuilder rdma_move_request(std::uint32_t index, int netns);
RequestBuilder rdma_rename_request(std::uint32_t index, std::string_view name);
RequestBuilder rdma_link_request(std::string_view name, std::string_view type, std::string_view netdev);
RequestBuilder rdma_unlink_request(std::uint32_t index);
// Add cause and remedy to an error of the kernel. ENFILE means that an RDMA device in any network namespace has the
// name. Pure.
// shared_mode: whether all network namespaces share the RDMA subsystem; nullopt: unknown.
Error explain_rdma_move(Error refusal, std::optional<bool> shared_mode);
Error explain_rdma_rename(Error refusal);
Error explain_rdma_link(Error refusal, std::string_view type);

// Returns the uverbs node of a device. Returns nullopt if the device has no node (yet), sysfs does not show it, or the
// name now belongs to a device with another node GUID.
// sysfs: a descriptor of /sys.
// node_guid: 0 accepts any GUID.
std::optional<NewNode> find_uverbs(int sysfs, const std::string& hca, std::uint64_t node_guid = 0);

// Functions for the contexts that are open on RDMA devices. Source of the messages: fill_res_info() and
// res_get_common_dumpit() of drivers/infiniband/core/nldev.c, Linux 6.12.

// One RDMA device and the number of contexts that processes have on it. Objects of the kernel itself have no context.
struct RdmaUse {
  std::uint32_t index = 0;  // index of the device (RdmaDevice::index)
  std::string name;
  std::uint64_t contexts = 0;
  friend bool operator==(const RdmaUse&, const RdmaUse&) = default;
};

// Returns the devices that this network namespace shows. Costs four system calls for up to 64 devices. Returns nullopt
// if the kernel has no RDMA netlink, or does not count contexts (before Linux 4.17).
Result<std::optional<std::vector<RdmaUse>>> rdma_use();

struct RdmaContext {
  std::uint32_t id = 0;          // unique on its device; the kernel does not reuse it soon
  std::vector<pid_t> processes;  // PIDs in this PID namespace, ascending; empty: unknown
  friend bool operator==(const RdmaContext&, const RdmaContext&) = default;
};

// Returns the contexts of one device with their processes: the process that opened the context, until it ends, and the
// processes that made PDs, QPs and MRs in the context. Before Linux 5.14 contexts cannot be listed. The contexts are
// then numbered from 0, and each context gets all processes of the device.
Result<std::vector<RdmaContext>> rdma_contexts(const RdmaUse& device);

// Collects the processes of contexts from the kernel's tables of objects. Pure.
class RdmaContextTable {
 public:
  void add_context(const base::netlink::Attributes& entry);
  void add_domain(const base::netlink::Attributes& entry);     // adds a protection domain (PD)
  void add_in_domain(const base::netlink::Attributes& entry);  // adds a QP or MR; all PDs must have been added
  std::vector<RdmaContext> take() &&;
  // For kernels that cannot list contexts (before Linux 5.14). Returns `count` contexts, numbered from 0. Each context
  // gets the processes of all objects that were added.
  std::vector<RdmaContext> number(std::uint64_t count) &&;

 private:
  void add(std::optional<std::uint32_t> context, const base::netlink::Attributes& entry);
  std::map<std::uint32_t, std::vector<pid_t>> contexts_;
  std::map<std::uint32_t, std::uint32_t> domains_;  // number of the context, by the number of the PD
  std::vector<pid_t> all_;
};

// Parses one message about a device; nullopt: another kind of message. Pure.
std::optional<RdmaUse> parse_rdma_use(const base::netlink::Attributes& device);

}  // namespace hook
