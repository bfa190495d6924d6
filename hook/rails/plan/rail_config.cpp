#include "hook/rails/plan/rail_config.hpp"

#include <linux/rtnetlink.h>

#include <algorithm>

#include "fabric/inventory.hpp"
#include "fabric/text.hpp"

namespace hook {
namespace {

void add_own_table(const RailAddress& address, int ifindex, unsigned table, unsigned priority,
                   std::vector<NetRecord>& routes) {
  RouteSpec connected;
  connected.ifindex = ifindex;
  connected.ipv6 = !address.address.is_ipv4();
  connected.destination = fabric::masked(address.address, address.prefix);
  connected.prefix = address.prefix;
  connected.source = address.address;
  connected.table = table;
  routes.push_back(route_record(connected));
  if (address.gateway) {
    RouteSpec by_gateway;
    by_gateway.ifindex = ifindex;
    by_gateway.ipv6 = connected.ipv6;
    by_gateway.gateway = address.gateway;
    by_gateway.source = address.address;
    by_gateway.table = table;
    routes.push_back(route_record(by_gateway));
  }
  routes.push_back(rule_record(address.address, table, priority));
}

}  // namespace

RailConfig configure_rail(const Rail& rail, int ifindex, unsigned rule_priority,
                          const std::vector<NetRecord>& carried) {
  RailConfig config;
  if (rail.addresses.empty()) {
    for (const NetRecord& record : carried) {
      auto& list = record.type == RTM_NEWADDR ? config.addresses : config.routes;
      list.push_back(for_netdev(record, ifindex, rail.name));
    }
    if (!rail.table) return config;
    for (const NetRecord& record : config.addresses) {
      // What leads further than its subnet is among the routes that came along: no gateway is known here.
      const auto address = address_of(record);
      const auto prefix = prefix_of(record);
      if (!address || !prefix) continue;
      add_own_table({*address, *prefix, std::nullopt}, ifindex, *rail.table, rule_priority, config.routes);
    }
    return config;
  }
  for (const RailAddress& address : rail.addresses) {
    AddressFlags flags;
    flags.no_prefix_route = rail.table.has_value();  // else the kernel adds the connected route to the main table
    config.addresses.push_back(address_record(ifindex, address.address, address.prefix, flags));
    if (rail.table) add_own_table(address, ifindex, *rail.table, rule_priority, config.routes);
  }
  return config;
}

std::vector<RailAddress> addresses_in(const std::vector<NetRecord>& records) {
  std::vector<RailAddress> addresses;
  for (const NetRecord& record : records) {
    const auto address = address_of(record);
    const auto prefix = prefix_of(record);
    if (address && prefix && !address->is_link_local()) addresses.push_back({*address, *prefix, std::nullopt});
  }
  return addresses;
}

void warn_of_no_address(const std::vector<const Rail*>& rails, const fabric::Inventory& inventory,
                        std::vector<std::string>& warnings) {
  std::vector<std::string> names;
  for (const Rail* rail : rails) {
    const fabric::Hca* hca = fabric::find_hca(inventory, rail->hca);
    const bool is_roce = hca && std::any_of(hca->ports.begin(), hca->ports.end(),
                                            [](const fabric::Port& port) { return port.is_ethernet(); });
    if (is_roce) names.push_back(fmt::format("{} ({})", fabric::printable(rail->name), fabric::printable(rail->hca)));
  }
  if (names.empty()) return;
  warnings.push_back(
      fmt::format("no address for {}: RoCE works there by IPv6 link-local addresses at most; \"addresses\" for "
                  "the rail, or \"ipam\", in its network gives it one",
                  fabric::join(names, ", ")));
}

std::optional<fabric::Address> gid_address(const RailConfig& config) {
  std::optional<fabric::Address> best;
  for (const NetRecord& record : config.addresses) {
    const auto address = address_of(record);
    if (!address || address->is_link_local() || address->is_loopback()) continue;
    if (!best || (address->is_ipv4() && !best->is_ipv4())) best = address;
  }
  return best;
}

}  // namespace hook
