// The way back of a rail's netdev and RDMA device.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>

#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/rail_links.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using MaybeLink = std::optional<Link>;

// The kernel takes a namespace down in its own time. False: it is not there.
Result<bool> await(int wait_ms, const std::function<Result<bool>()>& is_there) {
  constexpr int kPauseMs = 10;
  for (int waited = 0;; waited += kPauseMs) {
    if (TRY(is_there())) return true;
    if (waited >= wait_ms) return false;
    ::usleep(kPauseMs * 1000);
  }
}

Result<MaybeLink> await_link(NodeSockets& node, int wait_ms,
                             const std::function<MaybeLink(const std::vector<Link>&)>& find) {
  MaybeLink link;
  const auto is_there = [&]() -> Result<bool> {
    link = find(TRY(all_links(node.route)));
    return link.has_value();
  };
  TRY(await(wait_ms, is_there));
  return link;
}

// IPoIB: the kernel makes all but the GUID, and takes a GUID for a physical function alone (ipoib_check_lladdr(),
// ipoib_netdev_ops_vf). That of a VF whose GUIDs were changed follows those.
std::optional<std::vector<std::uint8_t>> mac_to_restore(const Link& link, const HostNetdev& host) {
  if (host.mac.empty() || link.mac == host.mac) return std::nullopt;
  if (!is_ipoib(host)) return host.mac;
  constexpr std::ptrdiff_t kGuid = 8;
  if (host.mac.size() != link.mac.size() || host.mac.size() < kGuid || !host.pf.empty()) return std::nullopt;
  auto mac = link.mac;
  std::copy(host.mac.end() - kGuid, host.mac.end(), mac.end() - kGuid);
  return mac == link.mac ? std::nullopt : std::optional(mac);
}

// Name, MAC, MTU and what was configured. What is right already is not touched: a netdev that never left keeps its
// connections.
Result<void> restore_on_node(NodeSockets& node, const Link& link, const HostNetdev& host) {
  LinkChange change;
  if (link.name != host.name) change.name = host.name;
  change.mac = mac_to_restore(link, host);
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

// With IPoIB the netdev is made anew when the device comes: what is put right before is lost.
Result<void> bring_rdma_device_home(NodeSockets& node, NetworkNamespace* inside, const Rail& rail, int wait_ms) {
  if (!rail.move_rdma || !node.rdma) return {};
  const auto is_home = [&]() -> Result<bool> { return TRY(find_rdma_device(*node.rdma, rail.hca)).has_value(); };
  if (TRY(await(inside ? 0 : wait_ms, is_home))) return {};
  if (inside) return move_rdma_device_from(inside->netns.get(), rail.hca, node.netns.get());
  return Error{fmt::format("RDMA device `{}` has not come back to the node", rail.hca), EAGAIN,
               "`rdma-hook recover` puts it right once its network namespace is gone"};
}

Result<void> return_software_device(NodeSockets& node, const Rail& rail) {
  if (!rail.recreate || !node.rdma) return {};
  if (TRY(find_rdma_device(*node.rdma, rail.hca))) return {};
  return create_rdma_link(*node.rdma, rail.hca, *rail.recreate, rail.host);
}

Result<void> delete_software_device(NetworkNamespace& inside, const RailRecord& rail) {
  if (!rail.rail.recreate || !inside.rdma) return {};
  // In shared mode the node's socket sees it too, and it is the node's own as long as the netdev never left.
  const auto links = TRY(all_links(inside.route));
  if (!find_netdev(links, rail.rail.name, rail.host)) return {};
  return delete_rdma_link(*inside.rdma, rail.rail.hca);
}

// What of the netdev is on the node again, as it was.
Result<void> settle_on_node(NodeSockets& node, const RailRecord& rail, int wait_ms,
                            std::vector<std::string>& warnings) {
  const HostNetdev& host = rail.host;
  const bool is_software = host.bus_address.empty();
  const auto link = TRY(
      await_link(node, wait_ms, [&](const std::vector<Link>& links) { return find_netdev(links, host.name, host); }));
  if (!link && is_software) {
    warnings.push_back(
        fmt::format("netdev `{}` ended with the container's network namespace, as software netdevs do", host.name));
    return {};
  }
  if (!link) {
    return Error{fmt::format("netdev `{}` ({}) has not come back to the node", host.name, host.bus_address), EAGAIN,
                 "`rdma-hook recover` puts it right once its network namespace is gone"};
  }
  TRY_VOID(restore_on_node(node, *link, host));
  TRY_VOID(return_software_device(node, rail.rail));
  return is_ipoib(host) ? Result<void>() : set_vf(node, host, host.vf_attributes);
}

Result<void> put_back_moved(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                            std::vector<std::string>& warnings) {
  if (inside) {
    TRY_VOID(delete_software_device(*inside, rail));
    TRY_VOID(send_netdev_home(node, *inside, rail));
  }
  Result<void> guids;
  if (is_ipoib(rail.host)) guids = set_vf(node, rail.host, rail.host.vf_attributes);
  TRY_VOID(bring_rdma_device_home(node, inside, rail.rail, wait_ms));
  const bool is_software = rail.host.bus_address.empty();
  TRY_VOID(settle_on_node(node, rail, is_software && !inside ? 0 : wait_ms, warnings));
  return guids;
}

// A child of this rail's on the node: its name when that was free, else one of its index (make_and_move(), and
// default_device_exit_net() of net/core/dev.c, Linux 6.12).
bool is_stray_child(const Link& link, const RailRecord& rail, std::uint32_t group) {
  if (link.kind != "ipoib" || link.lower_ifindex != rail.host.ifindex) return false;
  if (group != 0 && link.group != group) return false;
  return link.name == rail.rail.name || link.name == fmt::format("ib{:x}", link.ifindex) ||
         link.name == fmt::format("dev{}", link.ifindex);
}

// Made on the node and then moved, an ipoib child is still there if the hook was killed in between; and it comes back
// when its namespace ends (netns_refund, drivers/infiniband/ulp/ipoib/ipoib_netlink.c). Other children end with it.
Result<void> remove_stray_child(NodeSockets& node, const RailRecord& rail, int wait_ms, std::uint32_t group) {
  const auto link = TRY(await_link(node, wait_ms, [&](const std::vector<Link>& links) {
    const auto found =
        std::find_if(links.begin(), links.end(), [&](const Link& each) { return is_stray_child(each, rail, group); });
    return found == links.end() ? std::nullopt : MaybeLink(*found);
  }));
  return link ? delete_link(node.route, link->ifindex) : Result<void>();
}

Result<void> remove_child(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                          std::uint32_t group) {
  if (inside) {
    const auto link = TRY(find_link(inside->route, rail.rail.name));
    if (link) return delete_link(inside->route, link->ifindex);
  }
  if (rail.rail.kind != RailKind::kIpoib) return {};
  return remove_stray_child(node, rail, inside ? 0 : wait_ms, group);
}

}  // namespace

Result<void> put_back_rail(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                           std::vector<std::string>& warnings, std::uint32_t group) {
  if (rail.rail.kind == RailKind::kMove) return put_back_moved(node, inside, rail, wait_ms, warnings);
  return remove_child(node, inside, rail, wait_ms, group);
}

}  // namespace hook
