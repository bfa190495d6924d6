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

#include "hook/base/failure.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/addresses.hpp"
#include "hook/rails/links.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/netlink/vf.hpp"
#include "hook/rails/open_hcas.hpp"
#include "hook/rails/plan/rails.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

// Hardware of a namespace that has ended comes back within some hundred milliseconds, on a loaded node within seconds.
constexpr int kComebackMs = 5000;

// The namespace of the rails; nullopt: it is gone, or dying. One that cannot be entered for another reason is an error:
// its rails are still in it.
Result<std::optional<NetworkNamespace>> reopen(const NetnsIdentity& netns, const NetnsParts& parts) {
  using None = std::optional<NetworkNamespace>;
  if (TRY(look_at(netns)) == Presence::kGone) return None();
  fabric::UniqueFd fd(::open(netns.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  const int failed = fd.ok() && ::fstat(fd.get(), &status) == 0 ? 0 : errno;
  if (failed != 0 && TRY(look_at(netns)) == Presence::kGone) return None();
  if (failed != 0) return sys_error(failed, "cannot open the network namespace `{}`", netns.path);
  if (status.st_dev != netns.dev || status.st_ino != netns.ino) return None();
  auto inside = open_network_namespace(std::move(fd), parts);
  if (inside) return std::optional(std::move(*inside));
  // It may have ended meanwhile.
  return TRY(look_at(netns)) == Presence::kGone ? Result<None>(None()) : inside.error();
}

bool is_held(const RailRecord& rail, const std::vector<PlannedHca>& held) {
  return std::ranges::any_of(held, [&](const PlannedHca& hca) { return hca.name == rail.rail.hca; });
}

// All children at once: the kernel waits for its readers once per message, and that is what deleting a netdev costs.
// Only when every rail leaves: the group is that of the whole grant.
Result<void> remove_children(NetworkNamespace* inside, const NetworkRecord& record,
                             const std::vector<RailRecord>& leaving) {
  const bool children =
      std::ranges::any_of(leaving, [](const RailRecord& rail) { return rail.rail.kind != RailKind::kMove; });
  if (!inside || !children || leaving.size() != record.rails.size()) return {};
  return delete_link_group(inside->route, record.group);
}

// Rules name addresses, not netdevs: they do not go when a netdev goes.
Result<void> remove_rules(NetworkNamespace* inside, const std::vector<RailRecord>& leaving) {
  if (!inside) return {};
  for (const RailRecord& rail : leaving) {
    auto records = configure_rail(rail.rail, rail.host.ifindex, rail.rule_priority, rail.host.records).routes;
    std::erase_if(records, [](const NetRecord& record) { return record.type != RTM_NEWRULE; });
    TRY_VOID(remove_records(inside->route, records));
  }
  return {};
}

// Puts all of it back that can be; the error is the first. Rules and children go before the netdevs that they are
// about.
Result<void> put_back(const NetworkRecord& record, std::vector<RailRecord>& leaving, Deadline deadline,
                      std::vector<std::string>& warnings) {
  auto node = TRY(open_node_sockets());
  NetnsParts parts;
  parts.sysfs = std::ranges::any_of(leaving, [](const RailRecord& rail) { return rail.host.identity != 0; });
  const bool writes = std::ranges::any_of(leaving, [](const RailRecord& rail) { return rail.host.sysfs.has_value(); });
  if (parts.sysfs || writes) node.sysfs = TRY(open_sysfs(SysfsAccess::kWrite));
  auto inside = TRY(reopen(record.netns, parts));
  NetworkNamespace* const place = inside ? &*inside : nullptr;
  Result<void> first = remove_rules(place, leaving);
  keep_first(first, remove_children(place, record, leaving));
  for (auto rail = leaving.rbegin(); rail != leaving.rend(); ++rail)
    keep_first(first, put_back_rail(node, place, *rail, ms_until(deadline, kComebackMs), warnings, record.group));
  return first;
}

using MaybeLink = std::optional<Link>;

// What find() finds. The kernel takes a namespace down in its own time. nullopt: it is not there.
template <typename Find>
auto await(int wait_ms, Find find) -> decltype(find()) {
  constexpr int kPauseMs = 10;
  for (int waited = 0;; waited += kPauseMs) {
    auto found = TRY(find());
    if (found || waited >= wait_ms) return found;
    ::usleep(kPauseMs * 1000);
  }
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

void append(std::vector<std::string>& to, std::vector<std::string> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

// Whoever has a physical function has its VFs, which may be others' next.
Result<void> restore_vfs(NodeSockets& node, int pf_ifindex, const std::vector<VfAttributes>& before) {
  Result<void> first;
  for (const auto& [number, now] : TRY(read_vfs(node.route, pf_ifindex))) {
    if (number >= before.size()) continue;
    keep_first(first, change_vf(node.route, pf_ifindex, number, changed_vf(before[number], now)));
  }
  return first;
}

// Without the XDP programs of a container that links hold. It may give a link another program between two looks
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

// Drivers make NAPI instances when their netdev goes up, and the kernel wants them for some values.
Result<void> restore_sysfs(NodeSockets& node, int ifindex, const HostNetdev& host, std::vector<std::string>& warnings) {
  if (!host.sysfs) return {};
  Link link;
  link.ifindex = ifindex;
  link.name = host.name;
  const auto netdev = open_netdev(node.sysfs.get(), link);
  if (!netdev || !*netdev) {
    warnings.push_back(
        netdev ? fmt::format("`{}` is not in sysfs: its queues and NAPI are as a container left them", host.name)
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

// Name, MAC, MTU and what was configured. What is right already is not touched: a netdev that never left keeps its
// connections.
Result<void> restore_on_node(NodeSockets& node, const Link& link, const HostNetdev& host,
                             std::vector<std::string>& warnings) {
  // A name that a container gave it may be the one that it gets, and an XDP program may not take the MTU.
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
  // Kernels before 6.2 rename only a netdev that is down, and drivers without IFF_LIVE_ADDR_CHANGE want that for a MAC.
  if (change.name || change.mac) TRY_VOID(change_link(node.route, link.ifindex, {.up = false}));
  const bool is_changed = change.name || change.mac || change.tx_queue_length;
  if (is_changed) TRY_VOID(change_link(node.route, link.ifindex, change));
  // What else is restored does not wait for it: a driver may refuse one, and has reasons of its own.
  auto first = link.mtu == host.mtu ? Result<void>() : change_link(node.route, link.ifindex, {.mtu = host.mtu});
  undo(link_repairs);
  if (!host.vfs.empty()) {
    const auto done = restore_vfs(node, link.ifindex, host.vfs);
    if (!done) warnings.push_back(done.error().message);
  }
  if (host.features) {
    const auto done = node.ethtool.put_back(link.ifindex, host.name, *host.features);
    if (!done) warnings.push_back(fmt::format("{0}; `ethtool -K {1} FEATURE on|off`", done.error().message, host.name));
  }
  if (host.settings && whole) append(warnings, lost_programs(host.name, *host.settings, whole->settings));
  TRY_VOID(change_link(node.route, link.ifindex, {.up = host.up}));
  keep_first(first, restore_sysfs(node, link.ifindex, host, warnings));
  // Last: routes want a netdev that is up.
  std::vector<NetRecord> records;
  for (const NetRecord& record : host.records)
    records.push_back(for_netdev(record, link.ifindex, host.name));
  keep_first(first, add_records(node.route, records));
  return first;
}

// The netdev of a living namespace goes home. Not inside: it never came, or went already.
Result<void> send_netdev_home(NodeSockets& node, NetworkNamespace& inside, const RailRecord& rail) {
  const auto link = TRY(find_given(inside.route, inside.sysfs, rail.rail.name, rail.host));
  if (!link) return {};
  // The kernel refuses the move when an alternative name is taken on the node (Linux 6.6). What is refused here is
  // tried again there.
  const auto whole = TRY(find_link(inside.route, link->ifindex));
  if (!whole) return {};
  const LinkSettings before = rail.host.settings.value_or(whole->settings);
  repair_link(inside.route, link->name, link_removals(link->ifindex, link->name, before, whole->settings));
  LinkChange home{.name = rail.host.name, .up = false, .netns = node.netns.get()};
  auto moved = change_link(inside.route, link->ifindex, home);
  if (moved || moved.error().code != EEXIST) return moved;
  // One of its names is taken there. The kernel moves before it renames: mostly it went, under the name that it had
  // inside. Else without alternative names, and under a name that nobody has: what it is called is put right there.
  if (!TRY(find_link(inside.route, link->ifindex))) return {};
  repair_link(inside.route, link->name, link_removals(link->ifindex, link->name, {}, whole->settings));
  home.name = fmt::format("rail{:x}", link->ifindex);
  return change_link(inside.route, link->ifindex, home);
}

// Renames the device of this name, in one of these places, to one that nobody can have foreseen. False: none has it.
Result<bool> move_aside(std::initializer_list<Netlink*> places, const std::string& name,
                        std::vector<std::string>& warnings) {
  for (Netlink* const place : places) {
    const auto other = place ? TRY(find_rdma_device(*place, name)) : std::nullopt;
    if (!other) continue;
    const std::string aside = fmt::format("rdma{}-{:x}", other->index, ::getpid());
    TRY_VOID(rename_rdma_device(*place, other->index, aside));
    warnings.push_back(fmt::format("another RDMA device was named `{}` meanwhile, and is `{}` now", name, aside));
    return true;
  }
  return false;
}

// What a container with CAP_NET_ADMIN renamed has its own name again, and what took that gets another: names are unique
// among all namespaces.
Result<void> rename_back(Netlink& rdma, Netlink* elsewhere, const RdmaDevice& device, const std::string& name,
                         std::vector<std::string>& warnings) {
  if (device.name == name) return {};
  auto renamed = rename_rdma_device(rdma, device.index, name);
  if (renamed || renamed.error().code != EEXIST) return renamed;
  if (TRY(move_aside({&rdma, elsewhere}, name, warnings))) return rename_rdma_device(rdma, device.index, name);
  return Error{fmt::format("RDMA device `{0}` came back as `{1}`: one that another container has is called `{0}`", name,
                           device.name),
               EEXIST, "`rdma-hook recover` renames it once that container is gone"};
}

Result<std::optional<RdmaDevice>> find_moved(Netlink& rdma, const RailRecord& rail) {
  return rail.host.rdma ? find_rdma_device(rdma, *rail.host.rdma) : find_rdma_device(rdma, rail.rail.hca);
}

// With IPoIB the netdev is made anew when the device comes: what is put right before is lost.
Result<void> bring_rdma_device_home(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
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
  // Once it is where its container cannot rename it again.
  if (device) return rename_back(*node.rdma, there, *device, name, warnings);
  return Error{fmt::format("RDMA device `{}` has not come back to the node", name), EAGAIN,
               "`rdma-hook recover` puts it right once its network namespace is gone"};
}

// The netdev says whether its device is there: a container can make one of the same name and node GUID.
Result<void> return_software_device(NodeSockets& node, const RailRecord& record, std::vector<std::string>& warnings) {
  const Rail& rail = record.rail;
  if (!rail.recreate || !node.rdma) return {};
  const auto make = [&] { return create_rdma_link(*node.rdma, rail.hca, *rail.recreate, rail.host); };
  auto made = make();
  if (made) return made;
  if (made.error().code == ENFILE) return TRY(move_aside({&*node.rdma}, rail.hca, warnings)) ? make() : made;
  if (made.error().code != EEXIST) return made;
  const auto device = TRY(find_software_device(*node.rdma, guid_on_record(record), rail.hca));
  return device ? rename_back(*node.rdma, nullptr, *device, rail.hca, warnings) : Result<void>();
}

Result<void> delete_software_device(NetworkNamespace& inside, const RailRecord& rail) {
  if (!rail.rail.recreate || !inside.rdma) return {};
  // In shared mode the node's socket sees it too, and it is the node's own as long as the netdev never left.
  if (!TRY(find_given(inside.route, inside.sysfs, rail.rail.name, rail.host))) return {};
  const auto device = TRY(find_software_device(*inside.rdma, guid_on_record(rail), rail.rail.hca));
  // The kernel ends what is left when the netdev moves.
  return device ? delete_rdma_link(*inside.rdma, *device) : Result<void>();
}

// What of the netdev is on the node again, as it was.
Result<void> settle_on_node(NodeSockets& node, const RailRecord& rail, int wait_ms,
                            std::vector<std::string>& warnings) {
  const HostNetdev& host = rail.host;
  const bool is_software = host.bus_address.empty();
  const auto link = TRY(await(wait_ms, [&] { return find_given(node.route, node.sysfs, host.name, host); }));
  if (!link && is_software) {
    warnings.push_back(
        fmt::format("netdev `{}` is gone: software netdevs end with the container's network namespace, and a container "
                    "can delete them",
                    host.name));
    return {};
  }
  if (!link) {
    return Error{fmt::format("netdev `{}` ({}) has not come back to the node", host.name, host.bus_address), EAGAIN,
                 "`rdma-hook recover` puts it right once its network namespace is gone"};
  }
  auto first = restore_on_node(node, *link, host, warnings);
  keep_first(first, return_software_device(node, rail, warnings));
  if (!is_ipoib(host)) keep_first(first, set_vf(node, host, host.vf_attributes));
  return first;
}

Result<void> put_back_moved(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                            std::vector<std::string>& warnings) {
  if (inside) {
    TRY_VOID(delete_software_device(*inside, rail));
    TRY_VOID(send_netdev_home(node, *inside, rail));
  }
  Result<void> guids;  // an error of these waits: netdev and RDMA device have to come home all the same
  if (is_ipoib(rail.host)) guids = set_vf(node, rail.host, rail.host.vf_attributes);
  auto done = bring_rdma_device_home(node, inside, rail, wait_ms, warnings);
  const bool is_software = rail.host.bus_address.empty();
  // What the kernel had not brought by then keeps nobody waiting twice.
  const bool waits = done && (!is_software || inside);
  keep_first(done, settle_on_node(node, rail, waits ? wait_ms : 0, warnings));
  keep_first(done, std::move(guids));
  return done;
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
    // Not by its name alone: that may be another netdev's now.
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

// Of a start that was never settled nothing can be left open.
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
  if (TRY(NetworkRecordStore::look_at(directory_, key)) == Presence::kGone) return {};
  const auto store = TRY(NetworkRecordStore::open(directory_));
  auto record = TRY(store.read(key));
  if (!record) return {};
  undone_.emplace(key, *record);
  std::vector<RailRecord> leaving;
  std::vector<RailRecord> staying;
  for (RailRecord& rail : record->rails)
    (is_held(rail, held) ? staying : leaving).push_back(rail);
  if (leaving.empty() && !staying.empty()) return {};  // a record without rails goes, too
  TRY_VOID(put_back(*record, leaving, deadline_, warnings_));
  // Addresses go last: no other container may get them while a netdev here still answers for them.
  // Those of ranges that cannot be returned are on nobody's record then: recover() finds them, and who is given none.
  const auto returned = return_addresses(directory_, ipam_, key, record->netns, leaving, deadline_);
  if (!returned) {
    warnings_.push_back(returned.error().message + "; `rdma-hook recover` tries again");
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

Result<void> put_back_rail(NodeSockets& node, NetworkNamespace* inside, const RailRecord& rail, int wait_ms,
                           std::vector<std::string>& warnings, std::uint32_t group) {
  if (rail.rail.kind == RailKind::kMove) return put_back_moved(node, inside, rail, wait_ms, warnings);
  return remove_child(node, inside, rail, wait_ms, group);
}

}  // namespace hook
