// Which of the usable ports the trainer should use: the rules and the few heuristics, in order, each drop with its
// reason. Pure. The table in docs/rdma-init.md ("Which ports, and why") says the same with the override for each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/selectors.hpp"
#include "init/candidates.hpp"
#include "init/nccl_rules.hpp"

namespace init {

struct ChoiceRules {
  std::optional<fabric::SelectorList> hcas;  // --hca
  std::optional<nccl::HcaList> kept_hcas;    // NCCL_IB_HCA that the user set: it defines the ports
  std::optional<unsigned> kept_index;        // NCCL_IB_GID_INDEX that the user set: its GIDs define the family
};

struct Choice {
  std::vector<std::size_t> ports;         // chosen, indices of candidates
  std::vector<std::string> drop_reasons;  // per candidate; empty for the chosen
  std::optional<GidRank> rank;            // of every chosen port's GID; nullopt: InfiniBand or nothing chosen
  bool efa = false;                       // an openable EFA device is here, so nothing is chosen
  std::vector<std::string> warnings;
};

Choice choose_ports(const fabric::Inventory& inventory, const std::vector<Candidate>& candidates,
                    const ChoiceRules& rules);

}  // namespace init
