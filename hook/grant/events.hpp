// What the log says of a grant and of its return, one line each: the fields of both, as rdma-hook(8) lists them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/timing.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/engine.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

struct Granted {
  std::string_view container;  // its id; empty: it has none yet
  const Owner& owner;
  Engine engine;
  const std::vector<PlannedHca>& hcas;
  std::string_view source;                    // which annotation, or what else, asked
  const std::optional<NetworkRecord>& rails;  // nullopt: none
  const std::vector<std::string>& no_rail;    // as Plan has it
  std::optional<std::string> require;         // a number, or why there is none: "-:no-rail"; nullopt: not asked
  const Timing& timing;
};
// "granted container=web-1 key=container-web-1-2f... engine=runc hcas=mlx5_0 mode=shared total_us=2310 read_us=410 ...
// aligned=5 rails=net1:mlx5_0:10.1.0.5/16:gid5 source=\"annotation ...\"". event: "granted", "kept", "booked".
std::string granted_line(std::string_view event, const Granted& granted);

// Why a grant was returned, and by which call: few words, because each is a time series of the metrics.
enum class ReturnReason {
  kPoststop,       // its container's poststop
  kRecover,        // `rdma-hook recover` found no user left
  kNamespaceGone,  // another call found that its pod's network namespace has ended
  kContainerGone,  // another call found that its container, or the process that asked for it, has ended
  kInterrupted,    // a start that was killed half-way: no grant was counted
};
// "poststop", "recover", "namespace-gone", "container-gone", "interrupted".
std::string_view to_string(ReturnReason reason);

// What a call has done, to be counted when it has ended.
struct Outcome {
  std::optional<std::string> granted_mode;  // mode_of() of what a container was granted
  Engine engine = Engine::kPodman;          // whose container that is
  std::vector<ReturnReason> returned;       // grants
};

struct Returned {
  Owner owner;
  std::vector<std::string> containers;  // ids of those that used it; none: all have left
  std::vector<PlannedHca> hcas;
  std::optional<NetworkRecord> rails;  // as they were
  std::uint64_t held = 0;              // seconds
  ReturnReason reason = ReturnReason::kContainerGone;
  // A container of a pod has gone, and the pod's grant stays: no return.
  bool left = false;
  std::uint64_t rails_us = 0;  // taking the rails back
};
// "returned container=web-1 key=... reason=poststop hcas=mlx5_0 mode=shared held_s=86 total_us=930 rails_us=700 ...
// rails=..."; "left ..." of a container of a pod. timing: of a poststop, whose steps and total are the return's;
// nullptr: returned on the way by another container's call, of which only rails_us is about this grant.
std::string returned_line(const Returned& returned, const Timing* timing);

// "shared"; "mixed" where HCAs of one grant differ; "none" without any.
std::string_view mode_of(const std::vector<PlannedHca>& hcas);

}  // namespace hook
