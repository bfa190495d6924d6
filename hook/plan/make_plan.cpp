#include "hook/plan/plan.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "base/text.hpp"
#include "base/warnings.hpp"
#include "hook/plan/choose.hpp"
#include "hook/plan/order.hpp"
#include "hook/plan/parts.hpp"

namespace hook {
namespace {

// Returns the chosen units, merged into one entry per HCA.
std::vector<PlannedHca> booked(const Chosen& chosen) {
  std::vector<PlannedHca> hcas;
  for (const ChosenHca& unit : chosen.units) {
    const auto found = std::ranges::find(hcas, unit.node->name(), &PlannedHca::name);
    if (found != hcas.end()) {
      ++found->units;
    } else {
      hcas.push_back({unit.node->name(), unit.terms.mode, 1, unit.terms.limit});
    }
  }
  return hcas;
}

// Returns the chosen HCAs without duplicates: device nodes and limits are per HCA, netdevs per unit.
std::vector<const NodeHca*> each_once(const Chosen& chosen) {
  std::vector<const NodeHca*> hcas;
  for (const ChosenHca& unit : chosen.units)
    if (std::ranges::find(hcas, unit.node) == hcas.end()) hcas.push_back(unit.node);
  return hcas;
}

// Warns about unread facts that the plan can do without.
void warn_of_unread(const fabric::Inventory& inventory, Plan& plan) {
  for (const fabric::Unread& unread : inventory.unread) {
    // Each other unread part causes an error in the function that needs the part (was_read()).
    if (unread.part != fabric::Unread::Part::kDetail && unread.part != fabric::Unread::Part::kPool) continue;
    // Ports of several HCAs can have one netdev. Such a netdev is read once for each port and may fail each time.
    add_once(sys_error(unread.code, "cannot read `{}`", unread.path).message, plan.warnings);
  }
}

// Warns about mode shared-multi with GPUs: GPUDirect uses one netdev of an HCA. Further child netdevs only share its
// bandwidth and GID table.
void advise(const PlanInput& input, const Chosen& chosen, Plan& plan) {
  const auto is_multi = [](const ChosenHca& unit) { return unit.terms.mode == Mode::kSharedMulti; };
  const bool has_gpus =
      !input.among.request.gpu_nodes.empty() || !input.among.request.gpu_uuids.empty() || input.among.request.gpu_hint;
  if (!has_gpus || std::ranges::none_of(chosen.units, is_multi)) return;
  plan.warnings.push_back("mode shared-multi has no benefit for containers with GPUs; use mode shared");
}

// Warns if NCCL would connect different planes. A count that chooses among free HCAs avoids it where it can.
void warn_of_planes(const std::vector<const NodeHca*>& granted, Plan& plan) {
  const auto rail = rail_out_of_order(granted);
  if (!rail) return;
  plan.warnings.push_back(
      fmt::format("rail {}: the PCI addresses of its HCAs are not in the order of its planes, so NCCL may connect "
                  "different planes; request a count of HCAs when more are free, or order the planes in \"rails\" by "
                  "PCI address",
                  *rail));
}

// Warns if the request names no network and therefore uses the network of each HCA's pool, but the pool of a chosen HCA
// has no network: that HCA gets no rail.
void warn_of_no_network(const PlanInput& input, const Chosen& chosen, Plan& plan) {
  const std::string& source = input.among.request.network_of_pool;
  if (source.empty() || input.host_network || input.among.request.mode == Mode::kHca) return;
  for (const ChosenHca& unit : chosen.units) {
    if (unit.terms.network) continue;
    plan.no_rail.push_back(unit.node->name());
    if (plan.no_rail.size() > 1) continue;
    const std::size_t networks = input.among.config.networks.size();
    const std::string why =
        networks == 0
            ? "/etc/rdma-init/config.json has no \"networks\"; add one, and its name as \"network\" of the pool"
            : fmt::format(
                  "its pool `{}` has no network, and the annotation names no network of config.json, "
                  "which has {}; add \"network\" to the pool",
                  unit.node->pool->name, networks);
    plan.warnings.push_back(fmt::format("{}: `{}` gets no rail: {}", source, base::printable(unit.node->name()), why));
  }
}

// Books HCAs that the container can open without a grant, because linux.devices has their device nodes. Errors: another
// owner has such an HCA, or its physical function, exclusively.
Result<void> hold_granted(const PlanInput& input, Plan& plan) {
  for (const NodeHca* open_hca : input.among.granted) {
    const std::string& name = open_hca->name();
    const auto is_granted = [&](const PlannedHca& hca) { return hca.name == name; };
    // rdma-hook does not book HCAs that are in no pool.
    if ((!open_hca->pool && !open_hca->pool_unread) || std::ranges::any_of(plan.hcas, is_granted)) continue;
    const auto holding = input.holdings.find(name);
    const bool is_held = holding != input.holdings.end() && holding->second.exclusive_owner;
    const std::string held = is_held ? fmt::format("is held exclusively by {}", *holding->second.exclusive_owner)
                                     : held_with_pf(*open_hca, input);
    if (!held.empty())
      return Error{fmt::format("`{}` {}, but the container already has its device node", base::printable(name), held),
                   0, "remove the node from the container's devices", FailureReason::kBusy};
    plan.also_open.push_back({name, Mode::kHca, 1, std::nullopt, true});
  }
  return {};
}

// Books the VFs of exclusive physical functions: the owner of a physical function controls its VFs.
void hold_vfs(const PlanInput& input, const Chosen& chosen, Plan& plan) {
  const auto hold = [&](const std::string& name) {
    const auto is_it = [&](const PlannedHca& hca) { return hca.name == name; };
    const auto granted = std::ranges::find_if(plan.hcas, is_it);
    if (granted != plan.hcas.end()) {
      // The VF is granted together with its physical function, so its grant is exclusive too.
      granted->mode = Mode::kExclusive;
      granted->limit.reset();
      return;
    }
    std::erase_if(plan.also_open, is_it);
    plan.also_open.push_back({name, Mode::kExclusive, 1, std::nullopt, true});
  };
  for (const ChosenHca& unit : chosen.units) {
    if (unit.terms.mode != Mode::kExclusive) continue;
    for (const std::string& vf : vfs_of(*unit.node, input.among.inventory))
      hold(vf);
  }
}

}  // namespace

Plan plan_without_hcas(const std::string& pod_note) {
  Plan plan;
  if (!pod_note.empty()) plan.env["RDMA_INIT_NOTE"] = pod_note;
  return plan;
}

Result<Plan> make_plan(const PlanInput& input) {
  Plan plan = plan_without_hcas(input.variables ? input.pod_note : "");
  Chosen chosen = TRY(choose(input));
  const std::vector<const NodeHca*> granted = each_once(chosen);
  plan.hcas = booked(chosen);
  plan.warnings = std::move(chosen.warnings);
  advise(input, chosen, plan);
  warn_of_planes(granted, plan);
  warn_of_no_network(input, chosen, plan);
  // hold_granted() is called even if nothing is granted: a device plugin or --device can have added device nodes to the
  // container. The HCAs of these nodes are checked and booked.
  TRY_VOID(hold_granted(input, plan));
  hold_vfs(input, chosen, plan);
  if (granted.empty()) return plan;
  plan.nodes = TRY(planned_nodes(input.among.config.nodes, input.among.inventory, granted));
  plan.memlock = input.among.config.memlock;
  if (input.among.config.ipc_lock) plan.capabilities.emplace_back("CAP_IPC_LOCK");
  plan.rdma_limits = planned_rdma_limits(plan.hcas, input.among.node, input.among.request.claimed);
  TRY_VOID(plan_netdevs(input, chosen, plan));
  for (const NodeHca* node : granted) {
    if (node->is_active()) continue;
    plan.warnings.push_back(fmt::format("`{}` has no ACTIVE port", base::printable(node->name())));
  }
  // Variables can be set only before the container is created.
  if (input.variables) require_usable(input, chosen, plan);
  if (input.variables) announce_node_addresses(input, granted, plan);
  if (input.variables) set_site_values(input, chosen, plan);
  if (input.variables) set_rails(granted, plan);
  TRY_VOID(plan_view(input, granted, plan));
  warn_of_unread(input.among.inventory, plan);
  return plan;
}

}  // namespace hook
