#include "hook/apply/live/steps.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "fabric/lent_libraries.hpp"
#include "hook/apply/memlock.hpp"

namespace hook {
namespace {

Result<MakeNode> node_step(const PlannedNode& node, bool bind, const std::string& root) {
  if (!node.major || !node.minor)
    return Error{fmt::format("cannot make `{}` in the container: its device number is unknown", node.path), 0,
                 "apply a plan of the live node, not of a snapshot"};
  MakeNode step{node.path, *node.major, *node.minor, node.mode, node.uid, node.gid, bind, {}};
  if (bind) step.source = root + node.path;
  return step;
}

// Returns the lower directories of an overlay mount; empty: `mount` is a bind mount.
std::string layers_of(const PlannedMount& mount) {
  constexpr std::string_view kOption = "lowerdir=";
  const auto found =
      std::ranges::find_if(mount.options, [&](const std::string& option) { return option.starts_with(kOption); });
  return found == mount.options.end() ? std::string() : found->substr(kOption.size());
}

// Returns true if the runtime overwrites the limit after this hook. runc sets the limits of config.json after the
// hooks, crun before them. Both leave a limit that config.json does not list.
bool runtime_overwrites_memlock(const ContainerSpec& spec, const OciState& state) {
  return spec.memlock.has_value() && !state.from_crun;
}

void add_memlock(std::uint64_t wanted, const ContainerSpec& spec, const OciState& state, const LiveNode& node,
                 LivePlan& live) {
  if (!runtime_overwrites_memlock(spec, state)) {
    // The limit is high enough already, so it is not set, and no warning is needed.
    if (node.memlock && usable(*node.memlock) >= wanted) return;
    live.steps.emplace_back(SetMemlock{wanted});
    live.warnings.push_back(
        fmt::format("`exec` into the container gets the engine's RLIMIT_MEMLOCK, not {}: use rdma-runtime or raise "
                    "the limit ({})",
                    memlock_text(wanted), where_to_set_memlock(node.engine)));
    return;
  }
  live.warnings.push_back(memlock_stays(wanted, usable(*spec.memlock), node.engine));
}

// Returns the limit with which the container's first process will run; nullopt: the engine's limit, which is unknown.
std::optional<std::uint64_t> final_memlock(const Adjustment& adjustment, const ContainerSpec& spec,
                                           const OciState& state, const LiveNode& node) {
  if (runtime_overwrites_memlock(spec, state)) return usable(*spec.memlock);
  if (adjustment.memlock) return usable(raised_memlock(*adjustment.memlock, node.memlock));
  return node.memlock ? std::optional(usable(*node.memlock)) : std::nullopt;
}

// Warns if the adjustment's CAP_IPC_LOCK has no effect: createRuntime cannot add a capability, and in a user namespace
// the capability does not count. If RLIMIT_MEMLOCK limits the memory that ibv_reg_mr() can register, the warning has
// the remedy. If RLIMIT_MEMLOCK is unlimited, the warning only reports a missing capability.
void warn_of_capability(const Adjustment& adjustment, const ContainerSpec& spec, const OciState& state,
                        const LiveNode& node, LivePlan& live) {
  const bool wanted = std::ranges::find(adjustment.capabilities, "CAP_IPC_LOCK") != adjustment.capabilities.end();
  if (!wanted || (spec.has_ipc_lock && !spec.has_userns)) return;
  const auto limit = final_memlock(adjustment, spec, state, node);
  auto* const step = live.steps.empty() ? nullptr : std::get_if<SetMemlock>(&live.steps.back());
  std::string text;
  if (limit != UINT64_MAX) {
    const char* const why =
        spec.has_userns ? "CAP_IPC_LOCK has no effect in a user namespace" : "cannot add CAP_IPC_LOCK at createRuntime";
    const std::string remedy = spec.has_userns
                                   ? fmt::format("raise the limit ({})", where_to_set_memlock(node.engine))
                                   : fmt::format("use rdma-runtime, or {}", where_to_add_ipc_lock(node.engine));
    text = fmt::format("{}; RLIMIT_MEMLOCK is {}, and ibv_reg_mr fails beyond it: {}", why, limit_text(limit), remedy);
  } else if (!spec.has_ipc_lock) {
    text =
        "cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is unlimited instead, which is enough for "
        "ibv_reg_mr";
  }
  if (step) {
    step->note = std::move(text);
  } else if (!text.empty()) {
    live.warnings.push_back(std::move(text));
  }
}

}  // namespace

Result<LivePlan> live_steps(const Adjustment& adjustment, const ContainerSpec& spec, const OciState& state,
                            const LiveNode& around) {
  LivePlan live;
  AllowDevices allow;
  std::vector<Step> nodes;
  for (const AdjustedNode& adjusted : adjustment.nodes) {
    MakeNode step = TRY(node_step(adjusted.node, spec.has_userns, around.root));
    const DeviceNumber number{step.major, step.minor};
    if (std::ranges::find(allow.devices, number) == allow.devices.end()) allow.devices.push_back(number);
    nodes.emplace_back(std::move(step));
  }
  std::ranges::move(nodes, std::back_inserter(live.steps));
  for (const PlannedMount& mount : adjustment.mounts) {
    const std::string& at = mount.destination;
    const bool lent = at == fabric::kLentDirectory || at == fabric::kNeededDirectory;
    live.steps.emplace_back(BindDirectory{mount.source, at, layers_of(mount), lent});
  }
  // The limits and device rules come after the file steps, which fail if the process does not belong to the bundle.
  // Otherwise a wrong process could get rights or limits.
  if (!adjustment.rdma_limits.empty()) live.steps.emplace_back(LimitRdma{adjustment.rdma_limits});
  if (!allow.devices.empty()) live.steps.emplace_back(std::move(allow));
  if (adjustment.memlock) add_memlock(*adjustment.memlock, spec, state, around, live);
  warn_of_capability(adjustment, spec, state, around, live);
  return live;
}

}  // namespace hook
