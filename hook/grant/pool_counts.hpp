// Compares the number of usable HCAs of each pool with "expect" of config.json.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/grant/node.hpp"
#include "hook/plan/pools.hpp"

namespace hook {

// The HCAs that containers have, as the ledger records them.
struct GrantedHcas {
  std::set<std::string> names;
  std::set<std::string> devices;  // devices of the granted HCAs, in the form of HcaDevices
  bool all = true;                // false: the ledger or a grant could not be read, so any HCA can be granted
};

// Reads which HCAs are granted. Each grant counts, also a stale one: the release of its rails sets the netdev up again.
GrantedHcas read_granted(const NodeSettings& node);

// Reads phys_state of the ports that are not ACTIVE, which ends with "Disabled" if the port was set down. Source:
// phys_state_to_str() of drivers/infiniband/core/sysfs.c, Linux 6.12. root: prefix of /sys.
void read_phys_states(const std::string& root, fabric::Inventory& inventory);

// Returns the path of the list of pools with "expect" of which this node has had an HCA: pools-seen.json beside the
// cluster's config.json, because the containers of the DaemonSet see that directory. Empty: a node without such a file.
std::string seen_pools_file(const NodeSettings& node);

// Reads that list. Returns an empty set if the file does not exist. Errors: the file cannot be read, or is no list of
// names.
base::Result<std::set<std::string>> read_seen_pools(const std::string& file);

// The HCAs of a pool with "expect".
struct PoolCount {
  std::string pool;
  unsigned expected = 0;
  unsigned usable = 0;                // HCAs that a container can get or has
  std::vector<std::string> unusable;  // HCAs of the pool that do not count
  unsigned missing() const { return expected > usable ? expected - usable : 0; }
  // Returns true if the node has no HCA of the pool, although it had one.
  bool is_lost() const { return usable == 0 && unusable.empty(); }
  friend bool operator==(const PoolCount&, const PoolCount&) = default;
};

// Returns the count of each pool with "expect" that has an HCA of this node, or of which the node had one: one
// configuration can serve nodes of several kinds, also nodes without RDMA. An HCA counts if it has a device node and an
// ACTIVE port, or a port whose state is not known. closed: HCAs that count without an ACTIVE port, because a container
// can have set the port down. hidden: number of granted HCAs that this network namespace does not show. Their pools are
// not known, so they count for each pool, up to the expected number. seen: the pools of read_seen_pools(). Pure.
std::vector<PoolCount> count_pools(const NodeMap& node, const Config& config, const std::set<std::string>& closed = {},
                                   unsigned hidden = 0, const std::set<std::string>& seen = {});

// Reads the node and its ledger, and returns the result of count_pools(). Without "expect", reads nothing.
// Errors: the HCAs, their pools or the grants cannot be read, so that no number is certain.
base::Result<std::vector<PoolCount>> read_pool_counts(const NodeSettings& node, const Config& config);

}  // namespace hook
