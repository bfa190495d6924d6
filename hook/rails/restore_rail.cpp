// The functions of RailRestorer for one rail.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/warnings.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/netlink/vf.hpp"
#include "hook/rails/restore_rails.hpp"

namespace hook {
namespace {

using MaybeLink = std::optional<Link>;

// Repeats find() for at most wait_ms, because the kernel moves hardware to the node some time after its namespace
// ended. Returns nullopt if find() found nothing in time. wait_ms 0 means one attempt.
auto await(int wait_ms, auto find) -> decltype(find()) {
  constexpr int kPauseMs = 10;
  for (int waited = 0;; waited += kPauseMs) {
    auto found = TRY(find());
    if (found || waited >= wait_ms) return found;
    ::usleep(kPauseMs * 1000);
  }
}

// Returns the MAC address to set; nullopt if the present address is right or cannot be changed. With IPoIB only the
// GUID can be set, and only on a physical function (ipoib_check_lladdr(), ipoib_netdev_ops_vf); the kernel makes the
// other bytes. The MAC address of a VF follows the VF's GUIDs.
std::optional<std::vector<std::uint8_t>> mac_to_restore(const Link& link, const HostNetdev& host) {
  if (host.mac.empty() || link.mac == host.mac) return std::nullopt;
  if (!is_ipoib(host)) return host.mac;
  constexpr std::ptrdiff_t kGuid = 8;
  if (host.mac.size() != link.mac.size() || host.mac.size() < kGuid || !host.pf.empty()) return std::nullopt;
  auto mac = link.mac;
  std::copy(host.mac.end() - kGuid, host.mac.end(), mac.end() - kGuid);
  return mac == link.mac ? std::nullopt : std::optional(mac);
}

// Restores the attributes of the VFs of a physical function. A container that had the physical function can have
// changed the attributes of a VF, and the next container may get that VF.
Result<void> restore_vfs(Netlink& route, int pf_ifindex, const std::vector<VfAttributes>& before) {
  if (before.empty()) return {};
  Result<void> first;
  for (const auto& [number, now] : TRY(read_vfs(route, pf_ifindex))) {
    if (number >= before.size()) continue;
    keep_first(first, change_vf(route, pf_ifindex, number, changed_vf(before[number], now)));
  }
  return first;
}

// Detaches the XDP programs that a container attached by BPF links. Returns the netdev as it is afterwards. The number
// of reads and failures is limited, because the container can replace the program of a link between two reads
// (BPF_LINK_UPDATE).
Result<MaybeLink> free_of_xdp_links(Netlink& route, int ifindex, const HostNetdev& host) {
  constexpr int kMostLooks = 64;
  constexpr int kMostMisses = 3;
  auto whole = TRY(find_link(route, ifindex));
  for (int looks = 0, misses = 0; looks < kMostLooks && misses < kMostMisses; ++looks) {
    if (!whole || !host.settings || !has_new_xdp(*host.settings, whole->settings)) break;
    if (!detach_xdp_link(ifindex, *host.settings, whole->settings)) ++misses;
    whole = TRY(find_link(route, ifindex));
  }
  return whole;
}

// Deletes the netdevs that the container made on a netdev, such as macvlan children, before the netdev leaves.
// Otherwise they would stay in the container, on a netdev of the node: the kernel keeps them when the netdev below them
// moves (macvlan_device_event(), vlan_device_event(), Linux 6.12). The other end of a veth pair looks similar, but
// stays.
Result<void> delete_netdevs_on(Netlink& route, const Link& below) {
  const auto is_on = [](const Link& link, const Link& other) {
    return link.lower_ifindex == other.ifindex && !link.lower_netns;
  };
  for (const Link& link : TRY(all_links(route)))
    if (is_on(link, below) && !is_on(below, link)) TRY_VOID(delete_link(route, link.ifindex));
  return {};
}

Result<std::optional<RdmaDevice>> find_recorded_device(Netlink& rdma, const RailRecord& rail) {
  return rail.host.rdma ? find_rdma_device(rdma, *rail.host.rdma) : find_rdma_device(rdma, rail.rail.hca);
}

}  // namespace

// The order matters. A software RDMA device is deleted while its netdev is in the container, and made again after its
// netdev is on the node. With IPoIB the move of the RDMA device makes a new netdev, so the netdev is restored after it.
Result<void> RailRestorer::restore(const RailRecord& rail) {
  const HostNetdev& host = rail.host;
  wait_ms_ = ms_until(deadline_, kComebackMs);
  if (rail.rail.kind != RailKind::kMove) return remove_child(rail);
  if (inside_) {
    TRY_VOID(delete_software_device(rail));
    TRY_VOID(move_netdev(rail));
  }
  Result<void> guids;  // returned last: netdev and RDMA device must return to the node even after an error of set_vf()
  if (is_ipoib(host)) guids = set_vf(node_, host, host.vf_attributes);
  first_ = restore_rdma_device(rail);
  // If the RDMA device did not return in time, waiting for its netdev is useless. A software netdev ends with its
  // namespace, so there is nothing to wait for if the namespace is gone.
  const bool waits = first_ && (!host.bus_address.empty() || inside_);
  const auto link = find_on_node(host, waits ? wait_ms_ : 0);
  if (!link) keep(link.error());
  if (link && *link) {
    const int ifindex = (*link)->ifindex;
    if (keep(restore_netdev(**link, host))) {
      keep(restore_sysfs(ifindex, host));
      keep(restore_routes(ifindex, host));
    }
    keep(restore_software_device(rail));
    if (!is_ipoib(host)) keep(set_vf(node_, host, host.vf_attributes));
  }
  keep(std::move(guids));
  return std::exchange(first_, {});
}

bool RailRestorer::keep(Result<void> done) {
  const bool is_done = done.has_value();
  keep_first(first_, std::move(done));
  return is_done;
}

Result<void> RailRestorer::delete_software_device(const RailRecord& rail) {
  if (!rail.rail.recreate || !inside_->rdma) return {};
  // If the RDMA subsystem is shared, this socket shows the devices of all namespaces. If the netdev is not in the
  // container, the device with this GUID is the node's own and must stay.
  if (!TRY(find_recorded_netdev(inside_->route, inside_->sysfs, rail.rail.name, rail.host))) return {};
  const auto device = TRY(find_software_device(*inside_->rdma, guid_on_record(rail), rail.rail.hca));
  // If software RDMA devices remain on the netdev, the kernel deletes these devices when the netdev moves.
  return device ? delete_rdma_link(*inside_->rdma, *device) : Result<void>();
}

// Moves the netdev from a living namespace to the node. Does nothing if the netdev is not in the namespace: the netdev
// never entered it, or an earlier call moved the netdev.
Result<void> RailRestorer::move_netdev(const RailRecord& rail) {
  Netlink& route = inside_->route;
  const auto link = TRY(find_recorded_netdev(route, inside_->sysfs, rail.rail.name, rail.host));
  if (!link) return {};
  // The kernel refuses the move if an alternative name is taken on the node (Linux 6.6), so alternative names that a
  // container added are removed first. restore_netdev() repeats a removal that fails here.
  const auto whole = TRY(find_link(route, link->ifindex));
  if (!whole) return {};
  TRY_VOID(delete_netdevs_on(route, *whole));
  const LinkSettings before = rail.host.settings.value_or(whole->settings);
  repair_link(route, link->name, link_removals(link->ifindex, link->name, before, whole->settings));
  LinkChange home{.name = rail.host.name, .up = false, .netns = node_.netns.get()};
  auto moved = change_link(route, link->ifindex, home);
  if (moved || moved.error().code != EEXIST) return moved;
  // The node has another netdev with the name or an alternative name of this netdev. The kernel moves a netdev before
  // it renames the netdev, so this netdev is usually on the node already, under its name in the container. A netdev
  // that is still in the container is moved without alternative names and under a unique name. restore_netdev()
  // restores the names.
  if (!TRY(find_link(route, link->ifindex))) return {};
  repair_link(route, link->name, link_removals(link->ifindex, link->name, {}, whole->settings));
  home.name = fmt::format("rail{:x}", link->ifindex);
  return change_link(route, link->ifindex, home);
}

// Moves the RDMA device to the node.
Result<void> RailRestorer::restore_rdma_device(const RailRecord& rail) {
  const std::string& name = rail.rail.hca;
  if (!rail.rail.move_rdma || !node_.rdma) return {};
  Netlink* const there = inside_ && inside_->rdma ? &*inside_->rdma : nullptr;
  auto device = TRY(await(inside_ ? 0 : wait_ms_, [&] { return find_recorded_device(*node_.rdma, rail); }));
  if (!device && there) {
    if (const auto moved = TRY(find_recorded_device(*there, rail))) {
      TRY_VOID(move_rdma_device_from(inside_->netns.get(), moved->index, node_.netns.get()));
      device = TRY(find_recorded_device(*node_.rdma, rail));
    }
  }
  // The name is restored after the move: on the node the container cannot rename the device again.
  if (device) return restore_rdma_name(*node_.rdma, there, *device, name, warnings_);
  return Error{fmt::format("RDMA device `{}` has not returned to the node", name), EAGAIN,
               "run `rdma-hook recover` when the container's network namespace is gone"};
}

// Waits until the netdev is on the node. Returns nullopt with a warning if it is a software netdev and gone.
Result<MaybeLink> RailRestorer::find_on_node(const HostNetdev& host, int wait_ms) {
  auto link = TRY(await(wait_ms, [&] { return find_recorded_netdev(node_.route, node_.sysfs, host.name, host); }));
  if (!link && !host.bus_address.empty())
    return Error{fmt::format("netdev `{}` ({}) has not returned to the node", host.name, host.bus_address), EAGAIN,
                 "run `rdma-hook recover` when the container's network namespace is gone"};
  if (!link) {
    warnings_.push_back(
        fmt::format("netdev `{}` is gone: software netdevs end with the container's network namespace, and a container "
                    "can delete them",
                    host.name));
  }
  return link;
}

// Restores name, MAC address, MTU and settings. Changes only values that differ, so that a netdev that never left keeps
// its connections.
Result<void> RailRestorer::restore_netdev(const Link& link, const HostNetdev& host) {
  // Removals come first: an alternative name of a container can be the name to restore, and an XDP program can refuse
  // the MTU.
  const auto whole = TRY(free_of_xdp_links(node_.route, link.ifindex, host));
  const auto repair = [&](decltype(link_removals)& repairs) {
    if (!host.settings || !whole) return;
    warn(repair_link(node_.route, host.name, repairs(link.ifindex, host.name, *host.settings, whole->settings)));
  };
  if (host.tcx) warn(restore_tcx(link.ifindex, host.name, *host.tcx));
  repair(link_removals);
  LinkChange change;
  if (link.name != host.name) change.name = host.name;
  change.mac = mac_to_restore(link, host);
  if (link.tx_queue_length != host.tx_queue_length) change.tx_queue_length = host.tx_queue_length;
  // Kernels before 6.2 rename a netdev only while it is down. Drivers without IFF_LIVE_ADDR_CHANGE also set a MAC
  // address only while the netdev is down.
  if (change.name || change.mac) TRY_VOID(change_link(node_.route, link.ifindex, {.up = false}));
  const bool is_changed = change.name || change.mac || change.tx_queue_length;
  if (is_changed) TRY_VOID(change_link(node_.route, link.ifindex, change));
  // A driver can refuse an MTU for reasons of its own. The settings below are restored even then.
  if (link.mtu != host.mtu) keep(change_link(node_.route, link.ifindex, {.mtu = host.mtu}));
  repair(link_repairs);
  if (const auto vfs = restore_vfs(node_.route, link.ifindex, host.vfs); !vfs) warnings_.push_back(vfs.error().message);
  const auto features = host.features ? node_.ethtool.restore(link.ifindex, host.name, *host.features) : Result<void>();
  if (!features)
    warnings_.push_back(
        fmt::format("{}; remedy: run `ethtool -K {} FEATURE on|off`", features.error().message, host.name));
  if (host.settings && whole) warn(lost_programs(host.name, *host.settings, whole->settings));
  return change_link(node_.route, link.ifindex, {.up = host.up});
}

// Restores addresses and routes. Comes last, because the kernel accepts a route only if its netdev is up.
Result<void> RailRestorer::restore_routes(int ifindex, const HostNetdev& host) {
  std::vector<NetRecord> records;
  for (const NetRecord& record : host.records)
    records.push_back(for_netdev(record, ifindex, host.name));
  return add_records(node_.route, records);
}

// Restores the settings in sysfs. The kernel accepts some values only with NAPI instances, which drivers make when the
// netdev goes up. Values that the kernel refuses while the netdev is down are therefore written again while it is up.
Result<void> RailRestorer::restore_sysfs(int ifindex, const HostNetdev& host) {
  if (!host.sysfs) return {};
  Link link;
  link.ifindex = ifindex;
  link.name = host.name;
  const auto netdev = open_netdev(node_.sysfs.get(), link);
  if (!netdev || !*netdev) {
    warnings_.push_back(
        netdev ? fmt::format("`{}` is not in sysfs: its queue and NAPI settings are not restored", host.name)
               : netdev.error().message);
    return {};
  }
  auto refused = restore_sysfs_settings(**netdev, host.name, *host.sysfs);
  if (!refused.empty() && !host.up) {
    TRY_VOID(change_link(node_.route, ifindex, {.up = true}));
    refused = restore_sysfs_settings(**netdev, host.name, *host.sysfs);
    TRY_VOID(change_link(node_.route, ifindex, {.up = false}));
  }
  warn(std::move(refused));
  return {};
}

// Makes the software device again on its netdev. Tries this before it searches the device, because a container can make
// another device with the same name and node GUID. EEXIST means that the netdev has its device already; ENFILE means
// that another device has the name.
Result<void> RailRestorer::restore_software_device(const RailRecord& record) {
  const Rail& rail = record.rail;
  if (!rail.recreate || !node_.rdma) return {};
  const auto make = [&] { return create_rdma_link(*node_.rdma, rail.hca, *rail.recreate, rail.host); };
  auto made = make();
  if (made) return made;
  if (made.error().code == ENFILE)
    return TRY(free_rdma_name(*node_.rdma, nullptr, rail.hca, warnings_)) ? make() : made;
  if (made.error().code != EEXIST) return made;
  const auto device = TRY(find_software_device(*node_.rdma, guid_on_record(record), rail.hca));
  return device ? restore_rdma_name(*node_.rdma, nullptr, *device, rail.hca, warnings_) : Result<void>();
}

// Deletes the child. An ipoib child can also be on the node: a hook that is killed between making the child on the node
// and moving it leaves the child there. The kernel also moves the child to the node when the child's namespace ends
// (netns_refund, drivers/infiniband/ulp/ipoib/ipoib_netlink.c). Children of other kinds end with their namespace.
Result<void> RailRestorer::remove_child(const RailRecord& rail) {
  const std::uint32_t group = record_.group;
  if (inside_) {
    TRY_VOID(read_links());
    if (const Link* const child = find_child(rail)) return delete_link(inside_->route, child->ifindex);
  }
  if (rail.rail.kind != RailKind::kIpoib) return {};
  // On the node the child has the name of the rail, or a name that is made from its index if the name of the rail was
  // taken there (make_and_move(), and default_device_exit_net() of net/core/dev.c, Linux 6.12).
  const auto is_stray = [&](const Link& link) {
    if (link.kind != "ipoib" || link.lower_ifindex != rail.host.ifindex) return false;
    if (group != 0 && link.group != group) return false;
    return link.name == rail.rail.name || link.name == fmt::format("ib{:x}", link.ifindex) ||
           link.name == fmt::format("dev{}", link.ifindex);
  };
  const auto find_stray = [&]() -> Result<MaybeLink> {
    const auto links = TRY(all_links(node_.route));
    const auto found = std::ranges::find_if(links, is_stray);
    return found == links.end() ? MaybeLink() : MaybeLink(*found);
  };
  const auto stray = TRY(await(inside_ ? 0 : wait_ms_, find_stray));
  return stray ? delete_link(node_.route, stray->ifindex) : Result<void>();
}

}  // namespace hook
