#include "hook/network/rail_links.hpp"

#include <fcntl.h>
#include <linux/netlink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "hook/network/netlink/rdma_devices.hpp"
#include "hook/network/netlink/vf_place.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;

// Only the attributes that are going to be changed: what is not is not put back either.
VfAttributes only_changed(const VfAttributes& now, const VfAttributes& wanted) {
  VfAttributes kept;
  const auto keep = [](auto& into, const auto& from, const auto& want) {
    if (want) into = from;
  };
  keep(kept.mac, now.mac, wanted.mac);
  keep(kept.vlan, now.vlan, wanted.vlan);
  keep(kept.qos, now.qos, wanted.qos);
  keep(kept.vlan_protocol, now.vlan_protocol, wanted.vlan_protocol);
  keep(kept.trust, now.trust, wanted.trust);
  keep(kept.spoofchk, now.spoofchk, wanted.spoofchk);
  keep(kept.link_state, now.link_state, wanted.link_state);
  keep(kept.min_tx_rate, now.min_tx_rate, wanted.min_tx_rate);
  keep(kept.max_tx_rate, now.max_tx_rate, wanted.max_tx_rate);
  keep(kept.node_guid, now.node_guid, wanted.node_guid);
  keep(kept.port_guid, now.port_guid, wanted.port_guid);
  return kept;
}

Result<void> describe_vf(NodeSockets& node, const Rail& rail, const fabric::Hca* hca, const std::string& sys,
                         HostNetdev& host) {
  if (rail.vf.empty()) return {};
  const auto place = hca && hca->pci && hca->physfn ? find_vf_place(sys, *hca->pci, *hca->physfn) : std::nullopt;
  if (!place) {
    return Error{
        fmt::format("cannot set VF attributes of `{}`: its physical function has no netdev on the node", rail.host),
        ENODEV, "bring the physical function up, or take \"vf\" out of the network"};
  }
  host.pf = place->pf;
  host.vf = place->vf;
  const auto pf = TRY(find_link(node.route, place->pf));
  if (!pf) return fabric::make_error("`{}`, the physical function of `{}`, is gone", place->pf, rail.host);
  host.vf_attributes = only_changed(TRY(read_vf(node.route, pf->ifindex, place->vf)), rail.vf);
  return {};
}

Result<void> set_vf(NodeSockets& node, const HostNetdev& host, const VfAttributes& attributes) {
  if (attributes.empty()) return {};
  const auto pf = TRY(find_link(node.route, host.pf));
  if (!pf) return fabric::make_error("cannot set VF {} of `{}`: there is no such netdev", host.vf, host.pf);
  return change_vf(node.route, pf->ifindex, host.vf, attributes);
}

// Not on the node: it went already.
Result<void> send_rdma_device(NodeSockets& node, const std::string& name, int netns) {
  if (!node.rdma) return fabric::make_error("cannot move RDMA device `{}`: the kernel has no RDMA netlink", name);
  const auto device = TRY(find_rdma_device(*node.rdma, name));
  return device ? move_rdma_device(*node.rdma, device->index, netns) : Result<void>();
}

NewChild child_of(const RailRecord& rail, std::uint32_t group, int netns) {
  NewChild child;
  child.kind = rail.rail.kind;
  child.macvlan_private = rail.rail.macvlan_private;
  child.pkey = rail.rail.pkey;
  child.name = rail.rail.name;
  child.parent = rail.host.ifindex;
  child.mtu = rail.rail.mtu;
  child.group = group;
  child.netns = netns;
  return child;
}

bool is_same_netdev(const Link& link, const HostNetdev& host) {
  if (link.kind != host.kind || (!host.bus_address.empty() && link.bus_address != host.bus_address)) return false;
  // Two netdevs of one function differ by MAC; without a bus address that is all there is.
  return link.mac == host.mac || !host.bus_address.empty();
}

// By name, else by what it is.
std::optional<Link> find_netdev(const std::vector<Link>& links, const std::string& name, const HostNetdev& host) {
  std::vector<Link> same;
  std::copy_if(links.begin(), links.end(), std::back_inserter(same),
               [&](const Link& link) { return is_same_netdev(link, host); });
  for (const Link& link : same) {
    if (link.name == name) return link;
  }
  const auto by_mac = std::find_if(same.begin(), same.end(), [&](const Link& link) { return link.mac == host.mac; });
  if (by_mac != same.end()) return *by_mac;
  return same.size() == 1 ? std::optional(same.front()) : std::nullopt;
}

// The kernel takes a namespace down in its own time.
Result<std::optional<Link>> await_netdev(NodeSockets& node, const HostNetdev& host, int wait_ms) {
  constexpr int kPauseMs = 10;
  for (int waited = 0;; waited += kPauseMs) {
    const auto links = TRY(all_links(node.route));
    if (auto link = find_netdev(links, host.name, host)) return link;
    if (waited >= wait_ms) return std::optional<Link>();
    ::usleep(kPauseMs * 1000);
  }
}

// Name, MAC, MTU and what was configured. What is right already is not touched: a netdev that never left keeps its
// connections.
Result<void> restore_on_node(NodeSockets& node, const Link& link, const HostNetdev& host) {
  LinkChange change;
  if (link.name != host.name) change.name = host.name;
  if (!host.mac.empty() && link.mac != host.mac) change.mac = host.mac;
  if (link.mtu != host.mtu) change.mtu = host.mtu;
  if (link.tx_queue_length != host.tx_queue_length) change.tx_queue_length = host.tx_queue_length;
  if (change.name || change.mac) {
    LinkChange down;
    down.up = false;
    TRY_VOID(change_link(node.route, link.ifindex, down));
  }
  const bool is_changed = change.name || change.mac || change.mtu || change.tx_queue_length;
  if (is_changed) TRY_VOID(change_link(node.route, link.ifindex, change));
  LinkChange state;
  state.up = host.up;
  TRY_VOID(change_link(node.route, link.ifindex, state));
  std::vector<NetRecord> records;
  for (const NetRecord& record : host.records)
    records.push_back(for_netdev(record, link.ifindex, host.name));
  return add_records(node.route, records);
}

// The netdev of a living namespace goes home. Not inside: it never came, or went already.
Result<void> send_netdev_home(NodeSockets& node, NetworkNamespace& inside, const RailRecord& rail) {
  const auto links = TRY(all_links(inside.route));
  const auto link = find_netdev(links, rail.rail.name, rail.host);
  if (!link) return {};
  LinkChange home;
  home.up = false;
  home.netns = node.netns.get();
  home.name = rail.host.name;
  auto moved = change_link(inside.route, link->ifindex, home);
  if (moved || moved.error().code != EEXIST) return moved;
  // Its name is taken there. The kernel moves before it renames: mostly it went, under the name that it had inside.
  if (!TRY(find_link(inside.route, link->ifindex))) return {};
  home.name.reset();
  return change_link(inside.route, link->ifindex, home);
}

Result<void> return_software_device(NodeSockets& node, const Rail& rail) {
  if (!rail.recreate || !node.rdma) return {};
  if (TRY(find_rdma_device(*node.rdma, rail.hca))) return {};
  return create_rdma_link(*node.rdma, rail.hca, *rail.recreate, rail.host);
}

Result<void> put_back_moved(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                            std::vector<std::string>& warnings) {
  if (inside && rail.rail.recreate && inside->rdma) {
    // In shared mode the node's socket sees it too, and it is the node's own as long as the netdev never left.
    const auto links = TRY(all_links(inside->route));
    if (find_netdev(links, rail.rail.name, rail.host)) TRY_VOID(delete_rdma_link(*inside->rdma, rail.rail.hca));
  }
  if (inside) {
    TRY_VOID(send_netdev_home(node, *inside, rail));
    if (rail.rail.move_rdma) {
      TRY_VOID(move_rdma_device_from(inside->netns.get(), rail.rail.hca, node.netns.get()));
    }
  }
  const bool is_software = rail.host.bus_address.empty();
  const auto link = TRY(await_netdev(node, rail.host, is_software && !inside ? 0 : wait_ms));
  if (!link && is_software) {
    warnings.push_back(fmt::format("netdev `{}` ended with the container's network namespace, as software netdevs do",
                                   rail.host.name));
    return {};
  }
  if (!link) {
    return Error{fmt::format("netdev `{}` ({}) has not come back to the node", rail.host.name, rail.host.bus_address),
                 EAGAIN, "`rdma-hook recover` puts it right once its network namespace is gone"};
  }
  TRY_VOID(restore_on_node(node, *link, rail.host));
  TRY_VOID(return_software_device(node, rail.rail));
  return set_vf(node, rail.host, rail.host.vf_attributes);
}

Result<void> remove_child(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail) {
  if (inside) {
    const auto link = TRY(find_link(inside->route, rail.rail.name));
    return link ? delete_link(inside->route, link->ifindex) : Result<void>();
  }
  if (rail.rail.kind != RailKind::kIpoib) return {};
  // Made on the node and then moved: killed in between, it is still here.
  const auto link = TRY(find_link(node.route, rail.rail.name));
  const bool ours = link && link->kind == "ipoib" && link->lower_ifindex == rail.host.ifindex;
  return ours ? delete_link(node.route, link->ifindex) : Result<void>();
}

}  // namespace

Result<NodeSockets> open_node_sockets() {
  NodeSockets node{TRY(Netlink::open(NETLINK_ROUTE)), std::nullopt,
                   fabric::UniqueFd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC))};
  if (!node.netns.ok()) return fabric::sys_error(errno, "cannot open `/proc/self/ns/net`");
  if (auto rdma = Netlink::open(NETLINK_RDMA)) node.rdma = std::move(*rdma);
  return node;
}

Result<HostNetdev> describe_host(NodeSockets& node, const Rail& rail, const fabric::Hca* hca, const std::string& sys,
                                 std::vector<std::string>& warnings) {
  const auto link = TRY(find_link(node.route, rail.host));
  if (!link) {
    return Error{fmt::format("netdev `{}` of `{}` is not in the node's network namespace", rail.host, rail.hca), ENODEV,
                 "`rdma-hook devices` shows who has it"};
  }
  HostNetdev host{.ifindex = link->ifindex,
                  .name = link->name,
                  .kind = link->kind,
                  .bus_address = link->bus_address,
                  .mac = link->mac,
                  .mtu = link->mtu,
                  .tx_queue_length = link->tx_queue_length,
                  .up = link->up,
                  .records = {},
                  .pf = {},
                  .vf = 0,
                  .vf_attributes = {}};
  if (rail.kind != RailKind::kMove) return host;
  auto configured = TRY(read_records(node.route, link->ifindex, link->name));
  host.records = std::move(configured.records);
  for (const std::string& route : configured.skipped)
    warnings.push_back(fmt::format("`{}`: cannot carry along `{}`", rail.host, route));
  TRY_VOID(describe_vf(node, rail, hca, sys, host));
  return host;
}

Result<int> place_rail(NodeSockets& node, NetworkNamespace& inside, const RailRecord& rail, std::uint32_t group) {
  if (rail.rail.kind != RailKind::kMove) {
    TRY_VOID(create_child(node.route, child_of(rail, group, inside.netns.get())));
  } else {
    TRY_VOID(set_vf(node, rail.host, rail.rail.vf));
    if (rail.rail.move_rdma) TRY_VOID(send_rdma_device(node, rail.rail.hca, inside.netns.get()));
    if (rail.rail.recreate && node.rdma) TRY_VOID(delete_rdma_link(*node.rdma, rail.rail.hca));
    LinkChange in;
    in.up = false;
    in.netns = inside.netns.get();
    in.name = rail.rail.name;
    TRY_VOID(change_link(node.route, rail.host.ifindex, in));
  }
  const auto link = TRY(find_link(inside.route, rail.rail.name));
  if (!link) return fabric::make_error("`{}` is not in the container's network namespace", rail.rail.name);
  return link->ifindex;
}

Result<void> recreate_inside(NodeSockets& node, NetworkNamespace& inside, const Rail& rail) {
  if (!rail.recreate) return {};
  if (!inside.rdma) return fabric::make_error("cannot make `{}` anew: the kernel has no RDMA netlink", rail.hca);
  TRY_VOID(create_rdma_link(*inside.rdma, rail.hca, *rail.recreate, rail.name));
  if (TRY(find_rdma_device(*inside.rdma, rail.hca))) return {};
  // In exclusive mode a new device is the initial namespace's, wherever its netdev is (ib_alloc_device(), Linux 6.12).
  return send_rdma_device(node, rail.hca, inside.netns.get());
}

Result<void> put_back_rail(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                           std::vector<std::string>& warnings) {
  if (rail.rail.kind == RailKind::kMove) return put_back_moved(node, inside, rail, wait_ms, warnings);
  return remove_child(node, inside, rail);
}

}  // namespace hook
