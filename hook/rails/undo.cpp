#include "hook/rails/undo.hpp"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "hook/ledger/identities.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/netns_handle.hpp"
#include "hook/rails/plan/rails.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

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

}  // namespace

RailUndo::RailUndo(NodeSockets node, const NetworkRecord& record, Deadline deadline, std::vector<std::string>& warnings,
                   std::optional<NetworkNamespace> inside)
    : node_(std::move(node)), record_(record), deadline_(deadline), warnings_(warnings), inside_(std::move(inside)) {}

Result<void> RailUndo::restore_rails(const std::vector<RailRecord>& leaving, const NetworkRecordStore& store,
                                     const std::string& proc) {
  TRY_VOID(enter(leaving, proc));
  Result<void> first;
  if (inside_) {
    first = remove_rules(leaving);
    // The link group has the children of the whole grant, so it is deleted only if all rails leave. One message deletes
    // them all, because the kernel waits for an RCU grace period per message. That wait is the main cost of deleting a
    // netdev.
    const bool all_leave = leaving.size() == record_.rails.size();
    const auto is_child = [](const RailRecord& rail) { return rail.rail.kind != RailKind::kMove; };
    if (all_leave && std::ranges::any_of(leaving, is_child))
      keep_first(first, delete_link_group(inside_->route, record_.group));
    if (all_leave && is_left_) keep_first(first, remove_further_children(leaving, store));
  }
  for (auto rail = leaving.rbegin(); rail != leaving.rend(); ++rail)
    keep_first(first, restore(*rail));
  if (!first && is_left_) {
    if (const auto keeper = keeper_of_netns(record_.netns, proc); !keeper.empty())
      first.error().message += fmt::format("; {} keeps the container's network namespace", keeper);
  }
  return first;
}

// Opens the namespace of the rails: by its path, or by its handle if no path leads to it any more. Returns an error if
// it exists but cannot be entered, because the rails are still in it.
Result<void> RailUndo::enter(const std::vector<RailRecord>& leaving, const std::string& proc) {
  NetnsParts parts;
  // Closing a mount of sysfs waits for an RCU grace period, so sysfs is mounted only if necessary. A netdev with a
  // recorded identity is searched in the sysfs of both namespaces. Sysfs settings are restored in the node's sysfs.
  parts.sysfs = std::ranges::any_of(leaving, [](const RailRecord& rail) { return rail.host.identity != 0; });
  const bool writes = std::ranges::any_of(leaving, [](const RailRecord& rail) { return rail.host.sysfs.has_value(); });
  if (parts.sysfs || writes) node_.sysfs = TRY(open_sysfs(SysfsAccess::kWrite));
  const auto& handle = record_.handle;
  auto found = open_recorded_path(record_.netns);
  if (handle && (!found || !found->netns.ok())) {
    auto kept = open_netns_by_handle(node_.route, node_.netns.get(), record_, proc, ms_until(deadline_, kLingerMs));
    if (kept || kept.error().code != EOPNOTSUPP) found = std::move(kept);
  }
  if (!found) return found.error();
  if (!found->netns.ok()) return {};
  auto inside = open_network_namespace(std::move(found->netns), parts);
  const std::uint64_t cookie = inside && handle ? handle->cookie : 0;
  const std::uint64_t seen = cookie == 0 ? 0 : netns_cookie(inside->route.fd());
  if (seen != cookie && seen != 0) return {};  // another namespace has number and inode number by now
  // The namespace can end between the first lookup and the moment when open_network_namespace() enters it.
  if (!inside && !handle && TRY(read_presence(record_.netns)) == Presence::kGone) return {};
  if (!inside) return inside.error();
  inside_.emplace(std::move(*inside));
  is_left_ = !found->has_path;
  return {};
}

// Removes the rails' rules from the container's namespace. The kernel would keep the rules when the netdevs leave,
// because they name addresses and no netdevs.
Result<void> RailUndo::remove_rules(const std::vector<RailRecord>& leaving) {
  for (const RailRecord& rail : leaving) {
    auto records = configure_rail(rail.rail, rail.host.ifindex, rail.rule_priority, rail.host.records).routes;
    std::erase_if(records, [](const NetRecord& record) { return record.type != RTM_NEWRULE; });
    TRY_VOID(remove_records(inside_->route, records));
  }
  return {};
}

// Deletes the further children of the rails' parents. A container with CAP_NET_ADMIN can give a child another name and
// group, and make children beside it. In a namespace that outlives the container they would keep its addresses on the
// network. Children of other grants stay, which have rails in this namespace because containers share it.
Result<void> RailUndo::remove_further_children(const std::vector<RailRecord>& leaving,
                                               const NetworkRecordStore& store) {
  std::set<std::uint32_t> other_groups;
  for (const std::string& key : TRY(store.keys())) {
    const auto other = key == record_.key ? std::nullopt : TRY(store.read(key));
    if (other && other->netns.dev == record_.netns.dev && other->netns.ino == record_.netns.ino)
      other_groups.insert(other->group);
  }
  for (const Link& link : TRY(all_links(inside_->route))) {
    const bool is_child = std::ranges::any_of(leaving, [&](const RailRecord& rail) {
      return rail.rail.kind != RailKind::kMove && link.lower_is_elsewhere && link.lower_ifindex == rail.host.ifindex;
    });
    if (is_child && link.kind != "veth" && !other_groups.contains(link.group))
      TRY_VOID(delete_link(inside_->route, link.ifindex));
  }
  return {};
}

}  // namespace hook
