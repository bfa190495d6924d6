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
  UsableGid gid;  // the GID that NCCL should choose: the one with the lowest index in its rank
};

struct IndexPlan {
  std::optional<unsigned> index;      // NCCL_IB_GID_INDEX; nullopt: not exported
  std::optional<fabric::Cidr> range;  // NCCL_IB_ADDR_RANGE that makes NCCL choose right GIDs; nullopt: not exported
  // Ports on which NCCL chooses another acceptable GID (same port, same rank) in place of the wanted one. Value: the
  // index of the GID that NCCL chooses.
  std::map<std::size_t, unsigned> moved;
  std::vector<std::size_t> wrong;  // ports on which NCCL uses a wrong GID with every setting
  std::size_t deprecated = 0;      // ports that use a deprecated address although they have another one
  bool needs_tables = false;       // the simulation of NCCL needs complete tables
  bool is_simulated = false;       // the plan depends on a simulation of NCCL's choice

  // Returns true if every port uses a right GID, and no deprecated address that it can avoid.
  bool is_right() const { return wrong.empty() && deprecated == 0; }
  // Returns true if this plan serves more ports, or as many with fewer deprecated addresses.
  bool is_better_than(const IndexPlan& other) const {
    return wrong.size() != other.wrong.size() ? wrong.size() < other.wrong.size() : deprecated < other.deprecated;
  }
};

// Returns the index that serves most ports: it serves a port if the port's GID at this index has the rank of the wanted
// GID. If two serve equally many ports, the one with fewer deprecated addresses wins, then the one that more ports
// want, then the lower one. range: NCCL_IB_ADDR_RANGE that the user has set; no port is moved to an address outside it.
IndexPlan share_index(const std::vector<WantedGid>& wanted, const std::optional<fabric::Cidr>& range);

// Plans the index. An index that serves every port is always used, unless it takes a port to a deprecated address and
// NCCL's own choice takes fewer ports to one. rules: the rules of NCCL's own choice, including values that the user has
// set. may_set_range: NCCL_IB_ADDR_RANGE may be exported.
IndexPlan plan_index(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range);

// Plans NCCL's own choice without a fixed index, because the user has set NCCL_IB_GID_INDEX to -1.
IndexPlan plan_nccl_choice(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules, bool may_set_range);

// Returns true if too little of the GID tables was read to simulate NCCL's choice.
bool needs_whole_tables(const std::vector<WantedGid>& wanted, const nccl::Version& version);

// Returns the ports on which NCCL, under these rules, chooses or may choose another GID than the wanted one.
std::vector<std::size_t> wrong_ports(const std::vector<WantedGid>& wanted, const nccl::GidRules& rules);

}  // namespace init
