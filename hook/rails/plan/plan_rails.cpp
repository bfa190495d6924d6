#include "hook/rails/plan/plan_rails.hpp"

#include <linux/rtnetlink.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "fabric/port_use.hpp"

namespace hook {
namespace {

using fabric::Netdev;

constexpr int kInfinibandType = 32;            // the kernel's constant ARPHRD_INFINIBAND
constexpr unsigned kFirstReservedTable = 253;  // RT_TABLE_DEFAULT, _MAIN, _LOCAL
constexpr unsigned kLastReservedTable = 255;

// One netdev of the plan with the objects on which its rail depends.
struct Subject {
  const PlannedNetdev& planned;
  const Network& network;
  const fabric::Hca& hca;
  const Netdev& netdev;
  const NodeNetwork& node;
  RailKind kind;

  std::string hca_name() const { return printable(hca.name); }
  std::string netdev_name() const { return printable(netdev.name); }
  bool moves() const { return kind == RailKind::kMove; }
  bool is_infiniband() const { return netdev.type == kInfinibandType; }
};

Error refusal(std::string message, std::string hint) {
  return Error{std::move(message), 0, std::move(hint)};
}

// Suggests a kind of child that works on the netdev's link layer: ipoib over InfiniBand, ipvlan over Ethernet.
std::string share_hint(const Subject& subject) {
  return fmt::format("use mode shared with \"child\": \"{}\" in network `{}`",
                     subject.is_infiniband() ? "ipoib" : "ipvlan", subject.network.name);
}

// The name of the master is compared too, because a snapshot can lack the ifindex of the master.
bool has_slaves(const NodeNetwork& node, const Netdev& netdev) {
  return netdev.kind == "bond" || std::ranges::any_of(node.netdevs, [&](const Netdev& other) {
           return (netdev.ifindex != 0 && other.master_ifindex == netdev.ifindex) || other.master == netdev.name;
         });
}

Result<void> check_masters(const Subject& subject) {
  if (subject.netdev.master)
    return refusal(fmt::format("`{}`: `{}` has enslaved its netdev `{}`, which can neither move nor take children",
                               subject.hca_name(), printable(*subject.netdev.master), subject.netdev_name()),
                   "use mode hca, which adds only device nodes, or remove the netdev from its master");
  if (subject.moves() && has_slaves(subject.node, subject.netdev))
    return refusal(fmt::format("`{}`: its netdev `{}` has enslaved other netdevs and cannot move without them",
                               subject.hca_name(), subject.netdev_name()),
                   share_hint(subject));
  return {};
}

// Describes what the node loses if the netdev `upper` stops working: `upper` is the netdev that moves, or a netdev on
// top of it such as a VLAN. Returns an empty text if no loss is known.
std::string loss(const NodeNetwork& node, const Netdev& upper) {
  const auto leaves = [&](const fabric::Route& route) { return route.is_default() && route.dev == upper.name; };
  if (std::ranges::any_of(node.routes, leaves)) return "carries the node's default route";
  for (const fabric::InterfaceAddress& own : upper.addresses) {
    const auto service = node.services.find(own.address);
    if (service != node.services.end())
      return fmt::format("has {}, which {} uses", fabric::to_string(own.address), service->second);
  }
  return {};
}

// Refuses to move a netdev that the node needs. If the node loses the netdev by which it is reached, it can only be
// repaired at its console.
Result<void> check_node_keeps_its_own(const Subject& subject) {
  if (subject.network.take_node_netdevs) return {};
  // The default route or the address of sshd or kubelet can also be on a VLAN or bridge on top of the netdev, which
  // stops working when the netdev moves.
  for (const Netdev& upper : subject.node.netdevs) {
    if (!fabric::is_stacked_on(subject.node.netdevs, upper, subject.netdev)) continue;
    const std::string what = loss(subject.node, upper);
    if (what.empty()) continue;
    const bool itself = upper.name == subject.netdev.name;
    return refusal(fmt::format("`{}`: its netdev `{}`{} {}", subject.hca_name(), subject.netdev_name(),
                               itself ? "" : fmt::format(" is below `{}`, which", printable(upper.name)), what),
                   share_hint(subject) +
                       ", or set \"take_node_netdevs\": true in this network if the node does not need the netdev");
  }
  return {};
}

Result<void> check_child(const Subject& subject, const fabric::Inventory& inventory) {
  const std::string& network = subject.network.name;
  if (inventory.netns_mode == fabric::NetnsMode::kExclusive) {
    return refusal(fmt::format("`{}`: the RDMA subsystem is in exclusive mode, in which a container cannot use the HCA "
                               "of a child netdev",
                               subject.hca_name()),
                   "set `options ib_core netns_mode=1` in /etc/modprobe.d, rebuild the initramfs if it has ib_core, "
                   "and reboot; or use mode exclusive");
  }
  if ((subject.kind == RailKind::kIpoib) != subject.is_infiniband()) {
    return refusal(
        fmt::format("`{}`: its netdev `{}` is {}, which takes no {} children", subject.hca_name(),
                    subject.netdev_name(), subject.is_infiniband() ? "IPoIB" : "Ethernet", to_string(subject.kind)),
        fmt::format("set \"child\": \"{}\" in network `{}`", subject.is_infiniband() ? "ipoib" : "macvlan", network));
  }
  const auto is_for = [&](const AddressRange& range) { return range.is_for(subject.planned.rail); };
  const auto& ranges = subject.network.ranges;
  if (!ranges.empty() && std::ranges::none_of(ranges, is_for))
    return refusal(fmt::format("`{}`: network `{}` has address ranges, but none for rail {}", subject.hca_name(),
                               network, subject.planned.rail),
                   fmt::format("add a range with \"rail\": {}, or one without \"rail\"", subject.planned.rail));
  // The MTU is checked here, because the kernel would refuse such a macvlan child only after other changes were made.
  if (subject.network.mtu && subject.netdev.mtu && std::cmp_greater(*subject.network.mtu, *subject.netdev.mtu)) {
    return refusal(
        fmt::format("`{}`: the MTU {} of network `{}` is above the MTU {} of the parent `{}`", subject.hca_name(),
                    *subject.network.mtu, network, *subject.netdev.mtu, subject.netdev_name()),
        fmt::format("run `ip link set {} mtu {}`, or set a lower \"mtu\"", subject.netdev_name(),
                    *subject.network.mtu));
  }
  return {};
}

// Refuses attributes that the driver cannot set. Ethernet functions have ndo_set_vf_mac and similar operations; IPoIB
// functions have ndo_set_vf_guid (Linux 6.12 drivers/infiniband/ulp/ipoib/ipoib_main.c, ipoib_netdev_ops_pf).
Result<void> check_vf_attributes(const Subject& subject) {
  const VfAttributes vf = set_attributes(subject.network);
  if (vf.empty()) return {};
  const std::string where = fmt::format("\"vf\" of network `{}`", subject.network.name);
  if (!subject.moves())
    return refusal(fmt::format("`{}`: {} requires mode exclusive, and this is mode {}", subject.hca_name(), where,
                               to_string(subject.planned.mode)),
                   "use mode exclusive, or a network without \"vf\"");
  if (!subject.hca.physfn)
    return refusal(fmt::format("`{}` is no virtual function, and {} requires one", subject.hca_name(), where),
                   "use a pool of virtual functions, or a network without \"vf\"");
  VfAttributes other = vf;
  other.node_guid = other.port_guid = std::nullopt;
  other.link_state = std::nullopt;
  if (subject.is_infiniband() && !other.empty())
    return refusal(
        fmt::format("`{}`: {} has attributes that InfiniBand functions do not have", subject.hca_name(), where),
        "use only guids, node_guid, port_guid and link_state");
  if (!subject.is_infiniband() && (vf.node_guid || vf.port_guid))
    return refusal(fmt::format("`{}`: {} has GUIDs, which only InfiniBand functions take", subject.hca_name(), where),
                   "remove guids, node_guid and port_guid");
  return {};
}

// Returns the type of a software RDMA device, which has to be made again in the container. rxe and siw cannot move,
// because they have no ops.disassociate_ucontext (Linux 6.12 drivers/infiniband/core/device.c,
// ib_device_set_netns_put). A device whose netdev moves without it transfers no data. The node type distinguishes siw,
// which speaks iWARP (node type 4), from rxe, which is a channel adapter.
std::optional<std::string> software_type(const fabric::Hca& hca) {
  if (!hca.is_software()) return std::nullopt;
  if (hca.driver == "siw" || hca.node_type.starts_with("4:") || hca.name.starts_with("siw")) return "siw";
  return "rxe";
}

Result<Subject> subject_of(const PlannedNetdev& planned, const Config& config, const fabric::Inventory& inventory,
                           const NodeNetwork& node) {
  const auto network = config.networks.find(planned.network);
  if (network == config.networks.end())
    return make_error("config.json has no network `{}`", printable(planned.network));
  const fabric::Hca* hca = fabric::find_hca(inventory, planned.hca);
  if (!hca) return make_error("`{}` is gone", printable(planned.hca));
  const auto netdev =
      std::ranges::find_if(node.netdevs, [&](const Netdev& one) { return one.is_here() && one.name == planned.host; });
  if (netdev == node.netdevs.end())
    return refusal(fmt::format("`{}`: its netdev `{}` is not in the node's network namespace", printable(planned.hca),
                               printable(planned.host)),
                   "move it to the node, or use mode hca, which needs no netdev");
  // Mode exclusive always moves the netdev. The setting "child" applies only to the shared modes.
  const auto child = from_word(kRailKinds, network->second.child);
  const RailKind kind = planned.mode == Mode::kExclusive ? RailKind::kMove : child.value_or(RailKind::kMacvlan);
  return Subject{planned, network->second, *hca, *netdev, node, kind};
}

Result<std::optional<unsigned>> table_of(const Network& network, std::size_t number) {
  if (!network.first_table) return std::optional<unsigned>();
  const std::uint64_t table = std::uint64_t{*network.first_table} + number;
  if (table > UINT32_MAX || (table >= kFirstReservedTable && table <= kLastReservedTable)) {
    return refusal(fmt::format("network `{}`: rail {} of the container cannot use routing table {}: the kernel "
                               "reserves it, or it is too large",
                               network.name, number, table),
                   "set \"first_table\": 100");
  }
  return std::optional(static_cast<unsigned>(table));
}

Result<Rail> rail_of(const Subject& subject, const fabric::Inventory& inventory, std::size_t number) {
  TRY_VOID(check_masters(subject));
  TRY_VOID(check_vf_attributes(subject));
  if (subject.moves()) {
    TRY_VOID(check_node_keeps_its_own(subject));
  } else {
    TRY_VOID(check_child(subject, inventory));
  }
  const Network& network = subject.network;
  Rail rail;
  rail.rail = subject.planned.rail;
  rail.hca = subject.planned.hca;
  rail.host = subject.planned.host;
  rail.name = subject.planned.name;
  rail.kind = subject.kind;
  rail.macvlan_private = rail.kind == RailKind::kMacvlan && network.macvlan_private;
  if (rail.kind == RailKind::kIpoib) rail.pkey = network.pkey;
  rail.mtu = network.mtu;
  rail.table = TRY(table_of(network, number));
  if (!subject.moves()) return rail;
  rail.vf = network.vf;
  rail.recreate = software_type(subject.hca);
  rail.move_rdma = inventory.netns_mode == fabric::NetnsMode::kExclusive && !rail.recreate;
  return rail;
}

// Checks for conflicts between two rails of one container.
Result<void> check_pair(const Rail& left, const Rail& right) {
  const std::string names = fmt::format("`{}` and `{}`", printable(left.hca), printable(right.hca));
  const bool moves = left.kind == RailKind::kMove || right.kind == RailKind::kMove;
  if (moves && left.host == right.host)
    return refusal(fmt::format("{} share the netdev `{}`, which can move only once", names, printable(left.host)),
                   "request only one of these HCAs, or use mode shared");
  if (left.table && left.table == right.table)
    return refusal(fmt::format("{}: both would use routing table {}", names, *left.table),
                   "set the same \"first_table\" in both networks, or numbers far apart");
  const auto same = [](const auto& one, const auto& other) { return one && one == other; };
  if (same(left.vf.mac, right.vf.mac) || same(left.vf.node_guid, right.vf.node_guid) ||
      same(left.vf.port_guid, right.vf.port_guid)) {
    return refusal(fmt::format("{} would have the same MAC address or GUID", names),
                   "set \"mac\" or a GUID in \"vf\" only if the network has a single function");
  }
  return {};
}

// Adds the connected route, the default route and the rule of an address. The connected route is first, because the
// kernel accepts the default route only if it can reach the gateway. The rule is last, so that no packet uses an
// incomplete table.
void add_own_table(const RailAddress& address, int ifindex, unsigned table, unsigned priority,
                   std::vector<NetRecord>& routes) {
  RouteSpec route;  // first the connected route, then the default route
  route.ifindex = ifindex;
  route.ipv6 = !address.address.is_ipv4();
  route.destination = fabric::masked(address.address, address.prefix);
  route.prefix = address.prefix;
  route.source = address.address;
  route.table = table;
  routes.push_back(route_record(route));
  if (address.gateway) {
    route.destination.reset();
    route.gateway = address.gateway;
    routes.push_back(route_record(route));
  }
  routes.push_back(rule_record(address.address, table, priority));
}

}  // namespace

Result<std::vector<Rail>> plan_rails(const Plan& plan, const Config& config, const fabric::Inventory& inventory,
                                     const NodeNetwork& node, std::size_t first) {
  std::vector<Rail> rails;
  rails.reserve(plan.netdevs.size());
  for (const PlannedNetdev& planned : plan.netdevs) {
    const Subject subject = TRY(subject_of(planned, config, inventory, node));
    Rail rail = TRY(rail_of(subject, inventory, first + rails.size()));
    for (const Rail& other : rails)
      TRY_VOID(check_pair(other, rail));
    rails.push_back(std::move(rail));
  }
  return rails;
}

void name_rails(std::string_view pattern, std::vector<std::string> taken, std::vector<Rail>& rails) {
  const std::size_t at = pattern.find("%d");
  unsigned number = 1;
  for (Rail& rail : rails) {
    // The namespace can already have a netdev with the next name, from an earlier call or made by the engine.
    do {
      rail.name = std::string(pattern);
      if (at == std::string_view::npos) break;
      rail.name.replace(at, 2, std::to_string(number++));
    } while (std::ranges::find(taken, rail.name) != taken.end());
    taken.push_back(rail.name);
  }
}

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
      // The table gets no default route, because addresses that moved with the netdev have no gateway. Routes to other
      // subnets moved with the netdev.
      const auto address = address_of(record);
      const auto prefix = prefix_of(record);
      if (!address || !prefix) continue;
      add_own_table({*address, *prefix, std::nullopt}, ifindex, *rail.table, rule_priority, config.routes);
    }
    return config;
  }
  for (const RailAddress& address : rail.addresses) {
    // Without no_prefix_route the kernel would add a connected route to the main table. A rail with its own table must
    // have that route only in its own table.
    config.addresses.push_back(
        address_record(ifindex, address.address, address.prefix, {.no_prefix_route = rail.table.has_value()}));
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

std::optional<std::string> no_address_warning(const std::vector<const Rail*>& rails,
                                              const fabric::Inventory& inventory) {
  std::vector<std::string> names;
  for (const Rail* rail : rails) {
    const fabric::Hca* hca = fabric::find_hca(inventory, rail->hca);
    const bool is_roce =
        hca && std::ranges::any_of(hca->ports, [](const fabric::Port& port) { return port.is_ethernet(); });
    if (is_roce) names.push_back(fmt::format("{} ({})", base::printable(rail->name), base::printable(rail->hca)));
  }
  if (names.empty()) return std::nullopt;
  return fmt::format(
      "no address for {}: RoCE then has only IPv6 link-local addresses, if any; remedy: set \"addresses\" for the "
      "rail, "
      "or \"ipam\", in its network",
      base::join(names, ", "));
}

std::optional<fabric::Address> gid_address(const RailConfig& config) {
  std::optional<fabric::Address> best;
  for (const NetRecord& record : config.addresses) {
    const auto address = address_of(record);
    // Link-local addresses are skipped, because a link-local GID reaches only hosts on the same link.
    if (!address || address->is_link_local() || address->is_loopback()) continue;
    if (!best || (address->is_ipv4() && !best->is_ipv4())) best = address;
  }
  return best;
}

}  // namespace hook
