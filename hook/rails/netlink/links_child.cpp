// Children of netdevs.
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <sys/random.h>

#include <cerrno>
#include <utility>

#include "hook/rails/netlink/link_parts.hpp"
#include "hook/rails/netlink/links.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::netlink::Bytes;

const char* link_kind(RailKind kind) {
  switch (kind) {
    case RailKind::kMacvlan:
      return "macvlan";
    case RailKind::kIpvlan:
      return "ipvlan";
    case RailKind::kIpoib:
      return "ipoib";
    case RailKind::kMove:
      break;
  }
  return "";
}

void put_link_data(RequestBuilder& request, const NewChild& child) {
  nlattr* info = request.begin(IFLA_LINKINFO);
  request.put(IFLA_INFO_KIND, std::string_view(link_kind(child.kind)));
  nlattr* data = request.begin(IFLA_INFO_DATA);
  if (child.kind == RailKind::kMacvlan) {
    request.put(IFLA_MACVLAN_MODE, std::uint32_t{child.macvlan_private ? MACVLAN_MODE_PRIVATE : MACVLAN_MODE_BRIDGE});
  } else if (child.kind == RailKind::kIpvlan) {
    request.put(IFLA_IPVLAN_MODE, std::uint16_t{IPVLAN_MODE_L2});
    request.put(IFLA_IPVLAN_FLAGS, std::uint16_t{0});  // bridge
  } else {
    if (child.pkey) request.put(IFLA_IPOIB_PKEY, *child.pkey);
    request.put(IFLA_IPOIB_MODE, std::uint16_t{IPOIB_MODE_DATAGRAM});
  }
  request.end(data);
  request.end(info);
}

Result<void> make(Netlink& route, const NewChild& child, int ifindex = 0) {
  auto made = change_named(route, child_request(child, ifindex), child.parent,
                           fmt::format("make {} `{}` of", link_kind(child.kind), child.name));
  if (made) return made;
  Error& error = made.error();
  if (error.code == EOPNOTSUPP) {
    const char* module = child.kind == RailKind::kIpoib ? "ib_ipoib" : link_kind(child.kind);
    error.hint = fmt::format("`modprobe {}`: the kernel lacks it", module);
  }
  if (error.code == EBUSY) error.hint = "its parent is in a bridge or bond, or has children of another kind";
  if (error.code == EEXIST) error.hint = "choose another name: the namespace has such a netdev";
  return made;
}

// One that nobody has here. The kernel counts from 1, so large ones are free in the other namespace as well.
Result<int> free_ifindex(Netlink& route) {
  constexpr int kTries = 8;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    std::uint32_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) return fabric::sys_error(errno, "cannot get random");
    const int ifindex = static_cast<int>((1U << 29) | (random >> 4));
    if (!TRY(find_link(route, ifindex))) return ifindex;
  }
  return Error{"cannot find a free interface index", EBUSY};
}

// Under a name of its own on the node when the right one is taken there.
Result<void> make_and_move(Netlink& route, const NewChild& child) {
  NewChild here = child;
  here.netns = -1;
  const int ifindex = TRY(free_ifindex(route));
  if (TRY(find_link(route, child.name))) here.name = fmt::format("ib{:x}", ifindex);
  TRY_VOID(make(route, here, ifindex));
  LinkChange move;
  move.netns = child.netns;
  move.name = child.name;
  // That of the request that makes it is lost: ipoib_ndo_init() sets the link's own (Linux 6.12).
  move.mtu = child.mtu;
  auto moved = change_link(route, ifindex, move);
  if (!moved && !delete_link(route, ifindex)) moved.error().message += ", and it is left on the node";
  return moved;
}

}  // namespace

NetlinkMessage child_request(const NewChild& child, int ifindex) {
  RequestBuilder request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, link_header(ifindex));
  request.put(IFLA_IFNAME, std::string_view(child.name));
  request.put(IFLA_LINK, child.parent);
  if (child.netns >= 0) request.put(IFLA_NET_NS_FD, child.netns);
  if (child.mtu) request.put(IFLA_MTU, std::uint32_t{*child.mtu});
  if (child.mac) request.put(IFLA_ADDRESS, Bytes(*child.mac));
  if (child.group != 0) request.put(IFLA_GROUP, child.group);
  put_link_data(request, child);
  return request.take();
}

Result<void> create_child(Netlink& route, const NewChild& child) {
  TRY_VOID(check_name(child.name));
  if (child.kind == RailKind::kMove) return Error{"cannot make a child of kind `move`", EINVAL};
  if (child.kind == RailKind::kIpoib && child.netns >= 0) return make_and_move(route, child);
  auto made = make(route, child);
  if (made || made.error().code != EEXIST || child.netns < 0) return made;
  // Older kernels look for the name in the socket's namespace, where it may well be taken. With an index of its own the
  // child is looked for by that instead (rtnl_newlink(), Linux 6.1).
  if (!TRY(find_link(route, child.name))) return made;
  return make(route, child, TRY(free_ifindex(route)));
}

}  // namespace hook
