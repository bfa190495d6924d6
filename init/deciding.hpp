// State that the phases of a decision share: keep_and_choose(), plan_gids() (decide.cpp) and report(), in this order.
// Pure.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "init/candidates.hpp"
#include "init/choice.hpp"
#include "init/decision.hpp"
#include "init/exports.hpp"
#include "init/gid_index.hpp"
#include "init/kept.hpp"

namespace init {

inline constexpr std::array<std::string_view, 3> kIndexNames = {"NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX",
                                                                "NVSHMEM_IB_GID_INDEX"};

struct Deciding {
  const fabric::Inventory& inventory;
  const Policy& policy;
  Kept kept;
  std::vector<Candidate> candidates;
  std::vector<Candidate> all = {};  // the candidates before values of the user narrowed them; empty: not narrowed
  Choice choice = {};
  IndexPlan plan = {};
  Decision decision = {};

  const Candidate& at(std::size_t index) const { return candidates[index]; }
  // Returns $NCCL_VERSION of the image. Returns nullopt if it is not set or no version, or --nccl-version overrides it.
  std::optional<nccl::Version> image_version() const;
  nccl::Version version() const { return policy.nccl_version.value_or(nccl::kNewest); }
  // Exports a variable with a reason, if no value of the user stays in effect.
  void put(std::string_view name, std::string value, std::string reason);
  // Returns the family of NCCL_IB_ADDR_FAMILY, nullopt if it is unset or neither AF_INET nor AF_INET6.
  std::optional<fabric::Family> kept_family() const;
  // Returns the GID that each chosen RoCE port should use.
  std::vector<WantedGid> wanted() const;
  // Returns the rules with which NCCL will choose GIDs. with_kept: include values of the user that stay in effect.
  nccl::GidRules effective_rules(bool with_kept) const;
  // Returns the GID that a chosen port will use: the one at the index that the user or the plan fixed for this port, if
  // the port has a GID there; otherwise its best GID.
  const UsableGid* effective_gid(std::size_t i) const;
  bool is_ipv6() const { return choice.rank && *choice.rank != GidRank::kIpv4; }
  // Returns the index at which every chosen port has its GID, whether the user or the plan fixed it. Returns nullopt if
  // the indices differ or no port needs one.
  std::optional<unsigned> agreed_index() const;
  std::vector<ChosenPort> chosen_ports() const;
  // Returns the names of ports for a message: "mlx5_0:1, mlx5_1:1".
  std::string list(const std::vector<std::size_t>& ports) const;
  // Records a refusal. The first one is kept.
  void refuse(std::string why, std::string remedy);
};

// Fills the decision: exports, reasons, warnings and status. exports: true if ports were chosen.
void report(Deciding& d, bool exports);

}  // namespace init
