// Plans one GID index for all ports, or none, so that NCCL uses the wanted GID on every port. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "init/candidates.hpp"
#include "init/nccl_rules.hpp"

namespace init {

struct WantedGid {
  std::size_t port = 0;  // the caller's number for the port
  const Candidate* candidate = nullptr;
  UsableGid gid;  // the lowest of its rank: the GID that NCCL should choose
};

// One index for all ports. Any GID of the port with the rank of its wanted GID is acceptable.
struct SharedIndex {
  unsigned index = 0;
  std::vector<std::size_t> others;  // ports without such a GID at the index
};

// Returns the index that serves most ports. On a tie, the index that more ports want wins, then the lowest. range: a
// kept NCCL_IB_ADDR_RANGE; no port is moved to an address outside it.
SharedIndex share_index(const std::vector<WantedGid>& wanted, const std::optional<fabric::Cidr>& range);

struct IndexPlan {
  std::optional<unsigned> index;      // NCCL_IB_GID_INDEX; nullopt: not exported
  std::optional<fabric::Cidr> range;  // NCCL_IB_ADDR_RANGE with which NCCL chooses right; nullopt: not exported
  // Ports on which NCCL chooses another acceptable GID (same port, same rank) in place of the wanted one. Value: the
  // index of the GID that NCCL chooses.
  std::map<std::size_t, unsigned> moved;
  std::vector<std::size_t> wrong;  // ports on which no setting makes NCCL choose right
  bool needs_tables = false;       // the simulation of NCCL needs complete tables
};

// Plans the index. An index that serves every port is always used. rules: NCCL's rules for its own choice, with kept
// values. may_set_range: NCCL_IB_ADDR_RANGE may be exported.
IndexPlan plan_index(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range);

// Plans NCCL's own choice without an index, for a kept NCCL_IB_GID_INDEX of -1.
IndexPlan plan_nccl_choice(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range);

// Returns true if the part of the tables that was read is too small to simulate NCCL.
bool needs_whole_tables(const std::vector<WantedGid>& wanted, const nccl::Version& version);

// Returns the ports on which NCCL, under these rules, would not surely choose the wanted GID.
std::vector<std::size_t> wrong_ports(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules);

}  // namespace init
