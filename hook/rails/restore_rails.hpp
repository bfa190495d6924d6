// Restores the rails of a grant: moves netdevs and RDMA devices to the node, restores their settings there, and deletes
// child netdevs. Every function works while the container's namespace is alive, dying or gone, and can be repeated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/timing.hpp"
#include "base/warnings.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/place_rail.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

class NetworkRecordStore;

// The state and the steps of one restoration.
class RailRestorer {
 public:
  // record: must outlive this object.
  // deadline: limit on waiting for moves of the kernel. When a namespace ends, the kernel moves hardware and ipoib
  // children to the node by itself, some time later and under the name that they had in the container.
  // warnings: gets a line for each setting that cannot be restored, and for a software netdev that ended with its
  // namespace.
  // inside: the container's namespace, which restore_rails() opens; nullopt: it is gone.
  RailRestorer(NodeSockets node, const NetworkRecord& record, Deadline deadline, std::vector<std::string>& warnings,
               std::optional<NetworkNamespace> inside = {});

  // Restores as many of these rails as possible and returns the first error. Before the netdevs are restored, the
  // routing rules are removed, and the child netdevs (macvlan, ipvlan, IPoIB) if all rails of the record leave.
  // leaving: rails of the record.
  // proc: the node's /proc.
  // Errors: those of restore(); the namespace outlives its container and cannot be entered (open_netns_by_handle());
  // EBUSY, a child is missing, and the namespace has a netdev on its parent that belongs to no grant.
  Result<void> restore_rails(const std::vector<RailRecord>& leaving, const NetworkRecordStore& store,
                             const std::string& proc);

  // Restores the state before place_rail(), even if that was incomplete: moves the netdev and the RDMA device to the
  // node, then restores the netdev's settings, and VF attributes last. With IPoIB, VF attributes come before the RDMA
  // device, because the netdev that the kernel then makes reads the GUID of its port only once (ipoib_parent_init();
  // ipoib_event() ignores a later change of the GUID).
  // Deletes a child netdev. On the node, ipoib children of another link group than the record's stay; group 0: unknown.
  // Errors: EAGAIN, netdev or RDMA device did not return in time; the kernel refuses a change.
  Result<void> restore(const RailRecord& rail);

 private:
  Result<void> enter(const std::vector<RailRecord>& leaving, const std::string& proc);
  Result<void> remove_rules(const std::vector<RailRecord>& leaving);
  Result<void> read_links();
  bool is_on_parent(const Link& link, const RailRecord& rail) const;
  bool is_child_of(const Link& link, const RailRecord& rail, std::uint32_t group) const;
  bool is_missing(const RailRecord& rail) const;
  const Link* find_child(const RailRecord& rail) const;
  Result<void> read_staying(const std::vector<RailRecord>& leaving, const NetworkRecordStore& store);
  bool is_staying(const Link& link) const;
  Result<void> remove_further_children(const std::vector<RailRecord>& leaving);
  Result<void> check_children(const std::vector<RailRecord>& leaving);

  Result<void> delete_software_device(const RailRecord& rail);
  Result<void> move_netdev(const RailRecord& rail);
  Result<void> restore_rdma_device(const RailRecord& rail);
  Result<std::optional<Link>> find_on_node(const HostNetdev& host, int wait_ms);
  Result<void> restore_netdev(const Link& link, const HostNetdev& host);
  Result<void> restore_sysfs(int ifindex, const HostNetdev& host);
  Result<void> restore_routes(int ifindex, const HostNetdev& host);
  Result<void> restore_software_device(const RailRecord& record);
  Result<void> remove_child(const RailRecord& rail);
  // Keeps the first error of the present rail in first_. Returns true if there is no error.
  bool keep(Result<void> done);
  void warn(std::vector<std::string> more) { append(std::move(more), warnings_); }

  // After a namespace ends, the kernel moves its hardware to the node: within some hundred milliseconds, on a loaded
  // node within seconds.
  static constexpr int kComebackMs = 5000;

  NodeSockets node_;
  const NetworkRecord& record_;
  Deadline deadline_;
  std::vector<std::string>& warnings_;
  std::optional<NetworkNamespace> inside_;  // the container's namespace; nullopt: gone or dying
  // True if no path leads to the namespace, which only processes, descriptors or sockets of other containers keep.
  bool is_left_ = false;
  std::vector<NetworkRecord> staying_;        // records of rails that do not leave; empty before read_staying()
  bool staying_is_unknown_ = false;           // true: read_staying() failed
  std::vector<Link> links_;                   // netdevs of the container's namespace; empty before read_links()
  std::optional<std::uint32_t> node_number_;  // number of the node's namespace in the container's; nullopt: unknown
  int wait_ms_ = 0;                           // limit on each wait for the present rail
  Result<void> first_;                        // first error of the present rail
};

}  // namespace hook
