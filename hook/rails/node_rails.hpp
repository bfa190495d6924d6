// Releases the rails of a grant: restores their netdevs and RDMA devices on the node, releases their addresses, and
// removes their record. Every function works while the container's namespace is alive, dying or gone, and can be
// repeated.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

class IpamHelper;
class Ledger;
class NetworkRecordStore;

// The rails of grants, as the ledger releases them.
class NodeRails : public GrantEffects {
 public:
  // ipam: nullptr leaves leases of CNI plugins in the record, for `rdma-hook recover`.
  // root: prefix of the node's /proc.
  NodeRails(std::string ledger_directory, IpamHelper* ipam, std::string root = {});

  // Releases the rails of the grant, except rails of HCAs in `held`. Continues after an error.
  // Errors: a netdev is not on the node yet, or cannot be restored there; the namespace outlives its container and
  // cannot be entered (open_netns_by_handle()); the grant has an HCA of mode exclusive that is not in `held` and is
  // still open (check_closed()).
  Result<void> release_except(const std::string& key, const std::vector<PlannedHca>& held,
                              const StoredGrant* grant) const override;
  // Declares that a container start waits for release_except(). During a start, release_except() searches descriptors
  // of HCAs only after an earlier failure to release the grant.
  void begin_start() { is_start_ = true; }
  void wait_until(Deadline deadline) const override { deadline_ = deadline; }
  // Releases the remaining rails, leases and addresses of stale grants. Like Ledger::recover(), first tries each grant
  // without waiting, then waits for the grants that are left. A grant that cannot be released becomes a warning.
  // Returns one text for each released item, such as "rails of KEY".
  // ledger: must have this object as its GrantEffects.
  Result<std::vector<std::string>> recover(const Ledger& ledger, Deadline deadline) const;
  // Returns the record of rails that the last release_except() with this key found; nullopt if it found no record.
  std::optional<NetworkRecord> released(const std::string& key) const;
  // Returns the warnings since the last call.
  std::vector<std::string> take_warnings() const;

 private:
  using OpenRecord = std::pair<NetworkRecordStore, NetworkRecord>;
  Result<std::optional<OpenRecord>> find_record(const std::string& key) const;
  Result<void> remove_rails(OpenRecord found, std::vector<RailRecord> leaving, std::vector<RailRecord> staying) const;
  Result<void> check_left(const std::vector<PlannedHca>& held, const StoredGrant& grant) const;

  std::string directory_;
  IpamHelper* ipam_;
  std::string root_;
  bool is_start_ = false;
  mutable std::map<std::string, NetworkRecord> released_;
  mutable Deadline deadline_ = Deadline::max();
  mutable std::vector<std::string> warnings_;
};

}  // namespace hook
