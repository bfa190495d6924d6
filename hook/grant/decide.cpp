#include "hook/grant/decide.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "hook/grant/node.hpp"
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

// The function or auxiliary device that the HCA is of, and the node that makes it another one than its siblings. Both
// stay when it is renamed, and are other ones only after it was registered anew. Empty: of a file tree without links.
HcaDevices devices_of(const std::vector<std::string>& names, const fabric::Inventory& inventory) {
  HcaDevices devices;
  for (const std::string& name : names) {
    const fabric::Hca* hca = find_hca(inventory, name);
    if (!hca || !hca->class_link || !hca->uverbs_dev) continue;
    const std::string& link = *hca->class_link;
    const auto begin = link.find("/devices/");
    const auto end = link.rfind('/');
    if (begin < end) devices[name] = link.substr(begin, end - begin) + " " + *hca->uverbs_dev;
  }
  return devices;
}

}  // namespace

Result<LockedHoldings> lock_holdings(const Asking& asking, const Candidates& among, const Ledger& ledger,
                                     const Owner& owner) {
  const auto names = among.names();
  auto locks = TRY(ledger.lock(names, kHcaLockTimeoutMs, devices_of(names, among.inventory)));
  Holdings holdings = TRY(locks.holdings(owner, largest_limits(names, *asking.request, asking.admin)));
  return LockedHoldings{std::move(locks), std::move(holdings)};
}

Result<Plan> decide(const Asking& asking, const Candidates& among, const Holdings& holdings,
                    const std::string& view_directory, bool variables) {
  return make_plan({.among = among,
                    .holdings = holdings,
                    .view_directory = view_directory,
                    .host_network = TRY(uses_host_network(asking.spec)),
                    .may_remount = asking.spec.may_remount,
                    .variables = variables,
                    .require = find_env(asking.spec, "RDMA_INIT_REQUIRE")});
}

}  // namespace hook
