#include "hook/grant/pool_counts.hpp"

#include <algorithm>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/config/seen_pools.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/parts.hpp"

namespace hook {
namespace {

bool is_open(const fabric::Port& port) {
  return port.is_active() || !std::holds_alternative<std::string>(port.state);
}

bool counts(const NodeHca& node, const std::set<std::string>& closed) {
  return node.hca->has_node() && (closed.contains(node.name()) || std::ranges::any_of(node.hca->ports, is_open));
}

bool is_granted(const GrantedHcas& granted, const std::string& name, const HcaDevices& devices) {
  const auto device = devices.find(name);
  return granted.names.contains(name) || (device != devices.end() && granted.devices.contains(device->second));
}

bool is_disabled(const fabric::Port& port) {
  return base::value_or(port.phys_state, std::string()).ends_with("Disabled");
}

// Returns the number of granted HCAs that the inventory lacks.
unsigned hidden_of(const GrantedHcas& granted, const std::vector<std::string>& names, const HcaDevices& devices) {
  std::set<std::string> shown(names.begin(), names.end());
  std::set<std::string> shown_devices;
  for (const auto& [name, device] : devices)
    shown_devices.insert(device);
  const auto lacking = [](const std::set<std::string>& all, const std::set<std::string>& present) {
    return std::ranges::count_if(all, [&](const std::string& one) { return !present.contains(one); });
  };
  // A granted HCA has a name and mostly a device. A renamed HCA lacks its name only.
  return static_cast<unsigned>(granted.devices.empty() ? lacking(granted.names, shown)
                                                       : lacking(granted.devices, shown_devices));
}

}  // namespace

GrantedHcas read_granted(const NodeSettings& node) {
  GrantedHcas granted;
  Ledger::Unread unread;
  const auto add = [&](const Grant& grant) -> Result<void> {
    for (const PlannedHca& hca : grant.hcas) {
      granted.names.insert(hca.name);
      if (!hca.device.empty()) granted.devices.insert(hca.device);
    }
    return {};
  };
  const std::string ledger = ledger_path(node);
  const auto read = Ledger::for_each_recorded_at(ledger, add, &unread);
  granted.all = read.has_value() && unread.empty();
  return granted;
}

std::string seen_pools_file(const NodeSettings& node) {
  // With --config, the cluster's file and its directory are not read.
  if (node.snapshot || node.config.file_must_exist || node.config.cluster.empty()) return "";
  return fmt::format("{}/{}", base::parent_of(node.config.cluster), kSeenPoolsFile);
}

Result<std::set<std::string>> read_seen_pools(const std::string& file) {
  constexpr const char* kRemedy = "remove the file; `rdma-hook recover` writes it again";
  std::set<std::string> seen;
  if (file.empty()) return seen;
  auto text = base::read_text_file(file, {.bytes = base::kMostText});
  if (!text && text.error().code == ENOENT) return seen;
  if (!text) return Error{text.error().message, text.error().code, kRemedy};
  base::JsonFault fault;
  const auto list = base::try_parse_json(*text, {}, fault);
  const auto is_name = [](const base::Json& one) { return one.is_string(); };
  if (!list || !list->is_array() || !std::ranges::all_of(*list, is_name))
    return Error{fmt::format("`{}` is no list of pools", base::printable(file)), EINVAL, kRemedy};
  for (const base::Json& name : *list)
    seen.insert(name.get<std::string>());
  return seen;
}

void read_phys_states(const std::string& root, fabric::Inventory& inventory) {
  for (fabric::Hca& hca : inventory.hcas) {
    for (fabric::Port& port : hca.ports) {
      if (port.is_active()) continue;
      port.phys_state = base::read_attribute(
          fmt::format("{}/sys/class/infiniband/{}/ports/{}/phys_state", root, hca.name, port.number));
    }
  }
}

std::vector<PoolCount> count_pools(const NodeMap& node, const Config& config, const std::set<std::string>& closed,
                                   unsigned hidden, const std::set<std::string>& seen) {
  std::vector<PoolCount> pools;
  for (const Pool& pool : config.pools) {
    if (!pool.expect) continue;
    PoolCount count{pool.name, *pool.expect, 0, {}};
    for (const NodeHca* hca : node.by_rail()) {
      if (!hca->pool || hca->pool->name != pool.name) continue;
      if (counts(*hca, closed)) {
        ++count.usable;
      } else {
        count.unusable.push_back(hca->name());
      }
    }
    if (count.usable + count.unusable.size() + hidden == 0 && !seen.contains(pool.name)) continue;
    if (count.usable < count.expected) count.usable = std::min(count.expected, count.usable + hidden);
    pools.push_back(std::move(count));
  }
  return pools;
}

Result<std::vector<PoolCount>> read_pool_counts(const NodeSettings& node, const Config& config) {
  if (std::ranges::none_of(config.pools, [](const Pool& pool) { return pool.expect.has_value(); }))
    return std::vector<PoolCount>();
  auto inventory = TRY(read_whole_node(config, node, {.link_layer = true, .netdevs = true}));
  TRY_VOID(was_read(inventory, fabric::Unread::Part::kHcas));
  const bool is_live = !node.snapshot;
  if (is_live) read_phys_states(node.root, inventory);
  const NodeMap map(inventory, config);
  for (const NodeHca& hca : map.hcas())
    if (hca.pool_unread) return base::wrap(unknown_pool(hca), hca.name());
  const GrantedHcas granted = is_live ? read_granted(node) : GrantedHcas();
  if (!granted.all) return Error{"the grants of this node cannot be read", 0, "run `rdma-hook doctor`"};
  const auto seen = TRY(read_seen_pools(seen_pools_file(node)));
  const auto names = map.names();
  const HcaDevices devices = is_live ? devices_of(names, inventory, node.root).devices : HcaDevices();
  std::set<std::string> closed;
  for (const fabric::Hca& hca : inventory.hcas)
    if (is_granted(granted, hca.name, devices) && std::ranges::all_of(hca.ports, is_disabled)) closed.insert(hca.name);
  return count_pools(map, config, closed, hidden_of(granted, names, devices), seen);
}

}  // namespace hook
