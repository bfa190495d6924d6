#include "hook/rails/undo.hpp"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <set>
#include <utility>

#include "base/failure.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/addresses.hpp"
#include "hook/rails/links.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/netlink/vf.hpp"
#include "hook/rails/netns_handle.hpp"
#include "hook/rails/open_hcas.hpp"
#include "hook/rails/plan/rails.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

// After a namespace ends, the kernel moves its hardware to the node: within some hundred milliseconds, on a loaded node
// within seconds.
constexpr int kComebackMs = 5000;

// Longest wait for a namespace whose path is gone, before its rails are taken out: the kernel frees sockets of ended
// processes after a grace period.
constexpr int kLingerMs = 300;

// Opens the namespace by its recorded path. Returns an empty descriptor if the path leads to another namespace or to
// none. Returns an error if the path leads to the namespace but it cannot be opened.
Result<KeptNetns> open_recorded_path(const NetnsIdentity& netns) {
  if (TRY(read_presence(netns)) == Presence::kGone) return KeptNetns();
  base::UniqueFd fd(::open(netns.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  const int failed = fd.ok() && ::fstat(fd.get(), &status) == 0 ? 0 : errno;
  if (failed != 0 && TRY(read_presence(netns)) == Presence::kGone) return KeptNetns();
  if (failed != 0) return sys_error(failed, "cannot open the network namespace `{}`", netns.path);
  // A newer namespace can have the same path, because the kernel reuses PIDs and engines reuse names.
  if (status.st_dev != netns.dev || status.st_ino != netns.ino) return KeptNetns();
  return KeptNetns{std::move(fd), true};
}

// The container's namespace, while it lives.
struct Inside {
  std::optional<NetworkNamespace> netns;  // nullopt: gone or dying
  // No path leads to it: only processes, descriptors or sockets of other containers keep it.
  bool is_left = false;
};

// Opens the namespace of the rails: by its path, or by its handle if no path leads to it any more. Returns an error if
// it exists but cannot be entered, because the rails are still in it.
Result<Inside> reopen(NodeSockets& node, const NetworkRecord& record, const NetnsParts& parts, const std::string& proc,
                      int wait_ms) {
  auto found = open_recorded_path(record.netns);
  if (record.handle && (!found || !found->netns.ok())) {
    auto kept = open_netns_by_handle(node.route, node.netns.get(), *record.handle, record.netns, proc,
                                     std::min(wait_ms, kLingerMs));
    if (kept || kept.error().code != EOPNOTSUPP) found = std::move(kept);
  }
  if (!found) return found.error();
  if (!found->netns.ok()) return Inside();
  auto inside = open_network_namespace(std::move(found->netns), parts);
  const std::uint64_t cookie = inside && record.handle ? record.handle->cookie : 0;
  const std::uint64_t seen = cookie == 0 ? 0 : netns_cookie(inside->route.fd());
  if (seen != cookie && seen != 0) return Inside();  // another namespace has number and inode number by now
  if (inside) return Inside{std::move(*inside), !found->has_path};
  // The namespace can end between the first lookup and the moment when open_network_namespace() enters it.
  if (!record.handle && TRY(read_presence(record.netns)) == Presence::kGone) return Inside();
  return inside.error();
}

// Returns true if a user of the grant still has the rail's HCA, by its device: the HCA can have been renamed between
// the starts of two users.
bool is_held(const RailRecord& rail, const std::vector<PlannedHca>& held) {
  return std::ranges::any_of(held, [&](const PlannedHca& hca) {
    return rail.device.empty() ? hca.name == rail.rail.hca : booked_as(hca) == rail.device;
  });
}

// Deletes all children of the grant with one message, because the kernel waits for an RCU grace period per message.
// That wait is the main cost of deleting a netdev. Deletes the group only if all rails leave, because it has the
// children of the whole grant.
Result<void> remove_children(NetworkNamespace* inside, const NetworkRecord& record,
                             const std::vector<RailRecord>& leaving) {
  const bool children =
      std::ranges::any_of(leaving, [](const RailRecord& rail) { return rail.rail.kind != RailKind::kMove; });
  if (!inside || !children || leaving.size() != record.rails.size()) return {};
  return delete_link_group(inside->route, record.group);
}

// Returns the link groups of other grants that have children in this namespace, because containers share it.
Result<std::set<std::uint32_t>> groups_beside(const NetworkRecordStore& store, const NetworkRecord& record) {
  std::set<std::uint32_t> groups;
  for (const std::string& key : TRY(store.keys())) {
    const auto other = key == record.key ? std::nullopt : TRY(store.read(key));
    if (other && other->netns.dev == record.netns.dev && other->netns.ino == record.netns.ino)
      groups.insert(other->group);
  }
  return groups;
}

// Deletes the further children of the rails' parents. A container with CAP_NET_ADMIN can give a child another name and
// group, and make children beside it. In a namespace that outlives the container they would keep its addresses on the
// network.
Result<void> remove_further_children(Inside& inside, const NetworkRecordStore& store, const NetworkRecord& record,
                                     const std::vector<RailRecord>& leaving) {
  if (!inside.netns || !inside.is_left || leaving.size() != record.rails.size()) return {};
  const auto groups = TRY(groups_beside(store, record));
  Netlink& route = inside.netns->route;
  for (const Link& link : TRY(all_links(route))) {
    const bool is_child = std::ranges::any_of(leaving, [&](const RailRecord& rail) {
      return rail.rail.kind != RailKind::kMove && link.lower_is_elsewhere && link.lower_ifindex == rail.host.ifindex;
    });
    if (is_child && link.kind != "veth" && !groups.contains(link.group)) TRY_VOID(delete_link(route, link.ifindex));
  }
  return {};
}

// Removes the rails' rules from the container's namespace. The kernel would keep the rules when the netdevs leave,
// because they name addresses and no netdevs.
Result<void> remove_rules(NetworkNamespace* inside, const std::vector<RailRecord>& leaving) {
  if (!inside) return {};
  for (const RailRecord& rail : leaving) {
    auto records = configure_rail(rail.rail, rail.host.ifindex, rail.rule_priority, rail.host.records).routes;
    std::erase_if(records, [](const NetRecord& record) { return record.type != RTM_NEWRULE; });
    TRY_VOID(remove_records(inside->route, records));
  }
  return {};
}

// Restores as many rails as possible and returns the first error. Before the netdevs are restored, the routing rules
// are removed, and the child netdevs (macvlan, ipvlan, IPoIB) if all rails of the record leave.
Result<void> restore(const NetworkRecordStore& store, const NetworkRecord& record, std::vector<RailRecord>& leaving,
                     const std::string& proc, Deadline deadline, std::vector<std::string>& warnings) {
  auto node = TRY(open_node_sockets());
  NetnsParts parts;
  // Closing a mount of sysfs waits for an RCU grace period, so sysfs is mounted only if necessary. A netdev with a
  // recorded identity is searched in the sysfs of both namespaces. Sysfs settings are restored in the node's sysfs.
  parts.sysfs = std::ranges::any_of(leaving, [](const RailRecord& rail) { return rail.host.identity != 0; });
  const bool writes = std::ranges::any_of(leaving, [](const RailRecord& rail) { return rail.host.sysfs.has_value(); });
  if (parts.sysfs || writes) node.sysfs = TRY(open_sysfs(SysfsAccess::kWrite));
  auto inside = TRY(reopen(node, record, parts, proc, ms_until(deadline, kComebackMs)));
  NetworkNamespace* const place = inside.netns ? &*inside.netns : nullptr;
  Result<void> first = remove_rules(place, leaving);
  keep_first(first, remove_children(place, record, leaving));
  keep_first(first, remove_further_children(inside, store, record, leaving));
  for (auto rail = leaving.rbegin(); rail != leaving.rend(); ++rail)
    keep_first(first, restore_rail(node, place, *rail, ms_until(deadline, kComebackMs), warnings, record.group));
  if (!first && inside.is_left) {
    if (const auto keeper = keeper_of_netns(record.netns, proc); !keeper.empty())
      first.error().message += fmt::format("; {} keeps the container's network namespace", keeper);
  }
  return first;
}

using MaybeLink = std::optional<Link>;

// Repeats find() for at most wait_ms, because the kernel moves hardware to the node some time after its namespace
// ended. Returns nullopt if find() found nothing in time. wait_ms 0 means one attempt.
template <typename Find>
auto await(int wait_ms, Find find) -> decltype(find()) {
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

void append(std::vector<std::string>& to, std::vector<std::string> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

// Restores the attributes of the VFs of a physical function. A container that had the physical function can have
// changed the attributes of a VF, and the next container may get that VF.
Result<void> restore_vfs(NodeSockets& node, int pf_ifindex, const std::vector<VfAttributes>& before) {
  Result<void> first;
  for (const auto& [number, now] : TRY(read_vfs(node.route, pf_ifindex))) {
    if (number >= before.size()) continue;
    keep_first(first, change_vf(node.route, pf_ifindex, number, changed_vf(before[number], now)));
  }
  return first;
}

// Detaches the XDP programs that a container attached by BPF links. Returns the netdev as it is afterwards. The number
// of reads and failures is limited, because the container can replace the program of a link between two reads
// (BPF_LINK_UPDATE).
Result<MaybeLink> free_of_xdp_links(NodeSockets& node, int ifindex, const HostNetdev& host) {
  constexpr int kMostLooks = 64;
  constexpr int kMostMisses = 3;
  auto whole = TRY(find_link(node.route, ifindex));
  for (int looks = 0, misses = 0; looks < kMostLooks && misses < kMostMisses; ++looks) {
    if (!whole || !host.settings || !has_new_xdp(*host.settings, whole->settings)) break;
    if (!detach_xdp_link(ifindex, *host.settings, whole->settings)) ++misses;
    whole = TRY(find_link(node.route, ifindex));
  }
  return whole;
}

// Restores the settings in sysfs. The kernel accepts some values only with NAPI instances, which drivers make when the
// netdev goes up. Values that the kernel refuses while the netdev is down are therefore written again while it is up.
Result<void> restore_sysfs(NodeSockets& node, int ifindex, const HostNetdev& host, std::vector<std::string>& warnings) {
  if (!host.sysfs) return {};
  Link link;
  link.ifindex = ifindex;
  link.name = host.name;
  const auto netdev = open_netdev(node.sysfs.get(), link);
  if (!netdev || !*netdev) {
    warnings.push_back(
        netdev ? fmt::format("`{}` is not in sysfs: its queue and NAPI settings are not restored", host.name)
               : netdev.error().message);
    return {};
  }
  auto refused = restore_sysfs_settings(**netdev, host.name, *host.sysfs);
  if (!refused.empty() && !host.up) {
    TRY_VOID(change_link(node.route, ifindex, {.up = true}));
    refused = restore_sysfs_settings(**netdev, host.name, *host.sysfs);
    TRY_VOID(change_link(node.route, ifindex, {.up = false}));
  }
  append(warnings, std::move(refused));
  return {};
}

// Restores name, MAC address, MTU, settings, addresses and routes. Changes only values that differ, so that a netdev
// that never left keeps its connections.
Result<void> restore_on_node(NodeSockets& node, const Link& link, const HostNetdev& host,
                             std::vector<std::string>& warnings) {
  // Removals come first: an alternative name of a container can be the name to restore, and an XDP program can refuse
  // the MTU.
  const auto whole = TRY(free_of_xdp_links(node, link.ifindex, host));
  const auto undo = [&](decltype(link_removals)& repairs) {
    if (!host.settings || !whole) return;
    append(warnings,
           repair_link(node.route, host.name, repairs(link.ifindex, host.name, *host.settings, whole->settings)));
  };
  if (host.tcx) append(warnings, restore_tcx(link.ifindex, host.name, *host.tcx));
  undo(link_removals);
  LinkChange change;
  if (link.name != host.name) change.name = host.name;
  change.mac = mac_to_restore(link, host);
  if (link.tx_queue_length != host.tx_queue_length) change.tx_queue_length = host.tx_queue_length;
  // Kernels before 6.2 rename a netdev only while it is down. Drivers without IFF_LIVE_ADDR_CHANGE also set a MAC
  // address only while the netdev is down.
  if (change.name || change.mac) TRY_VOID(change_link(node.route, link.ifindex, {.up = false}));
  const bool is_changed = change.name || change.mac || change.tx_queue_length;
  if (is_changed) TRY_VOID(change_link(node.route, link.ifindex, change));
  // A driver can refuse an MTU for reasons of its own. The settings below are restored even then.
  auto first = link.mtu == host.mtu ? Result<void>() : change_link(node.route, link.ifindex, {.mtu = host.mtu});
  undo(link_repairs);
  if (!host.vfs.empty()) {
    const auto done = restore_vfs(node, link.ifindex, host.vfs);
    if (!done) warnings.push_back(done.error().message);
  }
  if (host.features) {
    const auto done = node.ethtool.restore(link.ifindex, host.name, *host.features);
    if (!done)
      warnings.push_back(
          fmt::format("{}; remedy: run `ethtool -K {} FEATURE on|off`", done.error().message, host.name));
  }
  if (host.settings && whole) append(warnings, lost_programs(host.name, *host.settings, whole->settings));
  TRY_VOID(change_link(node.route, link.ifindex, {.up = host.up}));
  keep_first(first, restore_sysfs(node, link.ifindex, host, warnings));
  // Routes are added last, because the kernel accepts a route only if its netdev is up.
  std::vector<NetRecord> records;
  for (const NetRecord& record : host.records)
    records.push_back(for_netdev(record, link.ifindex, host.name));
  keep_first(first, add_records(node.route, records));
  return first;
}

// Deletes the netdevs that the container made on a netdev, such as macvlan children, before the netdev leaves.
// Otherwise they would stay in the container, on a netdev of the node: the kernel keeps them when the netdev below them
// moves (macvlan_device_event(), vlan_device_event(), Linux 6.12). The other end of a veth pair looks similar, but
// stays.
Result<void> delete_netdevs_on(Netlink& route, const Link& below) {
  const auto is_on = [](const Link& link, const Link& other) {
    return link.lower_ifindex == other.ifindex && !link.lower_is_elsewhere;
  };
  for (const Link& link : TRY(all_links(route))) {
    if (is_on(link, below) && !is_on(below, link)) TRY_VOID(delete_link(route, link.ifindex));
  }
  return {};
}

// Moves the netdev from a living namespace to the node. Does nothing if the netdev is not in the namespace: the netdev
// never entered it, or an earlier call moved the netdev.
Result<void> return_netdev(NodeSockets& node, NetworkNamespace& inside, const RailRecord& rail) {
  const auto link = TRY(find_recorded_netdev(inside.route, inside.sysfs, rail.rail.name, rail.host));
  if (!link) return {};
  // The kernel refuses the move if an alternative name is taken on the node (Linux 6.6), so alternative names that a
  // container added are removed first. restore_on_node() repeats a removal that fails here.
  const auto whole = TRY(find_link(inside.route, link->ifindex));
  if (!whole) return {};
  TRY_VOID(delete_netdevs_on(inside.route, *whole));
  const LinkSettings before = rail.host.settings.value_or(whole->settings);
  repair_link(inside.route, link->name, link_removals(link->ifindex, link->name, before, whole->settings));
  LinkChange home{.name = rail.host.name, .up = false, .netns = node.netns.get()};
  auto moved = change_link(inside.route, link->ifindex, home);
  if (moved || moved.error().code != EEXIST) return moved;
  // The node has another netdev with the name or an alternative name of this netdev. The kernel moves a netdev before
  // it renames the netdev, so this netdev is usually on the node already, under its name in the container. If it is
  // still in the container, it is moved without alternative names and under a unique name. restore_on_node() restores
  // the names.
  if (!TRY(find_link(inside.route, link->ifindex))) return {};
  repair_link(inside.route, link->name, link_removals(link->ifindex, link->name, {}, whole->settings));
  home.name = fmt::format("rail{:x}", link->ifindex);
  return change_link(inside.route, link->ifindex, home);
}

// Gives the RDMA device `name` another name, which a container cannot predict. Searches the device in these namespaces,
// in this order. Returns false if no namespace shows it.
Result<bool> rename_conflicting(std::initializer_list<Netlink*> places, const std::string& name,
                                std::vector<std::string>& warnings) {
  for (Netlink* const place : places) {
    const auto other = place ? TRY(find_rdma_device(*place, name)) : std::nullopt;
    if (!other) continue;
    const std::string aside = fmt::format("rdma{}-{:x}", other->index, ::getpid());
    TRY_VOID(rename_rdma_device(*place, other->index, aside));
    warnings.push_back(fmt::format("another RDMA device took the name `{}`: renamed it to `{}`", name, aside));
    return true;
  }
  return false;
}

// Restores the name of an RDMA device. A container with CAP_NET_ADMIN can rename its RDMA device, and use the old name
// for another device. Names of RDMA devices are unique among all namespaces, so the other device is renamed first.
Result<void> rename_back(Netlink& rdma, Netlink* elsewhere, const RdmaDevice& device, const std::string& name,
                         std::vector<std::string>& warnings) {
  if (device.name == name) return {};
  auto renamed = rename_rdma_device(rdma, device.index, name);
  if (renamed || renamed.error().code != EEXIST) return renamed;
  if (TRY(rename_conflicting({&rdma, elsewhere}, name, warnings))) return rename_rdma_device(rdma, device.index, name);
  return Error{
      fmt::format("RDMA device `{}` returned as `{}`: a device of another container has its name", name, device.name),
      EEXIST, "run `rdma-hook recover` when that container is gone"};
}

Result<std::optional<RdmaDevice>> find_moved(Netlink& rdma, const RailRecord& rail) {
  return rail.host.rdma ? find_rdma_device(rdma, *rail.host.rdma) : find_rdma_device(rdma, rail.rail.hca);
}

// Moves the RDMA device to the node. With IPoIB the kernel then makes a new netdev, so the settings of the netdev have
// to be restored after this move.
Result<void> return_rdma_device(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                                std::vector<std::string>& warnings) {
  const std::string& name = rail.rail.hca;
  if (!rail.rail.move_rdma || !node.rdma) return {};
  Netlink* const there = inside && inside->rdma ? &*inside->rdma : nullptr;
  auto device = TRY(await(inside ? 0 : wait_ms, [&] { return find_moved(*node.rdma, rail); }));
  if (!device && there) {
    if (const auto moved = TRY(find_moved(*there, rail))) {
      TRY_VOID(move_rdma_device_from(inside->netns.get(), moved->index, node.netns.get()));
      device = TRY(find_moved(*node.rdma, rail));
    }
  }
  // The name is restored after the move: on the node the container cannot rename the device again.
  if (device) return rename_back(*node.rdma, there, *device, name, warnings);
  return Error{fmt::format("RDMA device `{}` has not returned to the node", name), EAGAIN,
               "run `rdma-hook recover` when the container's network namespace is gone"};
}

// Makes the software device again on its netdev. Tries this before it searches the device, because a container can make
// another device with the same name and node GUID. EEXIST means that the netdev has its device already; ENFILE means
// that another device has the name.
Result<void> return_software_device(NodeSockets& node, const RailRecord& record, std::vector<std::string>& warnings) {
  const Rail& rail = record.rail;
  if (!rail.recreate || !node.rdma) return {};
  const auto make = [&] { return create_rdma_link(*node.rdma, rail.hca, *rail.recreate, rail.host); };
  auto made = make();
  if (made) return made;
  if (made.error().code == ENFILE) return TRY(rename_conflicting({&*node.rdma}, rail.hca, warnings)) ? make() : made;
  if (made.error().code != EEXIST) return made;
  const auto device = TRY(find_software_device(*node.rdma, guid_on_record(record), rail.hca));
  return device ? rename_back(*node.rdma, nullptr, *device, rail.hca, warnings) : Result<void>();
}

Result<void> delete_software_device(NetworkNamespace& inside, const RailRecord& rail) {
  if (!rail.rail.recreate || !inside.rdma) return {};
  // If the RDMA subsystem is shared, this socket shows the devices of all namespaces. If the netdev is not in the
  // container, the device with this GUID is the node's own and must stay.
  if (!TRY(find_recorded_netdev(inside.route, inside.sysfs, rail.rail.name, rail.host))) return {};
  const auto device = TRY(find_software_device(*inside.rdma, guid_on_record(rail), rail.rail.hca));
  // If software RDMA devices remain on the netdev, the kernel deletes these devices when the netdev moves.
  return device ? delete_rdma_link(*inside.rdma, *device) : Result<void>();
}

// Waits until the netdev is on the node. Restores the netdev, its software device and its VF attributes.
Result<void> settle_on_node(NodeSockets& node, const RailRecord& rail, int wait_ms,
                            std::vector<std::string>& warnings) {
  const HostNetdev& host = rail.host;
  const bool is_software = host.bus_address.empty();
  const auto link = TRY(await(wait_ms, [&] { return find_recorded_netdev(node.route, node.sysfs, host.name, host); }));
  if (!link && is_software) {
    warnings.push_back(
        fmt::format("netdev `{}` is gone: software netdevs end with the container's network namespace, and a container "
                    "can delete them",
                    host.name));
    return {};
  }
  if (!link) {
    return Error{fmt::format("netdev `{}` ({}) has not returned to the node", host.name, host.bus_address), EAGAIN,
                 "run `rdma-hook recover` when the container's network namespace is gone"};
  }
  auto first = restore_on_node(node, *link, host, warnings);
  keep_first(first, return_software_device(node, rail, warnings));
  if (!is_ipoib(host)) keep_first(first, set_vf(node, host, host.vf_attributes));
  return first;
}

Result<void> restore_moved(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                           std::vector<std::string>& warnings) {
  if (inside) {
    TRY_VOID(delete_software_device(*inside, rail));
    TRY_VOID(return_netdev(node, *inside, rail));
  }
  Result<void> guids;  // returned last: netdev and RDMA device must return to the node even after an error of set_vf()
  if (is_ipoib(rail.host)) guids = set_vf(node, rail.host, rail.host.vf_attributes);
  auto done = return_rdma_device(node, inside, rail, wait_ms, warnings);
  const bool is_software = rail.host.bus_address.empty();
  // If the RDMA device did not return in time, waiting for its netdev is useless. A software netdev ends with its
  // namespace, so there is nothing to wait for if the namespace is gone.
  const bool waits = done && (!is_software || inside);
  keep_first(done, settle_on_node(node, rail, waits ? wait_ms : 0, warnings));
  keep_first(done, std::move(guids));
  return done;
}

// Returns true if the netdev is an ipoib child of this rail on the node. The child has the name of the rail, or a name
// that is made from its index if the name of the rail was taken on the node (make_and_move(), and
// default_device_exit_net() of net/core/dev.c, Linux 6.12).
bool is_stray_child(const Link& link, const RailRecord& rail, std::uint32_t group) {
  if (link.kind != "ipoib" || link.lower_ifindex != rail.host.ifindex) return false;
  if (group != 0 && link.group != group) return false;
  return link.name == rail.rail.name || link.name == fmt::format("ib{:x}", link.ifindex) ||
         link.name == fmt::format("dev{}", link.ifindex);
}

// Removes an ipoib child that is on the node. A hook that is killed between making the child on the node and moving it
// leaves the child there. The kernel also moves the child to the node when the child's namespace ends (netns_refund,
// drivers/infiniband/ulp/ipoib/ipoib_netlink.c). Children of other kinds end with their namespace.
Result<void> remove_stray_child(NodeSockets& node, const RailRecord& rail, int wait_ms, std::uint32_t group) {
  const auto find = [&]() -> Result<MaybeLink> {
    const auto links = TRY(all_links(node.route));
    const auto found = std::ranges::find_if(links, [&](const Link& each) { return is_stray_child(each, rail, group); });
    return found == links.end() ? MaybeLink() : MaybeLink(*found);
  };
  const auto link = TRY(await(wait_ms, find));
  return link ? delete_link(node.route, link->ifindex) : Result<void>();
}

Result<void> remove_child(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                          std::uint32_t group) {
  if (inside) {
    // The name alone does not identify the child, because a container can rename its netdevs.
    const auto links = TRY(all_links(inside->route));
    const auto child = std::ranges::find_if(links, [&](const Link& link) {
      return link.kind == to_string(rail.rail.kind) && link.lower_ifindex == rail.host.ifindex &&
             (link.name == rail.rail.name || (group != 0 && link.group == group));
    });
    if (child != links.end()) return delete_link(inside->route, child->ifindex);
  }
  if (rail.rail.kind != RailKind::kIpoib) return {};
  return remove_stray_child(node, rail, inside ? 0 : wait_ms, group);
}

}  // namespace

NodeRails::NodeRails(std::string ledger_directory, IpamHelper* ipam, std::string root)
    : directory_(std::move(ledger_directory)), ipam_(ipam), root_(std::move(root)) {}

Result<void> NodeRails::undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                                    const StoredGrant* grant) const {
  TRY_VOID(about(FailureReason::kNetwork, return_rails(key, held)));
  return grant ? check_left(held, *grant) : Result<void>();
}

// Checks only HCAs of users whose start was completed (grant.hcas). A user whose start failed had no process that could
// open an HCA. During a start, descriptors are searched only after an earlier failure, because the search reads all
// processes of the node.
Result<void> NodeRails::check_left(const std::vector<PlannedHca>& held, const StoredGrant& grant) const {
  std::vector<PlannedHca> left;
  for (const PlannedHca& hca : grant.hcas) {
    if (!find_hca(held, booked_as(hca))) left.push_back(hca);
  }
  const bool has_failed = std::ranges::any_of(grant.users, [](const auto& user) { return user.ended; });
  return check_closed(left, root_, !is_start_ || has_failed, warnings_);
}

Result<void> NodeRails::return_rails(const std::string& key, const std::vector<PlannedHca>& held) const {
  undone_.erase(key);
  if (TRY(NetworkRecordStore::read_presence(directory_, key)) == Presence::kGone) return {};
  const auto store = TRY(NetworkRecordStore::open(directory_));
  auto record = TRY(store.read(key));
  if (!record) return {};
  undone_.emplace(key, *record);
  std::vector<RailRecord> leaving;
  std::vector<RailRecord> staying;
  for (RailRecord& rail : record->rails)
    (is_held(rail, held) ? staying : leaving).push_back(rail);
  if (leaving.empty() && !staying.empty()) return {};  // if both are empty, the record has no rail and is removed below
  TRY_VOID(restore(store, *record, leaving, root_ + "/proc", deadline_, warnings_));
  // Addresses are released last: no other container may get an address while a netdev of this grant answers for it.
  // After an error the rails with a lease of an IPAM plugin stay in the record. Rails with addresses from ranges do not
  // stay: recover() and take_addresses() find these addresses in AddressPool.
  const auto returned = return_addresses(directory_, ipam_, key, record->netns, leaving, deadline_);
  if (!returned) {
    warnings_.push_back(returned.error().message + "; remedy: run `rdma-hook recover`");
    std::erase_if(leaving, [](const RailRecord& rail) { return !rail.lease; });
    staying.insert(staying.end(), leaving.begin(), leaving.end());
  }
  record->rails = std::move(staying);
  return record->rails.empty() ? store.remove(key) : store.write(*record);
}

Result<std::vector<std::string>> NodeRails::recover(const Ledger& ledger, Deadline deadline) const {
  std::map<std::string, const char*> left;  // by key
  const auto addresses = address_owners(directory_);
  if (!addresses) warnings_.push_back(addresses.error().message);
  for (const std::string& key : addresses ? *addresses : std::set<std::string>())
    left[key] = "addresses";
  const auto store = TRY(NetworkRecordStore::open(directory_));
  for (const std::string& key : TRY(store.keys()))
    left[key] = "rails";
  std::vector<std::string> recovered;
  std::vector<std::string> stuck;
  // The first pass does not wait, so that a grant whose rails cannot be undone yet does not use up the time of the
  // other grants.
  for (const Deadline until : {Deadline(), deadline}) {
    stuck.clear();
    std::erase_if(left, [&](const auto& item) {
      const auto released = release_addresses(ledger, directory_, item.first, until);
      if (!released.has_value())
        stuck.push_back(fmt::format("{} of `{}`: {}", item.second, item.first, released.error().message));
      if (released.has_value() && *released) recovered.push_back(fmt::format("{} of {}", item.second, item.first));
      return released.has_value();
    });
    if (stuck.empty()) break;
  }
  warnings_.insert(warnings_.end(), stuck.begin(), stuck.end());
  return recovered;
}

std::optional<NetworkRecord> NodeRails::undone(const std::string& key) const {
  const auto found = undone_.find(key);
  return found == undone_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> NodeRails::take_warnings() const {
  return std::exchange(warnings_, {});
}

Result<void> restore_rail(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                          std::vector<std::string>& warnings, std::uint32_t group) {
  if (rail.rail.kind == RailKind::kMove) return restore_moved(node, inside, rail, wait_ms, warnings);
  return remove_child(node, inside, rail, wait_ms, group);
}

}  // namespace hook
