// Undoes what a grant has on the node: links, RDMA devices, addresses. All of it works whether the container's
// namespace lives, is dying or is gone, and as often as it is asked.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

class IpamHelper;
class Ledger;
struct NetworkNamespace;
struct NodeSockets;

// The reverse of place_rail(), from whatever state: netdev, RDMA device, then what the netdev was on the node, VF
// attributes last. With IPoIB they go before the RDMA device: the netdev that the kernel then makes anew reads its
// port's GUID once (ipoib_parent_init(); ipoib_event() heeds no change of it). inside: nullptr: the namespace is gone,
// and the kernel brings hardware and ipoib children back by itself, later and under the name they had inside. Waits for
// that at most wait_ms. group: of the container's children, 0: not known; of ipoib ones on the node others are left
// alone. A software netdev dies with its namespace: a warning.
Result<void> put_back_rail(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                           std::vector<std::string>& warnings, std::uint32_t group = 0);

class NodeRails : public GrantEffects {
 public:
  // ipam: nullptr: leases of CNI plugins stay in the record for `rdma-hook recover`. root: prefix of the node's /proc.
  NodeRails(std::string ledger_directory, IpamHelper* ipam, std::string root = {});

  // Undoes the rails of what is not held, and fails while an HCA of mode exclusive that is not held is left open
  // (check_closed()). Errors: a netdev that has not come back to the node, or cannot be put right there;
  // check_closed()'s. What could be undone is.
  Result<void> undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                           const StoredGrant* grant) const override;
  // From here on undo_beyond() delays a start: it looks for descriptors of HCAs only where it has failed before.
  void begin_start() { is_start_ = true; }
  void wait_until(Deadline deadline) const override { deadline_ = deadline; }
  // What is left of grants that are gone: rails, leases that could not be returned, addresses. As Ledger::recover()
  // does: first all of it without waiting; what is stuck then is a warning. The ledger's effects are to be these.
  // Returns what was taken back, in words.
  Result<std::vector<std::string>> recover(const Ledger& ledger, Deadline deadline) const;
  // The rails of this grant as the last undo_beyond() of its key found them; nullopt: it had none.
  std::optional<NetworkRecord> undone(const std::string& key) const;
  // The warnings since the last call.
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
