// Netdevs that are changed, moved, deleted.
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "hook/rails/netlink/link_parts.hpp"
#include "hook/rails/netlink/links.hpp"

namespace hook {

using fabric::Error;
using fabric::Result;
using fabric::netlink::Bytes;

NetlinkMessage change_request(int ifindex, const LinkChange& change) {
  ifinfomsg header = link_header(ifindex);
  if (change.up) {
    header.ifi_change = IFF_UP;
    header.ifi_flags = *change.up ? IFF_UP : 0;
  }
  RequestBuilder request(RTM_SETLINK, 0, header);
  if (change.netns) request.put(IFLA_NET_NS_FD, *change.netns);
  if (change.name) request.put(IFLA_IFNAME, std::string_view(*change.name));
  if (change.mtu) request.put(IFLA_MTU, std::uint32_t{*change.mtu});
  if (change.mac) request.put(IFLA_ADDRESS, Bytes(*change.mac));
  if (change.tx_queue_length) request.put(IFLA_TXQLEN, std::uint32_t{*change.tx_queue_length});
  if (change.group) request.put(IFLA_GROUP, *change.group);
  if (change.arp) {
    nlattr* families = request.begin(IFLA_AF_SPEC);
    nlattr* ipv4 = request.begin(AF_INET);
    nlattr* settings = request.begin(IFLA_INET_CONF);
    request.put(IPV4_DEVCONF_ARP_IGNORE, std::uint32_t{change.arp->arp_ignore});
    request.put(IPV4_DEVCONF_ARP_ANNOUNCE, std::uint32_t{change.arp->arp_announce});
    request.put(IPV4_DEVCONF_RP_FILTER, std::uint32_t{change.arp->rp_filter});
    request.end(settings);
    request.end(ipv4);
    request.end(families);
  }
  return request.take();
}

Result<void> change_link(Netlink& route, int ifindex, const LinkChange& change) {
  if (change.name) TRY_VOID(check_name(*change.name));
  if (ifindex <= 0) return Error{fmt::format("cannot change netdev {}: it has no index", ifindex), EINVAL};
  const char* verb = change.netns ? "move" : change.name ? "rename" : change.up ? "set up or down" : "change";
  auto changed = change_named(route, change_request(ifindex, change), ifindex, verb);
  if (changed || changed.error().code != EEXIST || !change.name) return changed;
  changed.error().message += fmt::format(": `{}` is taken", *change.name);
  return changed;
}

Result<void> delete_link(Netlink& route, int ifindex) {
  if (ifindex <= 0) return Error{fmt::format("cannot delete netdev {}: it has no index", ifindex), EINVAL};
  auto deleted = change_named(route, RequestBuilder(RTM_DELLINK, 0, link_header(ifindex)).take(), ifindex, "delete");
  if (!deleted && deleted.error().code == ENODEV) return {};
  return deleted;
}

Result<void> delete_link_group(Netlink& route, std::uint32_t group) {
  if (group == 0) return Error{"cannot delete all netdevs of group 0: everything is in it", EINVAL};
  RequestBuilder request(RTM_DELLINK, 0, link_header(0));
  request.put(IFLA_GROUP, group);
  auto deleted = route.change(request.take(), fmt::format("delete all netdevs of group {}", group));
  if (!deleted && deleted.error().code == ENODEV) return {};
  return deleted;
}

}  // namespace hook
