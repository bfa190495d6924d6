// One GID index for all ports, or none: what to export so that NCCL ends at the wanted GID on every port. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "init/candidates.hpp"
#include "init/nccl_rules.hpp"

namespace init {

struct WantedGid {
  std::size_t port = 0;  // the caller's number for it
  const Candidate* candidate = nullptr;
  UsableGid gid;  // the lowest of its rank: what NCCL should end at when it chooses
};

// One index for all ports. A port with several addresses need not be used at its wanted GID: any other GID of its own
// and of the same rank will do.
struct SharedIndex {
  unsigned index = 0;
  std::vector<std::size_t> others;  // ports that have no such GID at it
};

// The index that serves most ports; on a tie the one that more ports want, then the lowest. range: a kept
// NCCL_IB_ADDR_RANGE, out of which no port is moved.
SharedIndex share_index(const std::vector<WantedGid>& wanted, const std::optional<fabric::Cidr>& range);

struct IndexPlan {
  std::optional<unsigned> index;      // NCCL_IB_GID_INDEX; nullopt: leave it unset
  std::optional<fabric::Cidr> range;  // NCCL_IB_ADDR_RANGE that makes NCCL's own choice right
  // Ports at which NCCL's own choice ends at another GID of the port's own than the wanted one, with its index.
  std::map<std::size_t, unsigned> moved;
  std::vector<std::size_t> wrong;  // ports for which NCCL cannot be made right
  bool needs_tables = false;       // the tables were not read far enough to simulate NCCL
};

// An index that serves every port is always taken. rules: NCCL's rules for choosing by itself, kept values included.
// may_set_range: NCCL_IB_ADDR_RANGE is ours to set.
IndexPlan plan_index(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range);

// The same for when the index is not ours to set (a kept NCCL_IB_GID_INDEX of -1): index stays empty.
IndexPlan plan_nccl_choice(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range);

// True if NCCL cannot be simulated on the part of the tables that was read.
bool needs_whole_tables(const std::vector<WantedGid>& wanted, const nccl::Version& version);

// Ports on which NCCL, choosing by itself under these rules, would not surely end at the wanted GID.
std::vector<std::size_t> wrong_ports(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules);

}  // namespace init
