// Undoes the changes of a grant on the node: links, RDMA devices, addresses. Every function works while the container's
// namespace is alive, dying or gone, and can be repeated.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

class IpamHelper;
class Ledger;
struct NetworkNamespace;
struct NodeSockets;

// Undoes place_rail(), even if it was incomplete: moves the netdev and the RDMA device to the node, then restores the
// netdev's settings, and VF attributes last. With IPoIB, VF attributes come before the RDMA device, because the netdev
// that the kernel then makes reads the GUID of its port only once (ipoib_parent_init(); ipoib_event() ignores a later
// change of the GUID).
// inside: nullptr if the namespace is gone. The kernel then moves hardware and ipoib children to the node by itself,
// some time after the end of the namespace and under the name that they had in the container.
// wait_ms: limit in milliseconds on waiting for these moves of the kernel.
// warnings: gets a line for each setting that cannot be restored, and for a software netdev that ended with its
// namespace.
// group: link group of the container's children; 0: unknown. ipoib children of another group on the node stay.
// Errors: EAGAIN, netdev or RDMA device did not return in time; the kernel refuses a change.
Result<void> restore_rail(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                          std::vector<std::string>& warnings, std::uint32_t group = 0);

class NodeRails : public GrantEffects {
 public:
  // ipam: nullptr leaves leases of CNI plugins in the record, for `rdma-hook recover`.
  // root: prefix of the node's /proc.
  NodeRails(std::string ledger_directory, IpamHelper* ipam, std::string root = {});

  // Undoes the rails of the grant, except rails of HCAs in `held`. Continues after an error.
  // Errors: a netdev is not on the node yet, or cannot be restored there; the namespace outlives its container and
  // cannot be entered (open_netns_by_handle()); the grant has an HCA of mode exclusive that is not in `held` and is
  // still open (check_closed()).
  Result<void> undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                           const StoredGrant* grant) const override;
  // Declares that a container start waits for undo_beyond(). During a start, undo_beyond() searches descriptors of HCAs
  // only after an earlier failure to release the grant.
  void begin_start() { is_start_ = true; }
  void wait_until(Deadline deadline) const override { deadline_ = deadline; }
  // Releases the remaining rails, leases and addresses of stale grants. Like Ledger::recover(), first tries each grant
  // without waiting, then waits for the grants that are left. A grant that cannot be released becomes a warning.
  // Returns one text for each released item, such as "rails of KEY".
  // ledger: must have this object as its GrantEffects.
  Result<std::vector<std::string>> recover(const Ledger& ledger, Deadline deadline) const;
  // Returns the record of rails that the last undo_beyond() with this key found; nullopt if it found no record.
  std::optional<NetworkRecord> undone(const std::string& key) const;
  // Returns the warnings since the last call.
  std::vector<std::string> take_warnings() const;

 private:
  Result<void> return_rails(const std::string& key, const std::vector<PlannedHca>& held) const;
  Result<void> check_left(const std::vector<PlannedHca>& held, const StoredGrant& grant) const;

  std::string directory_;
  IpamHelper* ipam_;
  std::string root_;
  bool is_start_ = false;
  mutable std::map<std::string, NetworkRecord> undone_;
  mutable Deadline deadline_ = Deadline::max();
  mutable std::vector<std::string> warnings_;
};

}  // namespace hook
