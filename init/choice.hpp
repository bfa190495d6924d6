// Chooses ports among the usable ports. The rules and heuristics apply in a fixed order, and each dropped port has a
// reason. Pure. docs/rdma-init.md, "Which ports, and why", has the same table with the override for each rule.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/selectors.hpp"
#include "init/candidates.hpp"
#include "init/check.hpp"
#include "init/nccl_rules.hpp"

namespace init {

struct Choice {
  std::vector<std::size_t> ports;  // chosen candidates, by index
  std::vector<Check> drops;        // why each candidate was dropped; without message for a chosen one
  std::optional<GidRank> rank;     // kind of GID that all chosen RoCE ports use; nullopt: no RoCE port is chosen
  bool efa = false;                // an EFA device can be opened, so no port is chosen
  std::vector<Check> warnings;
  bool needs_models = false;  // the choice depends on models of HCAs that were not read
};

// Chooses the ports. hcas: --hca. kept_hcas: NCCL_IB_HCA of the user, which defines the ports. kept_index:
// NCCL_IB_GID_INDEX of the user; the GIDs at this index define the family. pkey_index: NCCL_IB_PKEY; the P_Keys at this
// index define the partitions.
Choice choose_ports(const fabric::Inventory& inventory, const std::vector<Candidate>& candidates,
                    const std::optional<fabric::SelectorList>& hcas, const std::optional<nccl::HcaList>& kept_hcas = {},
                    std::optional<unsigned> kept_index = {}, unsigned pkey_index = 0);

}  // namespace init
