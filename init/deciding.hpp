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
  std::vector<Candidate> all = {};      // the candidates before values of the user narrowed them; empty: not narrowed
  bool has_list_of_other_task = false;  // the result of is_list_of_other_task() for NCCL_IB_HCA
  std::optional<nccl::HcaList> meant = {};  // the ports that the user's wrong NCCL_IB_HCA means, if they replace it
  Choice choice = {};
  IndexPlan plan = {};
  bool simulates = false;  // the decision depends on a simulation of NCCL's choice
  Decision decision = {};

  const Candidate& at(std::size_t index) const { return candidates[index]; }
  nccl::Version version() const { return policy.nccl_version.value_or(nccl::kNewest); }
  // Returns the version of --nccl-version or $NCCL_VERSION, nullopt if neither is known.
  std::optional<nccl::Version> named_version() const { return nccl_version(policy.nccl_version, kept.settings()); }
  // Returns $NCCL_VERSION of the image. Returns nullopt if it is not set or no version, or --nccl-version overrides it.
  std::optional<nccl::Version> image_version() const { return policy.nccl_version ? std::nullopt : named_version(); }
  // Returns true if the user's NCCL_IB_GID_INDEX is wrong and will be replaced.
  bool replaces_index() const { return kept.find(kIndexNames[0]) && !kept.in_effect(kIndexNames[0]); }
  // Exports a variable with a reason, if no value of the user stays in effect.
  void put(std::string_view name, std::string value, std::string reason);
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
  // Returns the index for libraries other than NCCL: agreed_index(), but not an index of the user that is wrong.
  std::optional<unsigned> index_for_others() const;
  std::vector<ChosenPort> chosen_ports() const;
  // Returns the names of ports for a message: "mlx5_0:1, mlx5_1:1".
  std::string list(const std::vector<std::size_t>& ports) const;
  // Records a refusal. The first one is kept.
  void refuse(std::string why, std::string remedy);
  // Records a warning. cause: its stable name.
  void warn(std::string_view cause, Verdict effect, std::string message, std::string remedy = {});
};

// A value of the user that NCCL before some version reads differently.
struct OlderReading {
  std::string name;
  std::string what;      // the reading in one line
  nccl::Version before;  // NCCL reads the value as intended from this version on
};

// Returns what an older NCCL reads differently in NCCL_IB_HCA.
std::optional<OlderReading> older_list(const Deciding& d);
// Returns what an older NCCL reads differently in NCCL_IB_GID_INDEX, on the chosen ports.
std::optional<OlderReading> older_index(Deciding& d);
// Records a reading as a problem, if $NCCL_VERSION or --nccl-version names such a version. Then --override replaces the
// value, and --strict refuses it.
void keep_older(Deciding& d, const std::optional<OlderReading>& reading);
// Reports the readings that are no problem, because no version is known, as warnings. Exports values of configuration
// files that an older NCCL does not read, or reads with a CR, if they may be replaced.
void report_older(Deciding& d);

// Checks the user's numbers (numbers()).
void check_numbers(Deciding& d);

// Checks the P_Key index on the chosen ports.
void check_pkey(Deciding& d);

// Fills the decision: exports, reasons, warnings and status. exports: true if ports were chosen.
void report(Deciding& d, bool exports);

}  // namespace init
