#include "hook/grant/decide.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "hook/apply/rdma_cgroup.hpp"
#include "hook/grant/hca_devices.hpp"
#include "hook/plan/match.hpp"

namespace hook {
namespace {

using fabric::Result;

// The ledger counts holders no further than to the largest number that could refuse.
std::map<std::string, unsigned> largest_limits(const std::vector<std::string>& names, const Request& request,
                                               const Config& config) {
  unsigned largest = may_be(Mode::kExclusive, request, config) ? 1 : 0;
  for (const Pool& pool : config.pools) {
    for (const auto& [mode, limit] : pool.limits)
      largest = std::max(largest, limit);
  }
  std::map<std::string, unsigned> limits;
  for (const std::string& name : names)
    limits[name] = largest;
  return limits;
}

// A runtime makes mounts of config.json as the root of the container's user namespace, which may not look into the
// ledger's directory, and an overlay in a user namespace needs Linux 5.11. createRuntime makes it as the node's root.
ViewMount view_mount(const ContainerSpec& spec, bool in_spec) {
  const MayWrite may = may_write_to_mounts(spec);
  if (may == MayWrite::kNo) return ViewMount::kBind;
  return in_spec && spec.has_userns ? ViewMount::kLater : ViewMount::kOverlay;
}

}  // namespace

Result<LockedHoldings> lock_holdings(const Asking& asking, const Candidates& among, const Ledger& ledger,
                                     const Owner& owner, const std::string& root) {
  const auto names = among.names();
  const KnownDevices known = devices_of(names, among.inventory, root);
  auto locks = TRY(ledger.lock(names, kHcaLockTimeoutMs, known.devices));
  Holdings holdings = TRY(locks.holdings(owner, largest_limits(names, *asking.request, asking.admin)));
  for (const auto& [name, why] : known.unknown)
    holdings[name].exclusive_holder = fmt::format("somebody unknown ({})", why);
  return LockedHoldings{std::move(locks), std::move(holdings)};
}

Result<Plan> decide(const Asking& asking, const Candidates& among, const Holdings& holdings,
                    const std::string& view_directory, bool variables, const std::optional<std::string>& root) {
  const bool host_network = TRY(uses_host_network(asking.spec));
  Plan plan = TRY(make_plan({.among = among,
                             .holdings = holdings,
                             .view_directory = view_directory,
                             .host_network = host_network,
                             .view_mount = view_mount(asking.spec, variables),
                             .variables = variables,
                             .require = find_env(asking.spec, "RDMA_INIT_REQUIRE"),
                             .moved_netdevs = asking.spec.moved_netdevs}));
  if (root) TRY_VOID(leave_out_rdma_limits(*root, plan));
  return plan;
}

}  // namespace hook
