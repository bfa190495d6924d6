// What the phases of a decision pass on: keep_and_choose(), plan_gids(), report(), in this order. Pure.
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
  // The first refusal stands.
  void refuse(std::string why, std::string remedy);
};

// The order of the calls is part of the decision. A kept NCCL_IB_HCA is checked before the choice, which it defines
// unless --override drops it for what is wrong with it. Kept GID indices are checked on the chosen ports, and before
// plan_gids(), which plans only what they leave open. NCCL's exports follow the plan, which may have dropped ports; the
// other libraries' name the ports that are left. Defaults for wrong values come after all exports, which may have
// replaced them; what is kept is told from what is replaced by what was exported, so it comes behind both.

// Checks the values that were set before, and chooses the ports. Returns false if none is chosen.
bool keep_and_choose(Deciding& d);
// Chooses the GID index of the chosen ports, and drops those that no index serves.
void plan_gids(Deciding& d);
// Makes the exports, and says what was decided and why. exports: ports were chosen.
void report(Deciding& d, bool exports);

}  // namespace init
