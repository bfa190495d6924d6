#include "hook/rails/foresee.hpp"

#include <optional>
#include <utility>

#include "base/text.hpp"
#include "hook/rails/add.hpp"
#include "hook/rails/address/node_ranges.hpp"
#include "hook/rails/address/pool.hpp"
#include "hook/rails/addresses.hpp"
#include "hook/rails/plan/plan_rails.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

// Returns the netdevs and routes of the node, read from the kernel or from the snapshot; nullopt if the snapshot has no
// netdevs.
Result<std::optional<NodeNetwork>> seen_network(const ForesightInput& input, bool moves,
                                                std::vector<std::string>& warnings) {
  if (!input.is_snapshot) return std::optional(TRY(read_node_network(moves)));
  const fabric::Inventory& snapshot = input.inventory;
  if (snapshot.netdevs.empty()) {
    warnings.emplace_back("the rails were not checked: the snapshot has no netdevs");
    return std::optional<NodeNetwork>();
  }
  if (moves && !snapshot.routes)
    warnings.emplace_back(
        "not checked whether a moving netdev has the default route: the snapshot has no routes; remedy: make a new "
        "snapshot");
  if (moves)
    warnings.emplace_back(
        "addresses of kubelet and sshd on moving netdevs were not checked: a snapshot does not have them");
  return std::optional(NodeNetwork{snapshot.netdevs, snapshot.routes.value_or(std::vector<fabric::Route>()), {}});
}

// Returns the record of the rails that the grant already has; nullopt if it has none.
Result<std::optional<NetworkRecord>> record_of(const ForesightInput& input) {
  if (input.ledger_directory.empty() ||
      TRY(NetworkRecordStore::read_presence(input.ledger_directory, input.key)) == Presence::kAbsent) {
    return std::optional<NetworkRecord>();
  }
  return TRY(NetworkRecordStore::open(input.ledger_directory)).read(input.key);
}

std::vector<RailAddress> own_addresses(const NodeNetwork& node, const std::string& name) {
  std::vector<RailAddress> addresses;
  for (const fabric::Netdev& netdev : node.netdevs) {
    if (!netdev.is_here() || netdev.name != name) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses) {
      // A link-local address is left out, because the kernel makes a new one when the netdev moves.
      if (own.address.is_link_local()) continue;
      addresses.push_back({own.address, own.prefix.value_or(own.address.is_ipv4() ? 32 : 128), std::nullopt});
    }
  }
  return addresses;
}

// Finds the sources of addresses in the order of take_addresses(): ranges, plugin, netdev.
Result<void> find_addresses(const ForesightInput& input, const NodeNetwork& node, ForeseenRail& one) {
  const Network* network = find_network(input.config, one.network);
  if (!network) return {};
  // Whether a VF gets a MAC address and a GUID depends on the node's part of the ranges, and not on the values.
  const auto any_value = [](const std::vector<AddressRange>& ranges) {
    return Result(std::vector<RailAddress>{{ranges.at(0).from, ranges.at(0).prefix, std::nullopt}});
  };
  Rail rail = one.rail;
  TRY_VOID(take_vf_values(input.config, *network, any_value, rail));
  const auto own = [&]() -> Result<std::vector<fabric::Address>> { return addresses_on(node.netdevs, one.rail.host); };
  const auto ranges = TRY(node_ranges(input.config, *network, one.rail.rail, own));
  for (const AddressRange* range : TRY(ranges_of(one.rail.rail, ranges)))
    one.ranges.push_back(*range);
  if (!one.ranges.empty()) {
    one.addresses_by = "config.json";
  } else if (network->ipam) {
    one.addresses_by = base::last_component(network->ipam_plugin);
  } else if (one.rail.kind == RailKind::kMove) {
    one.rail.addresses = own_addresses(node, one.rail.host);
    if (!one.rail.addresses.empty()) one.addresses_by = "netdev";
  }
  return {};
}

ForeseenRail rail_on_record(const RailRecord& rail_record) {
  ForeseenRail one{.rail = rail_record.rail, .network = rail_record.network};
  if (rail_record.lease) {
    one.addresses_by = base::last_component(rail_record.lease->plugin);
  } else if (!one.rail.addresses.empty()) {
    one.addresses_by = "config.json";
  } else if (one.rail.addresses = addresses_in(rail_record.host.records); !one.rail.addresses.empty()) {
    one.addresses_by = "netdev";
  }
  return one;
}

void warn_of_missing_addresses(const ForesightInput& input, Foreseen& foreseen) {
  std::vector<const Rail*> without;
  for (const ForeseenRail& one : foreseen.rails)
    if (one.addresses_by.empty()) without.push_back(&one.rail);
  if (auto warning = no_address_warning(without, input.inventory)) foreseen.warnings.push_back(*std::move(warning));
}

}  // namespace

Result<Foreseen> foresee_rails(const ForesightInput& input) {
  Foreseen foreseen;
  Plan rest = input.plan;
  if (const auto record = TRY(record_of(input))) {
    rest = without_existing(input.plan, *record);
    for (const RailRecord& rail_record : record->rails)
      foreseen.rails.push_back(rail_on_record(rail_record));
  }
  if (rest.netdevs.empty()) return foreseen;
  const auto node = TRY(seen_network(input, moves_any(rest), foreseen.warnings));
  if (!node) {
    // The new rails cannot be planned. The existing rails are not reported either, because a reader would take them for
    // all rails of the container.
    foreseen.rails.clear();
    return foreseen;
  }
  const std::size_t first = foreseen.rails.size();
  auto rails = TRY(plan_rails(rest, input.config, input.inventory, *node, first));
  for (std::size_t i = 0; i < rails.size(); ++i) {
    foreseen.rails.push_back({.rail = std::move(rails[i]), .network = rest.netdevs[i].network});
    TRY_VOID(find_addresses(input, *node, foreseen.rails.back()));
  }
  warn_of_missing_addresses(input, foreseen);
  return foreseen;
}

}  // namespace hook
