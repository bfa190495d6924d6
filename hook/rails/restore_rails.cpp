#include "hook/rails/restore_rails.hpp"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/failure.hpp"
#include "base/text.hpp"
#include "hook/ledger/identities.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/netns_handle.hpp"
#include "hook/rails/plan/plan_rails.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

// Longest wait for a namespace whose path is gone, before its rails are taken out: the kernel frees sockets of ended
// processes after a grace period.
constexpr int kLingerMs = 300;

bool is_child(const RailRecord& rail) {
  return rail.rail.kind != RailKind::kMove;
}

// Opens the namespace by its recorded path. Returns an empty descriptor if the path leads to another namespace or to
// none. Returns an error if the path leads to the namespace but it cannot be opened.
Result<KeptNetns> open_recorded_path(const NetnsIdentity& netns) {
  if (TRY(read_presence(netns)) == Presence::kAbsent) return KeptNetns();
  base::UniqueFd fd(::open(netns.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  const int failed = fd.ok() && ::fstat(fd.get(), &status) == 0 ? 0 : errno;
  if (failed != 0 && TRY(read_presence(netns)) == Presence::kAbsent) return KeptNetns();
  if (failed != 0) return sys_error(failed, "cannot open the network namespace `{}`", netns.path);
  // A newer namespace can have the same path, because the kernel reuses PIDs and engines reuse names.
  if (status.st_dev != netns.dev || status.st_ino != netns.ino) return KeptNetns();
  return KeptNetns{std::move(fd), true};
}

}  // namespace

RailRestorer::RailRestorer(NodeSockets node, const NetworkRecord& record, Deadline deadline,
                           std::vector<std::string>& warnings, std::optional<NetworkNamespace> inside)
    : node_(std::move(node)), record_(record), deadline_(deadline), warnings_(warnings), inside_(std::move(inside)) {}

Result<void> RailRestorer::restore_rails(const std::vector<RailRecord>& leaving, const NetworkRecordStore& store,
                                         const std::string& proc) {
  TRY_VOID(enter(leaving, proc));
  Result<void> first;
  if (inside_) {
    first = remove_rules(leaving);
    // The link group has the children of the whole grant, so it is deleted only if all rails leave. One message deletes
    // them all, because the kernel waits for an RCU grace period per message. That wait is the main cost of deleting a
    // netdev. Its error does not count, because restore() deletes each child that is left: a container with
    // CAP_NET_ADMIN can put `lo`, which the kernel does not delete, into the group (EOPNOTSUPP).
    const bool all_leave = leaving.size() == record_.rails.size();
    const bool has_child = std::ranges::any_of(leaving, is_child);
    if (has_child) keep_first(first, read_links());
    const auto has_no_index = [&](const RailRecord& rail) {
      return is_child(rail) && (rail.child == 0 || is_missing(rail));
    };
    if (is_left_ || std::ranges::any_of(leaving, has_no_index)) {
      auto read = read_staying(leaving, store);
      staying_is_unknown_ = !read.has_value();
      keep_first(first, std::move(read));
    }
    if (all_leave && !links_.empty()) static_cast<void>(delete_link_group(inside_->route, record_.group));
    if (all_leave && is_left_) keep_first(first, remove_further_children(leaving));
  }
  for (auto rail = leaving.rbegin(); rail != leaving.rend(); ++rail)
    keep_first(first, restore(*rail));
  if (inside_) keep_first(first, check_children(leaving));
  if (!first && (is_left_ || first.error().code == EBUSY)) {
    if (const auto keeper = keeper_of_netns(record_.netns, proc); !keeper.empty())
      first.error().message += fmt::format("; {} keeps the container's network namespace", keeper);
  }
  return first;
}

// Opens the namespace of the rails: by its path, or by its handle if no path leads to it any more. Returns an error if
// it exists but cannot be entered, because the rails are still in it.
Result<void> RailRestorer::enter(const std::vector<RailRecord>& leaving, const std::string& proc) {
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
  if (!inside && !handle && TRY(read_presence(record_.netns)) == Presence::kAbsent) return {};
  if (!inside) return inside.error();
  inside_.emplace(std::move(*inside));
  is_left_ = !found->has_path;
  return {};
}

// Removes the rails' rules from the container's namespace. The kernel would keep the rules when the netdevs leave,
// because they name addresses and no netdevs.
Result<void> RailRestorer::remove_rules(const std::vector<RailRecord>& leaving) {
  for (const RailRecord& rail : leaving) {
    auto records = configure_rail(rail.rail, rail.host.ifindex, rail.rule_priority, rail.host.records).routes;
    std::erase_if(records, [](const NetRecord& record) { return record.type != RTM_NEWRULE; });
    TRY_VOID(remove_records(inside_->route, records));
  }
  return {};
}

// Reads the netdevs of the container's namespace once, before the first of them is deleted.
Result<void> RailRestorer::read_links() {
  if (!links_.empty()) return {};  // skips a second read: each namespace has at least `lo`
  links_ = TRY(all_links(inside_->route));
  // The kernel has given the node's namespace a number when it reported the first child of the node's netdevs.
  if (std::ranges::any_of(links_, [](const Link& link) { return link.lower_netns.has_value(); }))
    node_number_ = TRY(netns_number(inside_->route, node_.netns.get()));
  return {};
}

// Returns true if the netdev of the container's namespace is made on the rail's parent. A container can make netdevs on
// netdevs of other namespaces that have the same ifindex as the parent, so the number of the parent's namespace is
// compared. The kernel does not report that namespace for ipoib (Linux 6.12). The other end of a veth pair looks like a
// parent.
bool RailRestorer::is_on_parent(const Link& link, const RailRecord& rail) const {
  if (!is_child(rail) || link.lower_ifindex != rail.host.ifindex || link.kind == "veth") return false;
  if (link.kind == to_string(RailKind::kIpoib)) return rail.rail.kind == RailKind::kIpoib;
  if (!link.lower_netns) return false;
  return *link.lower_netns < 0 || !node_number_ || static_cast<std::uint32_t>(*link.lower_netns) == *node_number_;
}

// Returns true if the netdev is the rail's child: by its ifindex if that is on record, otherwise by name or group,
// which a container with CAP_NET_ADMIN can change.
bool RailRestorer::is_child_of(const Link& link, const RailRecord& rail, std::uint32_t group) const {
  if (link.kind != to_string(rail.rail.kind) || !is_on_parent(link, rail)) return false;
  if (rail.child != 0) return link.ifindex == rail.child;
  return link.name == rail.rail.name || (group != 0 && link.group == group);
}

// Returns true if no child has the recorded ifindex.
bool RailRestorer::is_missing(const RailRecord& rail) const {
  const auto is_it = [&](const Link& link) { return is_child_of(link, rail, record_.group); };
  return rail.child != 0 && std::ranges::none_of(links_, is_it);
}

// Returns the rail's child; nullptr: the namespace had none, or none is proven to be this rail's. If no child has the
// recorded ifindex, a child of its name or group is returned, because a child gets another ifindex when it returns from
// a namespace in which its own is taken. Another grant's child can have the name: two starts in one namespace can
// choose the same name, and one fails. So the name proves nothing if the records of the other grants cannot be read.
const Link* RailRestorer::find_child(const RailRecord& rail) const {
  RailRecord wanted = rail;
  if (is_missing(rail)) wanted.child = 0;
  if (wanted.child == 0 && staying_is_unknown_) return nullptr;
  const auto child = std::ranges::find_if(links_, [&](const Link& link) {
    return is_child_of(link, wanted, record_.group) && (wanted.child != 0 || !is_staying(link));
  });
  return child == links_.end() ? nullptr : &*child;
}

// Reads the records of all rails in the container's namespace that do not leave.
Result<void> RailRestorer::read_staying(const std::vector<RailRecord>& leaving, const NetworkRecordStore& store) {
  std::vector<NetworkRecord> records{record_};
  std::erase_if(records[0].rails,
                [&](const RailRecord& rail) { return std::ranges::find(leaving, rail) != leaving.end(); });
  for (const std::string& key : TRY(store.keys())) {
    auto other = key == record_.key ? std::nullopt : TRY(store.read(key));
    if (other && other->netns.dev == record_.netns.dev && other->netns.ino == record_.netns.ino)
      records.push_back(*std::move(other));
  }
  staying_ = std::move(records);
  return {};
}

// Returns true if the netdev is the child of a rail that does not leave.
bool RailRestorer::is_staying(const Link& link) const {
  return std::ranges::any_of(staying_, [&](const NetworkRecord& record) {
    return std::ranges::any_of(record.rails,
                               [&](const RailRecord& rail) { return is_child_of(link, rail, record.group); });
  });
}

// Deletes the further children of the rails' parents. A container with CAP_NET_ADMIN can give a child another name and
// group, and make children beside it. In a namespace that outlives the container they would keep its addresses on the
// network. Children of other grants stay, which have rails in this namespace because containers share it.
Result<void> RailRestorer::remove_further_children(const std::vector<RailRecord>& leaving) {
  if (staying_.empty()) return {};  // the records could not be read
  for (const Link& link : links_) {
    const bool is_further =
        std::ranges::any_of(leaving, [&](const RailRecord& rail) { return is_on_parent(link, rail); });
    if (is_further && !is_staying(link)) TRY_VOID(delete_link(inside_->route, link.ifindex));
  }
  return {};
}

// Returns an error if no child of a rail had the recorded ifindex, and another netdev on its parent is left: it can be
// the rail's child, which a container with CAP_NET_ADMIN moved away and back under another ifindex.
Result<void> RailRestorer::check_children(const std::vector<RailRecord>& leaving) {
  std::vector<const RailRecord*> missing;
  for (const RailRecord& rail : leaving)
    if (is_missing(rail)) missing.push_back(&rail);
  if (missing.empty()) return {};
  for (const Link& link : TRY(all_links(inside_->route))) {
    const auto rail = std::ranges::find_if(missing, [&](const RailRecord* one) { return is_on_parent(link, *one); });
    if (rail == missing.end() || is_staying(link)) continue;
    return Error{
        .message =
            fmt::format("the container's network namespace has no longer the child `{}` of `{}`, but `{}`, which "
                        "belongs to no grant and can be that child under another name",
                        (*rail)->rail.name, (*rail)->host.name, base::printable(link.name)),
        .code = EBUSY,
        .hint =
            "delete that netdev, or end the containers and processes of the namespace, then run `rdma-hook recover`",
        .reason = FailureReason::kBusy};
  }
  return {};
}

}  // namespace hook
