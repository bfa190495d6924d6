#include "hook/apply/live/live_steps.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace hook {
namespace {

using fabric::Result;

Result<MakeNode> node_step(const PlannedNode& node, bool bind, const std::string& root) {
  if (!node.major || !node.minor) {
    return fabric::Error{fmt::format("cannot make `{}` in the container: its device number is not known", node.path), 0,
                         "apply a plan of the live node, not of a snapshot"};
  }
  MakeNode step{node.path, *node.major, *node.minor, node.mode, node.uid, node.gid, bind, {}};
  if (bind) step.source = root + node.path;
  return step;
}

// Empty: it is no overlay.
std::string layers_of(const PlannedMount& mount) {
  constexpr std::string_view kOption = "lowerdir=";
  const auto found = std::find_if(mount.options.begin(), mount.options.end(),
                                  [&](const std::string& option) { return option.starts_with(kOption); });
  return found == mount.options.end() ? std::string() : found->substr(kOption.size());
}

// runc sets the limits of config.json after the hooks, crun before them; what config.json does not list neither
// touches.
bool runtime_overwrites_memlock(const ContainerSpec& spec, const OciState& state) {
  return spec.memlock.has_value() && !state.from_crun;
}

void add_memlock(std::uint64_t wanted, const ContainerSpec& spec, const OciState& state, LivePlan& live) {
  if (!runtime_overwrites_memlock(spec, state)) {
    live.steps.emplace_back(SetMemlock{wanted});
    return;
  }
  const std::uint64_t listed = std::min(spec.memlock->soft, spec.memlock->hard);
  if (listed >= wanted) return;
  live.warnings.push_back(
      fmt::format("cannot set RLIMIT_MEMLOCK to {} at createRuntime: the runtime sets the {} of config.json after this "
                  "hook; take the limit out of the engine's options, raise it there (--ulimit memlock=-1:-1), or use "
                  "rdma-runtime",
                  memlock_text(wanted), memlock_text(listed)));
}

// The limit that the container's first process will have; nullopt: whatever the engine gives it.
std::optional<std::uint64_t> final_memlock(const Plan& plan, const ContainerSpec& spec, const OciState& state) {
  if (runtime_overwrites_memlock(spec, state)) return std::min(spec.memlock->soft, spec.memlock->hard);
  return plan.memlock;
}

void warn_of_capability(const Plan& plan, const ContainerSpec& spec, const OciState& state, LivePlan& live) {
  const bool wanted =
      std::find(plan.capabilities.begin(), plan.capabilities.end(), "CAP_IPC_LOCK") != plan.capabilities.end();
  if (!wanted) return;
  const auto limit = final_memlock(plan, spec, state);
  if (limit == UINT64_MAX) {
    const char* const note =
        "cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is unlimited instead, which is enough for ibv_reg_mr";
    auto* const step = live.steps.empty() ? nullptr : std::get_if<SetMemlock>(&live.steps.back());
    if (step) {
      step->note = note;
    } else {
      live.warnings.emplace_back(note);
    }
    return;
  }
  live.warnings.push_back(
      fmt::format("cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is {}, and ibv_reg_mr beyond it fails: use "
                  "rdma-runtime, or --cap-add IPC_LOCK",
                  limit ? memlock_text(*limit) : "left as the engine sets it"));
}

}  // namespace

Result<LivePlan> live_steps(const Plan& plan, const ContainerSpec& spec, const OciState& state,
                            const std::string& root) {
  LivePlan live;
  AllowDevices allow;
  std::vector<Step> nodes;
  for (const PlannedNode& node : plan.nodes) {
    MakeNode step = TRY(node_step(node, spec.has_userns, root));
    const DeviceNumber number{step.major, step.minor};
    if (std::find(allow.devices.begin(), allow.devices.end(), number) == allow.devices.end()) {
      allow.devices.push_back(number);
    }
    nodes.emplace_back(std::move(step));
  }
  std::move(nodes.begin(), nodes.end(), std::back_inserter(live.steps));
  for (const PlannedMount& mount : plan.mounts)
    live.steps.emplace_back(BindDirectory{mount.source, mount.destination, layers_of(mount)});
  // After the files: they are made only in the right container, and a wrong one must get no rights and no limit either.
  if (!allow.devices.empty()) live.steps.emplace_back(std::move(allow));
  if (plan.memlock) add_memlock(*plan.memlock, spec, state, live);
  warn_of_capability(plan, spec, state, live);
  if (plan.memlock && !runtime_overwrites_memlock(spec, state)) {
    live.warnings.push_back(
        fmt::format("`exec` into this container gets the engine's RLIMIT_MEMLOCK, not {}: use rdma-runtime",
                    memlock_text(*plan.memlock)));
  }
  return live;
}

}  // namespace hook
