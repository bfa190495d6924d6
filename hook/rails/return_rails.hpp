// Takes rails back: links, RDMA devices, addresses. All of it works whether the container's namespace lives, is dying
// or is gone, and as often as it is asked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/record/network_record.hpp"

namespace hook {

class IpamHelper;
struct NetworkNamespace;
struct NodeSockets;

// The reverse of place_rail(), from whatever state: netdev, RDMA device, then what the netdev was on the node, VF
// attributes last. With IPoIB they go before the RDMA device: the netdev that the kernel then makes anew reads its
// port's GUID once (ipoib_parent_init(); ipoib_event() heeds no change of it). inside: nullptr: the namespace is gone,
// and the kernel brings hardware and ipoib children back by itself, later and under the name they had inside. Waits for
// that at most wait_ms. group: of the container's children, 0: not known; of ipoib ones on the node others are left
// alone. A software netdev dies with its namespace: a warning.
fabric::Result<void> put_back_rail(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                                   std::vector<std::string>& warnings, std::uint32_t group = 0);

class NodeRails : public GrantEffects {
 public:
  // ipam: nullptr: leases of CNI plugins stay in the record for `rdma-hook recover`.
  NodeRails(std::string ledger_directory, IpamHelper* ipam);

  // Errors: a netdev that has not come back to the node, or cannot be put right there. What could be undone is.
  fabric::Result<void> undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                                   const StoredGrant*) const override;
  void wait_until(Deadline deadline) const override { deadline_ = deadline; }
  // What is left of grants that are gone: rails, leases that could not be returned, addresses. As Ledger::recover()
  // does: first all of it without waiting; what is stuck then is a warning. The ledger's effects are to be these.
  // Returns what was taken back, in words.
  fabric::Result<std::vector<std::string>> recover(const Ledger& ledger, Deadline deadline) const;
  // The warnings since the last call.
  std::vector<std::string> take_warnings() const;

 private:
  std::string directory_;
  IpamHelper* ipam_;
  mutable Deadline deadline_ = Deadline::max();
  mutable std::vector<std::string> warnings_;
};

}  // namespace hook
