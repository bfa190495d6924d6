#include "hook/grant/own_hcas.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "fabric/read_node.hpp"
#include "fabric/text.hpp"
#include "hook/plan/parts.hpp"
#include "hook/rails/netlink/open_netns.hpp"
#include "hook/rails/plan/rail_config.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

using fabric::Hca;
using fabric::Inventory;
using fabric::Result;

Result<void> read_inside(const NetnsIdentity& netns, const std::string& root, const std::vector<std::string>& names,
                         Inventory& inventory) {
  fabric::UniqueFd fd(::open(netns.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) return fabric::sys_error(errno, "cannot open the pod's network namespace `{}`", netns.path);
  const auto inside = TRY(open_network_namespace(std::move(fd), {.packet = false, .sysfs = true}));
  if (!inside.sysfs.ok()) return {};
  const std::string sys = fmt::format("/proc/self/fd/{}", inside.sysfs.get());
  auto found = fabric::read_hcas_elsewhere(root, sys, names);
  TRY_VOID(was_read(found, fabric::Unread::Part::kHcas));
  std::move(found.unread.begin(), found.unread.end(), std::back_inserter(inventory.unread));
  std::move(found.hcas.begin(), found.hcas.end(), std::back_inserter(inventory.hcas));
  // The inventory's own order, by which `index:` counts.
  std::sort(inventory.hcas.begin(), inventory.hcas.end(),
            [](const Hca& left, const Hca& right) { return fabric::natural_less(left.name, right.name); });
  return {};
}

// An HCA that moved names its netdev as it is called inside; of one that stayed the port's netdev is not found.
void name_netdev(const RailRecord& rail, Inventory& inventory) {
  Hca* hca = find_hca(inventory, rail.rail.hca);
  if (!hca) return;
  auto port = std::find_if(hca->ports.begin(), hca->ports.end(),
                           [&](const fabric::Port& one) { return one.netdev == rail.rail.name; });
  if (port == hca->ports.end()) {
    port = std::find_if(hca->ports.begin(), hca->ports.end(), [](const fabric::Port& one) { return !one.netdev; });
  }
  if (port == hca->ports.end()) return;
  port->netdev = rail.host.name;
  fabric::Netdev netdev;
  netdev.name = rail.host.name;
  netdev.mac = fmt::format("{:02x}", fmt::join(rail.host.mac, ":"));
  netdev.pci = hca->pci;
  netdev.in_this_netns = false;
  for (const RailAddress& own : addresses_in(rail.host.records))
    netdev.addresses.push_back({own.address, own.prefix, {}});
  inventory.netdevs.push_back(std::move(netdev));
}

}  // namespace

Result<void> add_own_hcas(const std::string& ledger_directory, const Owner& owner, const std::string& root,
                          Inventory& inventory) {
  if (!owner.netns || TRY(NetworkRecordStore::look_at(ledger_directory, owner.key)) == Presence::kGone) return {};
  const auto store = TRY(NetworkRecordStore::open(ledger_directory));
  auto record = TRY(store.read(owner.key));
  // The number of a namespace that ended is used again.
  if (!record || record->netns.ino != owner.netns->ino || record->netns.dev != owner.netns->dev) return {};
  std::erase_if(record->rails, [](const RailRecord& rail) { return rail.rail.kind != RailKind::kMove; });
  std::vector<std::string> away;
  for (const RailRecord& rail : record->rails) {
    if (!find_hca(inventory, rail.rail.hca)) away.push_back(rail.rail.hca);
  }
  if (!away.empty()) TRY_VOID(read_inside(*owner.netns, root, away, inventory));
  for (const RailRecord& rail : record->rails)
    name_netdev(rail, inventory);
  return {};
}

Result<void> add_given_hcas(const Request& request, const Owner& owner, const std::string& root, Inventory& inventory) {
  std::vector<std::string> away;
  for (const SpecDevice& device : request.given) {
    const auto number = device.uverbs() ? device.uverbs() : fabric::uverbs_number(device.path);
    const auto has_it = [&](const Hca& hca) { return hca.uverbs == number; };
    if (!owner.netns || !number || std::any_of(inventory.hcas.begin(), inventory.hcas.end(), has_it)) continue;
    const auto name = fabric::hca_of_uverbs(root, *number);
    if (name && !find_hca(inventory, *name) && std::find(away.begin(), away.end(), *name) == away.end())
      away.push_back(*name);
  }
  return away.empty() ? Result<void>() : read_inside(*owner.netns, root, away, inventory);
}

}  // namespace hook
