#include "hook/rails/netlink/links.hpp"

#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/text.hpp"
#include "hook/rails/netlink/link_parts.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::netlink::Attributes;
using fabric::netlink::Bytes;

std::optional<Link> parse_link(const nlmsghdr* answer) {
  const auto message = to_message(answer);
  const auto* header = message.header<ifinfomsg>();
  if (answer->nlmsg_type != RTM_NEWLINK || header == nullptr) return std::nullopt;
  const Attributes attributes = message.attributes(sizeof *header);
  Link link;
  link.ifindex = header->ifi_index;
  link.name = attributes.text(IFLA_IFNAME).value_or("");
  link.kind = Attributes(attributes.get(IFLA_LINKINFO)).text(IFLA_INFO_KIND).value_or("");
  const Bytes mac = attributes.get(IFLA_ADDRESS);
  link.mac.assign(mac.begin(), mac.end());
  link.mtu = attributes.u32(IFLA_MTU).value_or(0);
  link.tx_queue_length = attributes.u32(IFLA_TXQLEN).value_or(0);
  link.up = (header->ifi_flags & IFF_UP) != 0;
  link.running = (header->ifi_flags & IFF_RUNNING) != 0;
  link.lower_ifindex = static_cast<int>(attributes.u32(IFLA_LINK).value_or(0));
  link.lower_is_elsewhere = attributes.has(IFLA_LINK_NETNSID);
  link.master_ifindex = static_cast<int>(attributes.u32(IFLA_MASTER).value_or(0));
  link.group = attributes.u32(IFLA_GROUP).value_or(0);
  link.bus_address = attributes.text(IFLA_PARENT_DEV_NAME).value_or("");
  link.vfs = attributes.u32(IFLA_NUM_VF).value_or(0);
  return link;
}

Result<std::optional<Link>> find(Netlink& route, RequestBuilder request, std::string_view what) {
  request.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS});
  std::optional<Link> link;
  auto asked = route.read(request.take(), what, [&](const nlmsghdr* answer) { link = parse_link(answer); });
  if (!asked && asked.error().code != ENODEV) return std::move(asked).error();
  return link;
}

}  // namespace

bool is_netdev_name(std::string_view name) {
  return !name.empty() && name.size() < IFNAMSIZ && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c != 0x7f; }) &&
         name.find_first_of("/:%") == std::string_view::npos;
}

Result<void> check_name(const std::string& name) {
  if (is_netdev_name(name)) return {};
  return Error{fmt::format("cannot use `{}` as the name of a netdev", fabric::printable(name)), EINVAL,
               "up to 15 characters without `/`, `:`, `%` and spaces"};
}

ifinfomsg link_header(int ifindex) {
  ifinfomsg header{};
  header.ifi_family = AF_UNSPEC;
  header.ifi_index = ifindex;
  return header;
}

std::string shown_link(Netlink& route, int ifindex) {
  const auto link = find_link(route, ifindex);
  if (!link || !*link) return fmt::format("netdev {}", ifindex);
  return fmt::format("`{}`", fabric::printable((*link)->name));
}

Result<void> change_named(Netlink& route, NetlinkMessage message, int ifindex, std::string_view verb) {
  auto changed = route.change(std::move(message), fmt::format("{} netdev {}", verb, ifindex));
  if (changed || changed.error().code == ENODEV) return changed;
  Error error = std::move(changed).error();
  const std::string number = fmt::format("netdev {}", ifindex);
  if (const auto at = error.message.find(number); at != std::string::npos) {
    error.message.replace(at, number.size(), shown_link(route, ifindex));
  }
  return error;
}

Result<std::optional<Link>> find_link(Netlink& route, std::string_view name) {
  if (!is_netdev_name(name)) return std::optional<Link>();
  RequestBuilder request(RTM_GETLINK, 0, link_header(0));
  request.put(IFLA_IFNAME, name);
  return find(route, std::move(request), fmt::format("look for netdev `{}`", name));
}

Result<std::optional<Link>> find_link(Netlink& route, int ifindex) {
  if (ifindex <= 0) return std::optional<Link>();
  return find(route, RequestBuilder(RTM_GETLINK, 0, link_header(ifindex)), fmt::format("look for netdev {}", ifindex));
}

Result<std::vector<Link>> all_links(Netlink& route) {
  const auto request = [] {
    RequestBuilder builder(RTM_GETLINK, NLM_F_DUMP, link_header(0));
    builder.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_SKIP_STATS});
    return builder.take();
  };
  std::vector<Link> links;
  TRY_VOID(route.dump(
      request, "list netdevs", [&] { links.clear(); },
      [&](const nlmsghdr* answer) {
        if (auto link = parse_link(answer)) links.push_back(*std::move(link));
      }));
  return links;
}

}  // namespace hook
