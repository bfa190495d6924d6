// What the phases of a decision pass on: keep_and_choose(), plan_gids() (decide.cpp) and report(), in this order. Pure.
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
  std::vector<Candidate> all = {};  // before these were narrowed by what is set; empty: they were not
  Choice choice = {};
  IndexPlan plan = {};
  Decision decision = {};

  const Candidate& at(std::size_t index) const { return candidates[index]; }
  // What the image says it has, if that counts.
  std::optional<nccl::Version> image_version() const;
  nccl::Version version() const { return policy.nccl_version.value_or(nccl::kNewest); }
  void put(std::string_view name, std::string value, std::string reason);
  std::optional<fabric::Family> kept_family() const;
  // The GID each chosen RoCE port should use.
  std::vector<WantedGid> wanted() const;
  nccl::GidRules effective_rules(bool with_kept) const;
  // The GID a chosen port will use: at the one index for all if there is one, kept or planned, else the best.
  const UsableGid* effective_gid(std::size_t i) const;
  bool is_ipv6() const { return choice.rank && *choice.rank != GidRank::kIpv4; }
  // The index at which every chosen port has its own GID, whether a kept value or the plan fixed it; nullopt when the
  // ports differ or need none.
  std::optional<unsigned> agreed_index() const;
  std::vector<ChosenPort> chosen_ports() const;
  // "mlx5_0:1, mlx5_1:1"
  std::string list(const std::vector<std::size_t>& ports) const;
  // The first refusal stands.
  void refuse(std::string why, std::string remedy);
};

// Makes the exports, and says what was decided and why. exports: ports were chosen.
void report(Deciding& d, bool exports);

}  // namespace init
