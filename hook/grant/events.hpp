// The log lines of a grant and of its release, one line each. rdma-hook(8) lists the fields. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/timing.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/engine.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

struct Granted {
  std::string_view container;  // the container's id; empty: it has none yet
  const Owner& owner;
  Engine engine;
  const std::vector<PlannedHca>& hcas;
  std::string_view source;                    // annotation, variable, device nodes or setting that requested the HCAs
  const std::optional<NetworkRecord>& rails;  // nullopt: the grant has no rails
  const std::vector<std::string>& no_rail;    // HCAs without a network although a rail was requested
  // The field `require`: RDMA_INIT_REQUIRE, or "-:" and the reason why it is not set ("-:no-rail"). nullopt: the call
  // sets no variables.
  std::optional<std::string> require;
  const Timing& timing;
};
// Returns "granted container=web-1 key=container-web-1-2f... engine=runc hcas=mlx5_0 mode=shared total_us=2310
// read_us=410 ... aligned=5 rails=net1:mlx5_0:10.1.0.5/16:gid5 source=\"annotation ...\"". event: "granted", "kept",
// "booked".
std::string granted_line(std::string_view event, const Granted& granted);

// Why a grant was released, and by which call. The reasons are few, because each is a time series of the metrics.
enum class ReleaseReason {
  kPoststop,        // the container's poststop released the grant
  kRecover,         // `rdma-hook recover` found no user left
  kNamespaceEnded,  // another call found that the pod's network namespace is gone
  kContainerEnded,  // another call found that the grant's container, or the process that requested the grant, is gone
  kClaimEnded,      // Kubernetes ended the claim
  kInterrupted,     // the container's start was killed half-way, so the metrics never counted the grant
};
// Returns "poststop", "recover", "namespace-gone", "container-gone", "claim-ended" or "interrupted".
std::string_view to_string(ReleaseReason reason);

// The results of a call, which are counted at its end.
struct Outcome {
  std::optional<std::string> granted_mode;  // mode_of() of the new grant
  Engine engine = Engine::kPodman;          // the engine of the container with that grant
  std::vector<ReleaseReason> released;      // reasons, one for each released grant
};

struct ReleaseEvent {
  Owner owner;
  std::vector<std::string> containers;  // ids of the users at the release; empty: all had left
  std::vector<PlannedHca> hcas;
  std::optional<NetworkRecord> rails;  // the rails before the release
  std::uint64_t held = 0;              // seconds for which the grant was held
  ReleaseReason reason = ReleaseReason::kContainerEnded;
  // A container of a pod has left, and the pod's grant stays.
  bool left = false;
  std::uint64_t rails_us = 0;  // time to restore the rails
};
// Returns "returned container=web-1 key=... reason=poststop hcas=mlx5_0 mode=shared held_s=86 total_us=930 rails_us=700
// ... rails=...", or "left ..." for a container that left its pod's grant. timing: the steps and total of a poststop;
// nullptr: another container's call released the grant, and only rails_us belongs to it.
std::string released_line(const ReleaseEvent& released, const Timing* timing);

// Returns the mode, as "shared"; "mixed" if the HCAs differ; "none" without HCAs.
std::string_view mode_of(const std::vector<PlannedHca>& hcas);

}  // namespace hook
