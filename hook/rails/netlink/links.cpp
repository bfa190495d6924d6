#include "hook/rails/netlink/links.hpp"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace hook {
namespace {

using base::netlink::Attributes;
using base::netlink::Bytes;
using base::netlink::Message;

// Parses one netdev.
// whole: also parses the settings and the number of VFs, which only find_link() needs.
std::optional<Link> parse_link(const Message& message, bool whole) {
  const auto* header = message.header<ifinfomsg>();
  if (message.type != RTM_NEWLINK || header == nullptr) return std::nullopt;
  const Attributes attributes = message.attributes(sizeof *header);
  Link link;
  link.ifindex = header->ifi_index;
  link.name = attributes.text(IFLA_IFNAME).value_or("");
  link.kind = Attributes(attributes.get(IFLA_LINKINFO)).text(IFLA_INFO_KIND).value_or("");
  const Bytes mac = attributes.get(IFLA_ADDRESS);
  link.mac.assign(mac.begin(), mac.end());
  const Bytes permanent = attributes.get(IFLA_PERM_ADDRESS);
  link.permanent_mac.assign(permanent.begin(), permanent.end());
  link.mtu = attributes.u32(IFLA_MTU).value_or(0);
  link.tx_queue_length = attributes.u32(IFLA_TXQLEN).value_or(0);
  link.up = (header->ifi_flags & IFF_UP) != 0;
  link.running = (header->ifi_flags & IFF_RUNNING) != 0;
  link.lower_ifindex = static_cast<int>(attributes.u32(IFLA_LINK).value_or(0));
  if (const auto number = attributes.u32(IFLA_LINK_NETNSID)) link.lower_netns = static_cast<std::int32_t>(*number);
  link.master_ifindex = static_cast<int>(attributes.u32(IFLA_MASTER).value_or(0));
  link.group = attributes.u32(IFLA_GROUP).value_or(0);
  link.bus_address = attributes.text(IFLA_PARENT_DEV_NAME).value_or("");
  if (!whole) return link;
  link.vfs = attributes.u32(IFLA_NUM_VF).value_or(0);
  link.settings = link_settings(header->ifi_flags, attributes);
  link.qdisc = attributes.text(IFLA_QDISC).value_or("");
  return link;
}

Result<std::optional<Link>> find(Netlink& route, RequestBuilder request, std::string_view what) {
  // The kernel reports IFLA_NUM_VF only with RTEXT_FILTER_VF. The statistics are not needed and would make the answer
  // longer.
  request.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS});
  std::optional<Link> link;
  auto asked = route.read(request, what, [&](const Message& answer) { link = parse_link(answer, true); });
  if (!asked && asked.error().code != ENODEV) return std::move(asked).error();
  if (asked && !link) return make_error("cannot {}: the kernel's answer is malformed", what);
  return link;
}

void put_link_data(RequestBuilder& request, const NewChild& child) {
  const auto info = request.begin(IFLA_LINKINFO);
  request.put(IFLA_INFO_KIND, to_string(child.kind));
  const auto data = request.begin(IFLA_INFO_DATA);
  if (child.kind == RailKind::kMacvlan) {
    request.put(IFLA_MACVLAN_MODE, std::uint32_t{child.macvlan_private ? MACVLAN_MODE_PRIVATE : MACVLAN_MODE_BRIDGE});
  } else if (child.kind == RailKind::kIpvlan) {
    // The child has L2 mode, because a child in L3 mode does not use ARP (IFF_NOARP).
    request.put(IFLA_IPVLAN_MODE, std::uint16_t{IPVLAN_MODE_L2});
    request.put(IFLA_IPVLAN_FLAGS, std::uint16_t{0});  // bridge mode, which is neither private nor VEPA
  } else {
    if (child.pkey) request.put(IFLA_IPOIB_PKEY, *child.pkey);
    request.put(IFLA_IPOIB_MODE, std::uint16_t{IPOIB_MODE_DATAGRAM});
  }
  request.end(data);
  request.end(info);
}

Result<void> make(Netlink& route, const NewChild& child, int ifindex = 0) {
  auto made = change_named(route, child_request(child, ifindex), child.parent,
                           fmt::format("make {} `{}` of", to_string(child.kind), child.name));
  if (made) return made;
  Error& error = made.error();
  if (error.code == EOPNOTSUPP) {
    const std::string_view module = child.kind == RailKind::kIpoib ? "ib_ipoib" : to_string(child.kind);
    error.hint = fmt::format("run `modprobe {}`", module);
  }
  if (error.code == EBUSY)
    error.hint = "remove the parent from its bridge or bond, and delete its children of another kind";
  if (error.code == EEXIST) error.hint = "choose another name: the namespace already has a netdev of this name";
  return made;
}

// Returns an index that no netdev of this namespace has.
Result<int> free_ifindex(Netlink& route) {
  constexpr int kTries = 8;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const int ifindex = ifindex_of(TRY(random_number()));
    if (!TRY(find_link(route, ifindex))) return ifindex;
  }
  return Error{"cannot find a free interface index", EBUSY};
}

// Makes an ipoib child on the node and moves it. If another netdev of the node has the name, the child has a temporary
// name until it moves.
Result<void> make_and_move(Netlink& route, const NewChild& child) {
  NewChild here = child;
  here.netns = -1;
  const int ifindex = TRY(free_ifindex(route));
  if (TRY(find_link(route, child.name))) here.name = fmt::format("ib{:x}", ifindex);
  TRY_VOID(make(route, here, ifindex));
  // The MTU is set again: after the request that makes the child, ipoib_ndo_init() replaces the MTU of the request by
  // the maximum of the InfiniBand port (Linux 6.12).
  auto moved = change_link(route, ifindex, {.name = child.name, .mtu = child.mtu, .netns = child.netns});
  if (!moved && !delete_link(route, ifindex)) moved.error().message += ", and it is left on the node";
  return moved;
}

}  // namespace

Result<std::uint32_t> random_number() {
  if (const auto random = base::random_bits<std::uint32_t>()) return *random;
  return sys_error(errno, "cannot read random bytes");
}

int ifindex_of(std::uint32_t random) {
  return static_cast<int>((1U << 29) | (random >> 4));
}

bool is_netdev_name(std::string_view name) {
  return !name.empty() && name.size() < IFNAMSIZ && name != "." && name != ".." &&
         std::ranges::all_of(name, [](unsigned char c) { return c > ' ' && c != 0x7f; }) &&
         name.find_first_of("/:%") == std::string_view::npos;
}

Result<void> check_name(const std::string& name) {
  if (is_netdev_name(name)) return {};
  return Error{fmt::format("cannot use `{}` as the name of a netdev", base::printable(name)), EINVAL,
               "use up to 15 characters without `/`, `:`, `%` and spaces"};
}

std::string shown_link(Netlink& route, int ifindex) {
  const auto link = find_link(route, ifindex);
  if (!link || !*link) return fmt::format("netdev {}", ifindex);
  return fmt::format("`{}`", base::printable((*link)->name));
}

Result<void> change_named(Netlink& route, const RequestBuilder& request, int ifindex, std::string_view verb) {
  auto changed = route.change(request, fmt::format("{} netdev {}", verb, ifindex));
  if (changed || changed.error().code == ENODEV) return changed;
  // The name of the netdev is read only after an error, because reading it costs a system call and most changes
  // succeed.
  Error error = std::move(changed).error();
  const std::string number = fmt::format("netdev {}", ifindex);
  if (const auto at = error.message.find(number); at != std::string::npos)
    error.message.replace(at, number.size(), shown_link(route, ifindex));
  return error;
}

Result<std::optional<Link>> find_link(Netlink& route, std::string_view name) {
  if (!is_netdev_name(name)) return std::optional<Link>();
  RequestBuilder request(RTM_GETLINK, 0, link_header(0));
  request.put(IFLA_IFNAME, name);
  return find(route, std::move(request), fmt::format("find netdev `{}`", name));
}

Result<std::optional<Link>> find_link(Netlink& route, int ifindex) {
  if (ifindex <= 0) return std::optional<Link>();
  return find(route, RequestBuilder(RTM_GETLINK, 0, link_header(ifindex)), fmt::format("find netdev {}", ifindex));
}

Result<std::vector<Link>> all_links(Netlink& route) {
  // Leaves out RTEXT_FILTER_VF, by which every driver would report all its VFs.
  RequestBuilder request(RTM_GETLINK, NLM_F_DUMP, link_header(0));
  request.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_SKIP_STATS});
  std::vector<Link> links;
  TRY_VOID(route.dump(
      request, "list netdevs", [&] { links.clear(); },
      [&](const Message& answer) {
        if (auto link = parse_link(answer, false)) links.push_back(*std::move(link));
      }));
  return links;
}

Result<std::optional<Directory>> open_netdev(int sysfs, const Link& link) {
  using None = std::optional<Directory>;
  // check_name() is too strict here: a container can give its netdev any name that the kernel accepts
  // (dev_valid_name(), Linux 6.12), including control characters.
  if (link.name.empty() || link.name == "." || link.name == ".." || link.name.find('/') != std::string::npos)
    return None();
  auto directory = Directory::open(sysfs, fmt::format("class/net/{}", link.name).c_str());
  int code = directory ? 0 : errno;
  if (directory) {
    // Another netdev can have taken the name since `link` was read, so the index is compared.
    const auto index = directory->read("ifindex");
    if (const auto* text = std::get_if<std::string>(&index))
      return base::parse_number<int>(*text) == link.ifindex ? std::move(directory) : None();
    code = std::get<base::Unreadable>(index).code;
  }
  if (code == ENOENT || code == ENODEV) return None();
  return sys_error(code, "cannot read netdev `{}` in sysfs", base::printable(link.name));
}

Result<std::uint64_t> netdev_identity(int sysfs, const Link& link) {
  const auto directory = TRY(open_netdev(sysfs, link));
  if (!directory) return std::uint64_t{0};
  struct stat status {};
  if (::fstat(directory->fd(), &status) == 0) return std::uint64_t{status.st_ino};
  return sys_error(errno, "cannot read netdev `{}` in sysfs", base::printable(link.name));
}

// Finds the netdev with this identity. Reads all netdevs again if one changed its name between the dump and the read of
// sysfs, because the renamed netdev can be the one with the identity.
Result<std::optional<Link>> find_by_identity(Netlink& route, int sysfs, const std::string& kind,
                                             std::uint64_t identity) {
  constexpr int kTries = 10;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    bool is_steady = true;
    for (const Link& link : TRY(all_links(route))) {
      if (link.kind != kind) continue;
      const std::uint64_t found = TRY(netdev_identity(sysfs, link));
      if (found == identity) return std::optional(link);
      is_steady &= found != 0;
    }
    if (is_steady) return std::optional<Link>();
  }
  return Error{fmt::format("cannot find the recorded netdev (kind `{}`): netdevs were renamed during each of {} reads",
                           kind, kTries),
               EAGAIN};
}

RequestBuilder child_request(const NewChild& child, int ifindex) {
  RequestBuilder request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, link_header(ifindex));
  request.put(IFLA_IFNAME, std::string_view(child.name));
  request.put(IFLA_LINK, child.parent);
  if (child.netns >= 0) request.put(IFLA_NET_NS_FD, child.netns);
  if (child.mtu) request.put(IFLA_MTU, std::uint32_t{*child.mtu});
  if (child.mac) request.put(IFLA_ADDRESS, Bytes(*child.mac));
  if (child.group != 0) request.put(IFLA_GROUP, child.group);
  put_link_data(request, child);
  return request;
}

Result<void> create_child(Netlink& route, const NewChild& child) {
  TRY_VOID(check_name(child.name));
  if (child.kind == RailKind::kMove) return Error{"cannot make a child of kind `move`", EINVAL};
  if (child.kind == RailKind::kIpoib && child.netns >= 0) return make_and_move(route, child);
  auto made = make(route, child);
  if (made || made.error().code != EEXIST || child.netns < 0) return made;
  // EEXIST can be wrong: older kernels search the socket's namespace for the name, and not the child's. If no netdev
  // there has the name, EEXIST is right. Otherwise the request is repeated with a free index: older kernels then search
  // for the index instead of the name (rtnl_newlink(), Linux 6.1).
  if (!TRY(find_link(route, child.name))) return made;
  return make(route, child, TRY(free_ifindex(route)));
}

RequestBuilder change_request(int ifindex, const LinkChange& change) {
  ifinfomsg header = link_header(ifindex);
  if (change.up) {
    header.ifi_change = IFF_UP;
    header.ifi_flags = *change.up ? IFF_UP : 0;
  }
  RequestBuilder request(RTM_SETLINK, 0, header);
  // The message that moves the netdev also has the new name. The kernel refuses a move without a new name if the old
  // name is taken in the target namespace (__dev_change_net_namespace(), Linux 6.12).
  if (change.netns) request.put(IFLA_NET_NS_FD, *change.netns);
  if (change.name) request.put(IFLA_IFNAME, std::string_view(*change.name));
  if (change.mtu) request.put(IFLA_MTU, std::uint32_t{*change.mtu});
  if (change.mac) request.put(IFLA_ADDRESS, Bytes(*change.mac));
  if (change.tx_queue_length) request.put(IFLA_TXQLEN, std::uint32_t{*change.tx_queue_length});
  if (change.group) request.put(IFLA_GROUP, *change.group);
  if (change.arp) {
    const auto families = request.begin(IFLA_AF_SPEC);
    const auto ipv4 = request.begin(AF_INET);
    const auto settings = request.begin(IFLA_INET_CONF);
    request.put(IPV4_DEVCONF_ARP_IGNORE, std::uint32_t{change.arp->arp_ignore});
    request.put(IPV4_DEVCONF_ARP_ANNOUNCE, std::uint32_t{change.arp->arp_announce});
    request.put(IPV4_DEVCONF_RP_FILTER, std::uint32_t{change.arp->rp_filter});
    request.end(settings);
    request.end(ipv4);
    request.end(families);
  }
  return request;
}

Result<void> change_link(Netlink& route, int ifindex, const LinkChange& change) {
  if (change.name) TRY_VOID(check_name(*change.name));
  if (ifindex <= 0) return Error{fmt::format("cannot change a netdev: invalid index {}", ifindex), EINVAL};
  const char* verb = change.netns ? "move" : change.name ? "rename" : change.up ? "set up or down" : "change";
  auto changed = change_named(route, change_request(ifindex, change), ifindex, verb);
  if (changed || changed.error().code != EEXIST || !change.name) return changed;
  changed.error().message += fmt::format(": `{}` is taken", *change.name);
  return changed;
}

Result<void> delete_link(Netlink& route, int ifindex) {
  if (ifindex <= 0) return Error{fmt::format("cannot delete a netdev: invalid index {}", ifindex), EINVAL};
  auto deleted = change_named(route, RequestBuilder(RTM_DELLINK, 0, link_header(ifindex)), ifindex, "delete");
  if (!deleted && deleted.error().code == ENODEV) return {};
  return deleted;
}

Result<void> delete_link_group(Netlink& route, std::uint32_t group) {
  if (group == 0) return Error{"cannot delete all netdevs of group 0: it is the default group", EINVAL};
  RequestBuilder request(RTM_DELLINK, 0, link_header(0));
  request.put(IFLA_GROUP, group);
  auto deleted = route.change(request, fmt::format("delete all netdevs of group {}", group));
  if (!deleted && deleted.error().code == ENODEV) return {};
  return deleted;
}

}  // namespace hook
