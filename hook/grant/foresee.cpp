#include "hook/grant/foresee.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/warnings.hpp"
#include "fabric/lent_libraries.hpp"
#include "fabric/provider_names.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/grant/mount_places.hpp"
#include "hook/plan/choose.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"

namespace hook {
namespace {

// A call that waits for the lock of a chosen HCA so long chooses another HCA.
constexpr int kShortlistTimeoutMs = 1000;

// A runtime makes the mounts of config.json as the root of the container's user namespace. That user cannot read the
// ledger's directory, and an overlay in a user namespace needs Linux 5.11. So createRuntime makes the mount later, as
// the node's root. in_spec: the mounts are written into config.json.
ViewMount view_mount(const ContainerSpec& spec, bool in_spec) {
  const MayWrite may = may_write_to_mounts(spec);
  if (may == MayWrite::kNo) return ViewMount::kBind;
  return in_spec && spec.has_userns ? ViewMount::kLater : ViewMount::kOverlay;
}

// Removes mounts that the container does not need. in_spec: the mounts are written into config.json. If config.json
// mounts nothing at /sys, the container has no /sys/class to cover, and the runtime would create the mount point in the
// image.
void leave_out_mounts(const ContainerSpec& spec, bool in_spec, Plan& plan) {
  const auto is_mounted = [&](const std::string& at) {
    return std::ranges::any_of(spec.mounts, [&](const SpecMount& mounted) { return mounted.destination == at; });
  };
  const bool covers_nothing = in_spec && !is_mounted("/sys");
  std::erase_if(plan.mounts, [&](const PlannedMount& mount) {
    return (covers_nothing && mount.destination.starts_with("/sys/")) || is_mounted(mount.destination);
  });
}

// Returns why copies cannot be mounted at the directories. A mount that config.json already has there is left as it is.
// bundle: that of a container that does not exist yet; empty: unknown.
std::optional<Error> cannot_mount_copies(const ContainerSpec& spec, const std::string& bundle,
                                         std::vector<std::string> directories) {
  std::erase_if(directories, [&](const std::string& at) {
    return std::ranges::find(spec.mounts, at, &SpecMount::destination) != spec.mounts.end();
  });
  if (directories.empty()) return std::nullopt;
  const bool is_known = !bundle.empty() && !spec.root_path.empty();
  return cannot_mount(directories, spec.mounts,
                      is_known ? std::filesystem::path(bundle) / spec.root_path : std::filesystem::path());
}

// Finds the libraries for the HCAs in pools that lend them. Reads nothing if no pool lends libraries. cannot_mount:
// cannot_mount_copies() of the container.
Lendable find_lendable(const Candidates& among, const std::string& root, auto cannot_mount) {
  std::set<std::string> providers;
  for (const NodeHca& node : among.node.hcas())
    if (node.pool && node.pool->lend_providers) providers.insert(fabric::provider_of(*node.hca));
  providers.erase("");
  Lendable lendable;
  if (providers.empty()) return lendable;
  const std::optional<Error> refused = cannot_mount({fabric::kLentDirectory, fabric::kNeededDirectory});
  for (const std::string& provider : providers) {
    using Files = Result<std::vector<fabric::LentFile>>;
    lendable.emplace(provider,
                     refused ? Files(*refused) : fabric::find_lent_libraries(root, among.config.lend_from, {provider}));
  }
  return lendable;
}

std::optional<Result<fabric::LentFile>> find_topology(const std::string& path, const std::string& root,
                                                      auto cannot_mount) {
  if (path.empty()) return std::nullopt;
  if (std::optional<Error> refused = cannot_mount({fabric::kTopologyDirectory})) return *std::move(refused);
  return fabric::find_topology_file(root, path);
}

Result<Plan> decide(const ForeseeInput& input, const Candidates& among, const Holdings& holdings) {
  const ContainerSpec& spec = input.requesting.spec;
  const bool host_network = TRY(uses_host_network(spec));
  std::string views = input.ledger ? input.ledger->view_directory() : std::string(kLedgerPath) + "/views";
  const auto cannot_mount = [&](std::vector<std::string> directories) {
    return cannot_mount_copies(spec, input.bundle, std::move(directories));
  };
  const std::string& root = input.node.root;
  Plan plan = TRY(make_plan(
      {.among = among,
       .holdings = holdings,
       .view_directory = std::move(views),
       .host_network = host_network,
       .view_mount = input.has_mounts ? ViewMount::kLater : view_mount(spec, input.variables),
       .variables = input.variables,
       .pod_note = input.requesting.pod_note,
       .require = find_env(spec, "RDMA_INIT_REQUIRE"),
       .moved_netdevs = spec.moved_netdevs,
       .lendable = find_lendable(among, root, cannot_mount),
       .topology = find_topology(input.variables ? among.config.topology_file : std::string(), root, cannot_mount)}));
  // A snapshot does not show whether its node has the rdma controller, so the plan keeps the limits.
  if (!input.node.snapshot) TRY_VOID(leave_out_rdma_limits(root, plan));
  leave_out_mounts(spec, input.variables, plan);
  return plan;
}

// Decides. With a shortlist, first checks that the container can get all its HCAs.
Result<ForeseenPlan> decide_shortlist(const ForeseeInput& input, const Candidates& among, const Holdings& holdings,
                                      const std::vector<std::string>* shortlist) {
  ForeseenPlan foreseen;
  if (shortlist)
    foreseen.unavailable = unavailable({.among = among, .holdings = holdings, .view_directory = {}}, *shortlist);
  foreseen.lost_to_others = std::ranges::any_of(foreseen.unavailable, [&](const auto& hca) {
    const auto found = holdings.find(hca);
    return found != holdings.end() && (found->second.exclusive_owner || found->second.others > 0);
  });
  if (foreseen.unavailable.empty()) foreseen.plan = TRY(decide(input, among, holdings));
  return foreseen;
}

bool has_all(const std::vector<PlannedHca>& bound, const std::vector<PlannedHca>& hcas) {
  return std::ranges::all_of(hcas, [&](const PlannedHca& hca) {
    return std::ranges::any_of(bound, [&](const PlannedHca& held) {
      return held.name == hca.name && held.mode == hca.mode && held.units >= hca.units;
    });
  });
}

}  // namespace

Result<void> add_moved_hcas(const ForeseeInput& input, fabric::Inventory& inventory) {
  const std::string& root = input.node.root;
  if (input.ledger) TRY_VOID(add_own_hcas(input.node.ledger, input.owner, root, inventory));
  if (input.node.snapshot) return {};
  const auto added = add_granted_hcas(*input.requesting.request, input.owner, root, inventory);
  if (!added && input.call) add_once(added.error().message, input.call->notes);
  return {};
}

Result<ForeseenPlan> foresee(const ForeseeInput& input, const fabric::Inventory& inventory,
                             const std::vector<std::string>* shortlist) {
  const Candidates among(inventory, *input.requesting.request, input.requesting.admin, shortlist);
  if (!input.ledger) return decide_shortlist(input, among, {}, shortlist);
  const auto names = among.names();
  const KnownDevices known = devices_of(names, inventory, input.node.root);
  // A call that chooses another HCA, or tries again, prints no message, and has no time for the search of a process.
  const bool names_process = !shortlist && input.lock_ms >= kHcaLockTimeoutMs;
  const int lock_ms = shortlist ? std::min(kShortlistTimeoutMs, input.lock_ms) : input.lock_ms;
  auto locked = input.ledger->lock(names, lock_ms, known.devices, names_process);
  if (!locked && shortlist && locked.error().code == EAGAIN)
    return ForeseenPlan{.plan = {}, .unavailable = *shortlist, .lost_to_others = true};
  auto locks = TRY(std::move(locked));
  Holdings holdings = TRY(locks.holdings(input.owner, bounds_of(among)));
  for (const auto& [name, why] : known.unknown)
    // The ledger books an HCA under its device. If the device is unknown, a grant of the HCA cannot be found, so the
    // HCA counts as held by another owner.
    holdings[name] = {.exclusive_owner = fmt::format("an unknown owner ({})", why)};
  ForeseenPlan foreseen = TRY(decide_shortlist(input, among, holdings, shortlist));
  for (PlannedHca& hca : foreseen.plan.hcas) {
    const std::string* const key = known.booked_under(hca.name);
    if (key && *key != hca.name) hca.device = *key;
  }
  foreseen.locks = std::move(locks);
  for (const auto& [name, holding] : holdings)
    if (holding.own) foreseen.own.push_back(name);
  return foreseen;
}

Result<std::optional<Plan>> foresee_bound(const ForeseeInput& input, const fabric::Inventory& inventory,
                                          const Grant& bound, const std::vector<std::string>* shortlist) {
  const Candidates among(inventory, *input.requesting.request, input.requesting.admin, shortlist);
  const auto own = named_by_now(bound.hcas, among.names(), inventory, input.node.root);
  Holdings holdings;
  for (const PlannedHca& hca : own)
    holdings[hca.name] = {.own = true, .own_units = hca.held_only ? 0 : hca.units, .exclusive_owner = {}};
  Plan plan = TRY(decide(input, among, holdings));
  for (PlannedHca& hca : plan.hcas) {
    const auto booked = std::ranges::find(own, hca.name, &PlannedHca::name);
    if (booked != own.end()) hca.device = booked->device;
  }
  const bool suffices = plan.mounts.empty() && has_all(own, plan.hcas) && has_all(own, plan.also_open);
  return suffices ? std::optional(std::move(plan)) : std::nullopt;
}

}  // namespace hook
