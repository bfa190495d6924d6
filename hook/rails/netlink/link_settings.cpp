#include "hook/rails/netlink/link_settings.hpp"

#include <linux/if.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <set>
#include <utility>

#include "fabric/text.hpp"
#include "hook/rails/netlink/record_parts.hpp"

namespace hook {
namespace {

using fabric::netlink::Attributes;
using fabric::netlink::Bytes;

// What __dev_change_flags() takes (net/core/dev.c), but for IFF_UP.
constexpr unsigned kSettableFlags = IFF_PROMISC | IFF_ALLMULTI | IFF_NOARP | IFF_DEBUG | IFF_NOTRAILERS | IFF_DYNAMIC |
                                    IFF_MULTICAST | IFF_PORTSEL | IFF_AUTOMEDIA;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

NetlinkMessage name_request(int type, int ifindex, const std::string& name) {
  RequestBuilder request(type, type == RTM_NEWLINKPROP ? NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND : 0,
                         link_header(ifindex));
  nlattr* list = request.begin(IFLA_PROP_LIST | NLA_F_NESTED);
  request.put(IFLA_ALT_IFNAME, std::string_view(name));
  request.end(list);
  return request.take();
}

NetlinkMessage number_request(int ifindex, const LinkNumber& number, std::uint32_t value) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  if (number.is_byte) {
    request.put(number.attribute, static_cast<std::uint8_t>(value));
  } else {
    request.put(number.attribute, value);
  }
  return request.take();
}

NetlinkMessage flags_request(int ifindex, unsigned change, unsigned flags) {
  ifinfomsg header = link_header(ifindex);
  header.ifi_change = change;
  header.ifi_flags = flags;
  return RequestBuilder(RTM_SETLINK, 0, header).take();
}

NetlinkMessage bytes_request(int ifindex, int attribute, Bytes bytes) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  request.put(attribute, bytes);
  return request.take();
}

NetlinkMessage no_xdp_request(int ifindex, std::uint32_t flags) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  nlattr* xdp = request.begin(IFLA_XDP | NLA_F_NESTED);
  request.put(IFLA_XDP_FD, std::int32_t{-1});
  request.put(IFLA_XDP_FLAGS, flags);
  request.end(xdp);
  return request.take();
}

}  // namespace

LinkSettings link_settings(unsigned ifi_flags, const Attributes& attributes) {
  LinkSettings settings;
  settings.flags = ifi_flags & kSettableFlags;
  settings.alias = attributes.text(IFLA_IFALIAS).value_or("");
  const Bytes broadcast = attributes.get(IFLA_BROADCAST);
  settings.broadcast.assign(broadcast.begin(), broadcast.end());
  for_each_attribute(attributes.get(IFLA_PROP_LIST), [&](unsigned type, Bytes value) {
    const std::string_view text(reinterpret_cast<const char*>(value.data()), value.size());
    if ((type & static_cast<unsigned>(NLA_TYPE_MASK)) == IFLA_ALT_IFNAME)
      settings.other_names.emplace_back(text.substr(0, text.find('\0')));
  });
  for (std::size_t i = 0; i < kLinkNumbers.size(); ++i) {
    const auto type = static_cast<unsigned>(kLinkNumbers[i].attribute);
    if (kLinkNumbers[i].is_byte) {
      settings.numbers[i] = attributes.u8(type);
    } else {
      settings.numbers[i] = attributes.u32(type);
    }
  }
  const Attributes xdp(attributes.get(IFLA_XDP));
  for (std::size_t i = 0; i < kXdpModes.size(); ++i)
    settings.xdp[i] = xdp.u32(static_cast<unsigned>(kXdpModes[i].attribute)).value_or(0);
  return settings;
}

std::vector<LinkRepair> link_removals(int ifindex, const std::string& name, const LinkSettings& before,
                                      const LinkSettings& now) {
  std::vector<LinkRepair> repairs;
  for (const std::string& other : now.other_names) {
    if (contains(before.other_names, other)) continue;
    repairs.push_back({"remove a container's alternative name of",
                       fmt::format("link property del dev {} altname NAME", name),
                       name_request(RTM_DELLINKPROP, ifindex, other)});
  }
  for (std::size_t i = 0; i < kXdpModes.size(); ++i) {
    if (now.xdp[i] == 0 || now.xdp[i] == before.xdp[i]) continue;
    repairs.push_back({fmt::format("detach a container's {} program from", kXdpModes[i].name),
                       fmt::format("link set dev {} {} off", name, kXdpModes[i].name),
                       no_xdp_request(ifindex, kXdpModes[i].flag)});
  }
  return repairs;
}

std::vector<LinkRepair> link_repairs(int ifindex, const std::string& name, const LinkSettings& before,
                                     const LinkSettings& now) {
  std::vector<LinkRepair> repairs;
  if (const unsigned changed = before.flags ^ now.flags; changed != 0) {
    repairs.push_back({"put back the flags of", fmt::format("link set dev {} promisc off allmulticast off", name),
                       flags_request(ifindex, changed, before.flags)});
  }
  if (before.alias != now.alias) {
    repairs.push_back(
        {"put back the alias of", fmt::format("link set dev {} alias TEXT", name),
         bytes_request(ifindex, IFLA_IFALIAS,
                       {reinterpret_cast<const std::uint8_t*>(before.alias.data()), before.alias.size()})});
  }
  if (!before.broadcast.empty() && before.broadcast != now.broadcast) {
    repairs.push_back({"put back the broadcast address of", fmt::format("link set dev {} broadcast ADDRESS", name),
                       bytes_request(ifindex, IFLA_BROADCAST, before.broadcast)});
  }
  const auto is_changed = [&](std::size_t i) { return before.numbers[i] && before.numbers[i] != now.numbers[i]; };
  bool is_size_changed = false;
  for (std::size_t i = 0; i < kLinkNumbers.size(); ++i) {
    const LinkNumber& number = kLinkNumbers[i];
    is_size_changed |= number.is_size && is_changed(i);
    if (!is_changed(i) && !(number.is_size && is_size_changed && before.numbers[i])) continue;
    repairs.push_back({fmt::format("put back {} of", number.name),
                       fmt::format("link set dev {} {} {}", name, number.name, *before.numbers[i]),
                       number_request(ifindex, number, *before.numbers[i])});
  }
  for (const std::string& other : before.other_names) {
    if (contains(now.other_names, other)) continue;
    repairs.push_back({"put back an alternative name of",
                       fmt::format("link property add dev {} altname {}", name, fabric::printable(other)),
                       name_request(RTM_NEWLINKPROP, ifindex, other)});
  }
  return repairs;
}

std::vector<std::string> lost_programs(const std::string& name, const LinkSettings& before, const LinkSettings& now) {
  std::vector<std::string> lost;
  for (std::size_t i = 0; i < kXdpModes.size(); ++i) {
    if (before.xdp[i] == 0 || now.xdp[i] == before.xdp[i]) continue;
    lost.push_back(
        fmt::format("`{}` has come back without the {} program that it had: attach it again", name, kXdpModes[i].name));
  }
  return lost;
}

std::vector<std::string> repair_link(Netlink& route, const std::string& name, std::vector<LinkRepair> repairs) {
  std::vector<std::string> refused;
  std::set<std::string> said;
  for (LinkRepair& repair : repairs) {
    const auto done = route.change(std::move(repair.message), fmt::format("{} `{}`", repair.what, name));
    if (done || !said.insert(repair.what).second) continue;
    refused.push_back(fmt::format("{}; `ip {}`", done.error().message, repair.remedy));
  }
  return refused;
}

}  // namespace hook
