#include "hook/admin/doctor/checks.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "base/result.hpp"
#include "base/text.hpp"
#include "fabric/port_faults.hpp"
#include "hook/plan/pools.hpp"

namespace hook {
namespace {

using fabric::Inventory;
using fabric::Netdev;
using fabric::Port;

// Returns the HCAs of the pools, in the order of rails.
std::vector<const NodeHca*> pool_hcas(const NodeMap& map) {
  std::vector<const NodeHca*> hcas;
  std::ranges::copy_if(map.by_rail(), std::back_inserter(hcas),
                       [](const NodeHca* node) { return node->pool != nullptr; });
  return hcas;
}

// A function that is called for each port of an HCA.
using UsePort = std::function<void(const NodeHca&, const Port&)>;
void each_port(const std::vector<const NodeHca*>& hcas, const UsePort& use) {
  for (const NodeHca* node : hcas)
    for (const Port& port : node->hca->ports)
      use(*node, port);
}

// Returns true for the two modes that add child netdevs. The GIDs of such netdevs need RDMA devices that all network
// namespaces share.
bool makes_children(Mode mode) {
  return mode == Mode::kShared || mode == Mode::kSharedMulti;
}

// Checks that network namespaces share RDMA devices, if a pool with a network allows a mode with child netdevs. The
// finding is `broken` for the default mode of the pool and a warning for another mode.
Check check_netns(const Inventory& inventory, const Config& config) {
  Check check{"netns", {}, {}};
  if (!inventory.netns_mode) {
    check.looked = false;
    check.summary = "the kernel does not report whether network namespaces share RDMA devices";
    return check;
  }
  const bool exclusive = *inventory.netns_mode == fabric::NetnsMode::kExclusive;
  check.summary = exclusive ? "each RDMA device is in one network namespace" : "network namespaces share RDMA devices";
  for (const Pool& pool : config.pools) {
    if (!exclusive || !pool.network) continue;
    const bool may = std::ranges::any_of(pool.modes, makes_children);
    if (!may) continue;
    const bool always = makes_children(pool.modes.front());
    check.add(
        always ? Grade::kBroken : Grade::kWarning, fmt::format("pool {}", printable(pool.name)),
        fmt::format("mode `{}` is refused while the RDMA subsystem is exclusive (`rdma system`)",
                    to_string(*std::ranges::find_if(pool.modes, makes_children))),
        "add `options ib_core netns_mode=1` in /etc/modprobe.d, rebuild the initramfs if it has ib_core (`lsinitramfs` "
        "or `lsinitrd`), and reboot; or allow only mode `exclusive` in the pool");
  }
  return check;
}

std::ptrdiff_t count_of(const NodeMap& map, const Pool& pool) {
  return std::ranges::count_if(map.hcas(),
                               [&](const NodeHca& node) { return node.pool && node.pool->name == pool.name; });
}

std::vector<Finding> empty_pools(const NodeMap& map, const Config& config) {
  std::vector<Finding> findings;
  for (const Pool& pool : config.pools) {
    if (map.hcas().empty() || count_of(map, pool) != 0) continue;
    findings.push_back({Grade::kWarning, fmt::format("pool {}", printable(pool.name)), "no HCA of this node is in it",
                        "compare the pool's selectors with `rdma-hook devices`"});
  }
  return findings;
}

// A pool without HCAs, or an unknown name in `rails`, is mostly a typing error. A node without any HCA is not reported
// here: check_kernel() reports it.
Check check_pools(const NodeMap& map, const Config& config) {
  Check check{"pools", {}, {}};
  std::vector<std::string> summaries;
  for (const NodeHca& node : map.hcas()) {
    if (!node.pool_unread) continue;
    const Error error = unknown_pool(node);
    check.add(Grade::kWarning, printable(node.name()), error.message, base::remedy_of(error));
  }
  for (const Pool& pool : config.pools)
    summaries.push_back(fmt::format("{} {}", count_of(map, pool), printable(pool.name)));
  for (Finding& finding : empty_pools(map, config))
    check.add(std::move(finding));
  for (const RailEntry& rail : config.rails) {
    const auto is_of_it = [&](const NodeHca& node) { return node.entry == &rail || !node.entry_unknown.empty(); };
    if (map.hcas().empty() || std::ranges::any_of(map.hcas(), is_of_it)) continue;
    check.add(Grade::kWarning, printable(rail.text), "listed in `rails` but not on this node",
              "search the output of `rdma-hook devices` for a container that has the HCA, or for its new name; "
              "otherwise correct "
              "`rails`");
  }
  check.summary = summaries.empty() ? "all HCAs are in one pool" : base::join(summaries, ", ");
  return check;
}

// Each address of a netdev, of its VLANs and of its child netdevs adds GIDs to the table of the port. If the table is
// full, a new child netdev gets no GID and the kernel reports no error.
Check check_gid_tables(const std::vector<const NodeHca*>& hcas) {
  constexpr std::size_t kFullPercent = 75;
  Check check{"gids", {}, {}};
  std::size_t most = 0;
  each_port(hcas, [&](const NodeHca& node, const Port& port) {
    if (port.gids_error)
      check.add(Grade::kWarning, port_object(*node.hca, port),
                fmt::format("cannot read the GID table: {}", std::strerror(*port.gids_error)),
                "run doctor as root on the node itself");
    // Only on a RoCE port the kernel adds a GID for each IP address, so only the table of such a port can fill up.
    // iWARP has one slot, for the MAC. A table of one slot by design, as that of erdma, is always full.
    if (!port.is_ethernet() || node.hca->is_iwarp() || !port.gid_tbl_len || *port.gid_tbl_len <= 1) return;
    const std::size_t used = port.gids.size();
    const std::size_t percent = used * 100 / *port.gid_tbl_len;
    most = std::max(most, percent);
    if (percent <= kFullPercent) return;
    const bool full = used >= *port.gid_tbl_len;
    check.add(full ? Grade::kBroken : Grade::kWarning, port_object(*node.hca, port),
              fmt::format("{} of {} GID slots are in use{}", used, *port.gid_tbl_len,
                          full ? ": the next container gets no GID" : ""),
              "run `rdma-hook recover`, which releases stale grants; remove addresses of the netdev, its "
              "VLANs and children (each uses one or two slots); "
              "or lower the pool's limits");
  });
  check.summary = fmt::format("at most {} % of a table is in use", most);
  return check;
}

std::string remedy_of_port(const NodeMap& map, const NodeHca& node, const Port& port, fabric::InactiveCause cause) {
  // The node's netdev can be that of another port of the HCA.
  const auto netdev = port.netdev ? port.netdev : node.hca->ports.size() == 1 ? node.netdev : std::nullopt;
  // The PF is often in no pool.
  const auto& all = map.by_rail();
  const auto is_pf = [&](const NodeHca* one) { return node.hca->physfn && one->hca->pci == node.hca->physfn; };
  const auto pf = std::ranges::find_if(all, is_pf);
  const auto of_pf = pf == all.end() ? std::nullopt : (*pf)->netdev;
  return fabric::inactive_remedy(cause, port, printable(netdev.value_or("NETDEV")), printable(of_pf.value_or("PF")));
}

// Returns the cause of a port that is not ACTIVE, for the end of a message.
const char* text_of(fabric::InactiveCause cause) {
  switch (cause) {
    case fabric::InactiveCause::kNoGuid:
      return ": the VF has no GUID";
    case fabric::InactiveCause::kPf:
      return ", as its PF";
    case fabric::InactiveCause::kUnserved:
      return ": the VF has no LID, although a subnet manager runs";
    case fabric::InactiveCause::kPort:
      break;
  }
  return "";
}

// Returns a note if the InfiniBand ports are of several subnets: there is no path between them.
std::optional<Finding> check_subnets(const std::vector<const NodeHca*>& hcas) {
  std::map<std::string, std::size_t> counts;
  each_port(hcas, [&](const NodeHca&, const Port& port) {
    const auto subnet = port.is_active() ? port.subnet_prefix() : std::nullopt;
    if (subnet) ++counts[fabric::to_string(*subnet)];
  });
  if (counts.size() < 2) return std::nullopt;
  std::vector<std::string> texts;
  for (const auto& [subnet, count] : counts)
    texts.push_back(fmt::format("{} port{} in {}/64", count, count == 1 ? "" : "s", subnet));
  return Finding{Grade::kNote, fmt::format("{} InfiniBand subnets", counts.size()),
                 fmt::format("there is no path between them: {}", base::join(texts, ", ")),
                 "make a pool for each subnet, so that a container has HCAs of one"};
}

// An inactive port is a warning, because spare ports are common. The finding is `broken` only if no port is ACTIVE:
// then no job can use RDMA.
Check check_ports(const NodeMap& map, const std::vector<const NodeHca*>& hcas, const Inventory& inventory) {
  Check check{"ports", {}, {}};
  std::size_t active = 0;
  each_port(hcas, [&](const NodeHca&, const Port& port) { active += port.is_active() ? 1 : 0; });
  each_port(hcas, [&](const NodeHca& node, const Port& port) {
    if (port.is_active()) {
      if (port.is_ethernet() && node.hca->has_zero_guid())
        check.add(Grade::kNote, port_object(*node.hca, port), std::string(fabric::kZeroGuidEffect),
                  "run `ip link set PF vf N mac MAC`, then unbind and bind the VF");
      return;
    }
    const auto* state = std::get_if<std::string>(&port.state);
    const std::string phys = base::value_or(port.phys_state, std::string());
    const auto cause = fabric::inactive_cause(*node.hca, port, fabric::port_of_pf(inventory.hcas, *node.hca, port));
    std::string message = "its state cannot be read";
    if (state) {
      message = fmt::format("is {}, not ACTIVE{}{}", printable(state->substr(state->find(' ') + 1)),
                            phys.empty() ? "" : fmt::format(" ({})", printable(phys.substr(phys.find(' ') + 1))),
                            text_of(cause));
    }
    check.add(active == 0 ? Grade::kBroken : Grade::kWarning, port_object(*node.hca, port), std::move(message),
              remedy_of_port(map, node, port, cause));
  });
  if (auto finding = check_subnets(hcas)) check.add(std::move(*finding));
  check.summary = fmt::format("{} ACTIVE in the pools", active);
  return check;
}

// Ports with the same pool, link layer and model are expected to have the same rate and MTU.
struct Kin {
  const Pool* pool = nullptr;
  std::string link_layer;
  std::string model;
  friend bool operator<(const Kin& left, const Kin& right) {
    return std::tie(left.pool, left.link_layer, left.model) < std::tie(right.pool, right.link_layer, right.model);
  }
};

// VFs count as a separate model: their rate can differ from that of a physical function. A snapshot may lack the model;
// the driver then separates the vendors.
Kin kin_of(const NodeHca& node, const Port& port) {
  const fabric::Hca& hca = *node.hca;
  return {node.pool, base::value_or(port.link_layer, std::string()),
          hca.device_id.value_or(hca.driver.value_or("")) + hca.vendor.value_or("") + (hca.physfn ? " VF" : "")};
}

// A collective runs at the rate of its slowest rail, so one slow port slows every job of the node.
Check check_rates(const std::vector<const NodeHca*>& hcas) {
  Check check{"rates", {}, {}};
  std::map<Kin, double> best;
  std::set<std::string> rates;
  each_port(hcas, [&](const NodeHca& node, const Port& port) {
    if (!port.is_active()) return;
    double& most = best[kin_of(node, port)];
    most = std::max(most, port.rate_gbps());
    rates.insert(fmt::format("{:g}", port.rate_gbps()));
  });
  each_port(hcas, [&](const NodeHca& node, const Port& port) {
    const double rate = port.rate_gbps();
    // Software HCAs have the rate of their netdev, and no cable.
    if (!port.is_active() || node.hca->is_software() || rate <= 0 || rate >= best[kin_of(node, port)]) return;
    check.add(Grade::kWarning, port_object(*node.hca, port),
              fmt::format("has {:g} Gb/s, other ports of its {} {:g}", rate, node.hca->device_id ? "model" : "driver",
                          best[kin_of(node, port)]),
              "check cable, transceiver, the switch's port and the PCIe width (`lspci -vv`: LnkSta); if the rate is "
              "intended, move the HCA to a separate pool");
  });
  check.summary =
      rates.empty() ? "no ACTIVE port in the pools" : base::join({rates.begin(), rates.end()}, ", ") + " Gb/s";
  return check;
}

const Netdev* netdev_of(const Inventory& inventory, const NodeHca& node) {
  return node.netdev ? fabric::find_netdev(inventory, *node.netdev) : nullptr;
}

// Drivers derive a port's active_mtu from the MTU of the netdev. If the two do not match, the firmware has a lower
// limit, or the driver missed a change of the netdev's MTU.
std::optional<Finding> check_active_mtu(const NodeHca& node, const Port& port, int mtu, const ActiveMtus& active) {
  const auto found = active.find({node.name(), port.number});
  if (found == active.end() || found->second == roce_mtu(mtu)) return std::nullopt;
  const bool low = found->second < roce_mtu(mtu);
  return Finding{Grade::kWarning, port_object(*node.hca, port),
                 fmt::format("active_mtu is {0}, but the MTU {2} of {1} {3} {4}", found->second,
                             printable(node.netdev.value_or("")), mtu, low ? "allows" : "carries only", roce_mtu(mtu)),
                 low ? "set the netdev's MTU again while no job runs; if it stays low, the firmware limits it"
                     : "raise the netdev's MTU: packets above it are lost"};
}

// Checks the MTU of a rail, except against the port's active_mtu. A rail gets at most one finding about its MTU: the
// first check that fails decides. most: the largest MTU of all rails with the same pool, link layer and model (Kin).
std::optional<Finding> check_mtu(const NodeHca& node, const Port& port, int mtu, int most, const Config& config) {
  const auto network = node.pool->network ? config.networks.find(*node.pool->network) : config.networks.end();
  if (mtu < most) {
    return Finding{Grade::kWarning, port_object(*node.hca, port),
                   fmt::format("{} has MTU {} (RDMA {}), other rails {} (RDMA {})", printable(*node.netdev), mtu,
                               roce_mtu(mtu), most, roce_mtu(most)),
                   fmt::format("run `ip link set {} mtu {}` and change the node's network configuration; if the MTU is "
                               "intended, move the HCA to a separate pool",
                               printable(*node.netdev), most)};
  }
  if (network != config.networks.end() && network->second.mtu.value_or(0) > static_cast<unsigned>(mtu)) {
    return Finding{Grade::kBroken, port_object(*node.hca, port),
                   fmt::format("{} has MTU {}, but network `{}` requires {}: containers are refused",
                               printable(*node.netdev), mtu, printable(network->first), *network->second.mtu),
                   "raise the MTU of the netdev or lower `mtu` of the network"};
  }
  return std::nullopt;
}

Check check_mtus(const std::vector<const NodeHca*>& hcas, const Inventory& inventory, const Config& config,
                 const ActiveMtus& active) {
  Check check{"mtu", {}, {}};
  std::map<Kin, int> best;
  std::set<std::string> mtus;
  const auto each_rail = [&](const std::function<void(const NodeHca&, const Port&, int mtu)>& use) {
    each_port(hcas, [&](const NodeHca& node, const Port& port) {
      const Netdev* netdev = netdev_of(inventory, node);
      if (port.is_active() && port.is_ethernet() && netdev && netdev->mtu) use(node, port, *netdev->mtu);
    });
  };
  each_rail([&](const NodeHca& node, const Port& port, int mtu) {
    int& most = best[kin_of(node, port)];
    most = std::max(most, mtu);
    mtus.insert(std::to_string(mtu));
  });
  each_rail([&](const NodeHca& node, const Port& port, int mtu) {
    auto finding = check_mtu(node, port, mtu, best[kin_of(node, port)], config);
    if (!finding) finding = check_active_mtu(node, port, mtu, active);
    if (finding) check.add(std::move(*finding));
  });
  check.summary = mtus.empty()
                      ? "no RoCE rail with a netdev"
                      : fmt::format("{}; active_mtu {}", base::join({mtus.begin(), mtus.end()}, ", "),
                                    active.empty() ? "unknown (install ibverbs-utils for `ibv_devinfo`)" : "fits");
  return check;
}

// Returns true if the pool allows mode `exclusive`. A pool without `modes` allows all modes.
bool may_be_exclusive(const Pool& pool) {
  return pool.modes.empty() || std::ranges::find(pool.modes, Mode::kExclusive) != pool.modes.end();
}

// If a rail has the default route, the node's own traffic shares its bandwidth. A container that takes the netdev of
// such a rail disconnects the node.
Check check_routes(const std::vector<const NodeHca*>& hcas, const Inventory& inventory) {
  Check check{"routes", {}, {}};
  if (!inventory.routes) {
    check.looked = false;
    check.summary = "the node's routes are unknown";
    return check;
  }
  const Netdev* route = fabric::default_route_netdev(inventory);
  check.summary = route ? fmt::format("the default route uses {}", printable(route->name)) : "no default route";
  for (const NodeHca* node : hcas) {
    const auto& names = node->netdevs;
    if (!route || std::ranges::find(names, route->name) == names.end()) continue;
    const auto in_pool = std::ranges::count_if(hcas, [&](const NodeHca* other) { return other->pool == node->pool; });
    const bool moves = node->pool->network && may_be_exclusive(*node->pool);
    if (in_pool < 2 && !moves) continue;  // without a remedy: node and jobs must share the pool's only rail
    check.add(Grade::kWarning, printable(node->name()),
              fmt::format("the node's default route uses {}: node and jobs share the rail{}", printable(route->name),
                          moves ? ", and mode `exclusive` is refused" : ""),
              "exclude it from the pool (`ifNames`, `deviceIDs`) or move the node's default route");
  }
  return check;
}

// Warns about rails without an address. Containers get addresses from the network of a pool, and those with VFs from a
// CNI plugin.
void check_missing_addresses(const std::vector<const NodeHca*>& hcas, const Inventory& inventory, Check& check) {
  for (const NodeHca* node : hcas) {
    const Netdev* netdev = netdev_of(inventory, *node);
    if (!netdev || !netdev->addresses.empty() || !node->is_active() || node->is_infiniband()) continue;
    if (node->pool->network || node->hca->physfn || node->hca->is_iwarp()) continue;
    check.add(Grade::kWarning, printable(node->name()),
              fmt::format("its netdev {} has no address, and the pool has no network: the port has only the default "
                          "GIDs of its MAC address, with which containers do not reach other nodes",
                          printable(netdev->name)),
              fmt::format("run `ip address add ADDRESS/LENGTH dev {}`, or add a \"network\" to the pool",
                          printable(netdev->name)));
  }
}

// If two netdevs have the same address, their GIDs are equal, and replies can use either netdev.
Check check_addresses(const std::vector<const NodeHca*>& hcas, const Inventory& inventory) {
  Check check{"addresses", {}, {}};
  std::set<std::string> rails;
  for (const NodeHca* node : hcas)
    rails.insert(node->netdevs.begin(), node->netdevs.end());
  std::map<std::string, std::vector<std::string>> netdevs_of;
  for (const Netdev& netdev : inventory.netdevs) {
    if (!netdev.is_here()) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses) {
      const fabric::Address& address = own.address;
      if (own.dad_failed && rails.contains(netdev.name)) {
        check.add(Grade::kWarning, fabric::to_string(address),
                  fmt::format("of {} and of another host (dadfailed): the GID is of no use", printable(netdev.name)),
                  fmt::format("assign another address to {}", printable(netdev.name)));
      }
      // Loopback and link-local addresses are valid only on one host or link, so duplicates do no harm.
      if (address.is_loopback() || address.is_link_local()) continue;
      auto& names = netdevs_of[fabric::to_string(address)];
      if (std::ranges::find(names, netdev.name) == names.end()) names.push_back(netdev.name);
    }
  }
  check_missing_addresses(hcas, inventory, check);
  std::size_t on_rails = 0;
  for (const auto& [address, names] : netdevs_of) {
    const bool of_rail = std::ranges::any_of(names, [&](const auto& name) { return rails.contains(name); });
    on_rails += of_rail ? 1 : 0;
    if (!of_rail || names.size() < 2) continue;
    check.add(Grade::kWarning, address, fmt::format("is on {}", printable(base::join(names, " and "))),
              "remove it from one netdev: both have the same GID, and replies can use either");
  }
  check.summary = fmt::format("{} on the rails, no duplicates", on_rails);
  return check;
}

}  // namespace

std::string port_object(const fabric::Hca& hca, const Port& port) {
  return fmt::format("{}:{}", printable(hca.name), port.number);
}

std::vector<Finding> check_empty_pools(const fabric::Inventory& inventory, const Config& config) {
  return empty_pools(NodeMap(inventory, config), config);
}

ActiveMtus parse_ibv_devinfo(std::string_view text) {
  ActiveMtus mtus;
  std::string hca;
  unsigned port = 0;  // 0: before the first port
  for (const std::string_view line : base::split(text, '\n')) {
    const std::string_view trimmed = base::trim(line);
    const std::size_t colon = trimmed.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = trimmed.substr(0, colon);
    const std::string_view value = base::trim(trimmed.substr(colon + 1));
    if (key == "hca_id") {
      // The line `hca_id` starts a new HCA. The lines from it to the next line `port` belong to no port.
      hca = value;
      port = 0;
    } else if (key == "port") {
      port = base::parse_number<unsigned>(value).value_or(0);
    } else if (key == "active_mtu" && port != 0 && !hca.empty()) {  // the value is such as "1024 (3)"
      if (const auto bytes = base::parse_number<unsigned>(value.substr(0, value.find(' ')))) mtus[{hca, port}] = *bytes;
    }
  }
  return mtus;
}

unsigned roce_mtu(int netdev_mtu) {
  // The kernel subtracts the largest possible headers from the netdev's MTU. The largest InfiniBand MTU that fits into
  // the difference is the result.
  constexpr int kHeaders = 40 + 8 + 12 + 4 + 28 + 4;  // GRH, UDP, BTH, XRC, AtomicETH, ICRC
  for (const int mtu : {4096, 2048, 1024, 512, 256})
    if (netdev_mtu - kHeaders >= mtu) return static_cast<unsigned>(mtu);
  return 0;
}

std::vector<Check> check_rails(const Inventory& inventory, const Config& config, const ActiveMtus& active_mtus) {
  const NodeMap map(inventory, config);
  const auto hcas = pool_hcas(map);
  return {check_netns(inventory, config),
          check_pools(map, config),
          check_gid_tables(hcas),
          check_ports(map, hcas, inventory),
          check_rates(hcas),
          check_mtus(hcas, inventory, config, active_mtus),
          check_routes(hcas, inventory),
          check_addresses(hcas, inventory)};
}

}  // namespace hook
