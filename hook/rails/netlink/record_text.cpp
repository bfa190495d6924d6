// Records as `ip` writes them.
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

#include "fabric/text.hpp"
#include "hook/rails/netlink/record_parts.hpp"

namespace hook {
namespace {

using fabric::netlink::Attributes;
using fabric::netlink::Bytes;
using fabric::netlink::Message;

std::string address_text(unsigned family, Bytes bytes) {
  const auto address = to_address(family, bytes);
  return address ? fabric::to_string(*address) : "?";
}

// A prefix of all bits goes without saying.
std::string prefix_text(unsigned family, Bytes bytes, unsigned prefix) {
  const std::string text = address_text(family, bytes);
  return prefix == address_bits(family) ? text : fmt::format("{}/{}", text, prefix);
}

std::string table_text(unsigned table) {
  if (table == RT_TABLE_DEFAULT) return "default";
  if (table == RT_TABLE_MAIN) return "main";
  return table == RT_TABLE_LOCAL ? "local" : fmt::format("{}", table);
}

std::string address_record_text(const Message& message) {
  const auto& header = *message.header<ifaddrmsg>();
  const Attributes attributes = message.attributes(sizeof header);
  const Bytes peer = attributes.get(IFA_ADDRESS);
  const Bytes local = attributes.has(IFA_LOCAL) ? attributes.get(IFA_LOCAL) : peer;
  std::string text = address_text(header.ifa_family, local);
  if (!std::equal(local.begin(), local.end(), peer.begin(), peer.end())) {
    text += fmt::format(" peer {}", address_text(header.ifa_family, peer));
  }
  return fmt::format("{}/{}", text, header.ifa_prefixlen);
}

std::string via_text(unsigned family, const Attributes& attributes) {
  if (attributes.has(RTA_GATEWAY)) return fmt::format(" via {}", address_text(family, attributes.get(RTA_GATEWAY)));
  const auto other = value_of<std::uint16_t>(attributes.get(RTA_VIA));
  if (!other) return {};
  return fmt::format(" via {} {}", *other == AF_INET6 ? "inet6" : "inet",
                     address_text(*other, attributes.get(RTA_VIA).subspan(sizeof *other)));
}

std::string nexthops_text(unsigned family, Bytes multipath) {
  std::string text;
  while (const auto hop = value_of<rtnexthop>(multipath)) {
    if (hop->rtnh_len < sizeof *hop || hop->rtnh_len > multipath.size()) break;
    const Attributes attributes(multipath.subspan(sizeof *hop, hop->rtnh_len - sizeof *hop));
    text += fmt::format(" nexthop{} weight {}", via_text(family, attributes), hop->rtnh_hops + 1);
    multipath = multipath.subspan(std::min<std::size_t>(RTNH_ALIGN(hop->rtnh_len), multipath.size()));
  }
  return text;
}

std::string protocol_text(unsigned protocol) {
  if (protocol == RTPROT_BOOT) return {};
  if (protocol == RTPROT_STATIC) return " proto static";
  if (protocol == RTPROT_DHCP) return " proto dhcp";
  return protocol == RTPROT_KERNEL ? " proto kernel" : fmt::format(" proto {}", protocol);
}

std::string route_text(const Message& message) {
  constexpr const char* kTypes[] = {"none ",      "",           "local ",       "broadcast ", "anycast ",
                                    "multicast ", "blackhole ", "unreachable ", "prohibit ",  "throw "};
  const auto& header = *message.header<rtmsg>();
  const Attributes attributes = message.attributes(sizeof header);
  const unsigned table = table_of(header, attributes);
  std::string text = header.rtm_type < std::size(kTypes) ? kTypes[header.rtm_type] : "";
  text +=
      header.rtm_dst_len == 0 ? "default" : prefix_text(header.rtm_family, attributes.get(RTA_DST), header.rtm_dst_len);
  if (header.rtm_tos != 0) text += fmt::format(" tos {:#04x}", header.rtm_tos);
  if (const auto object = attributes.u32(RTA_NH_ID)) text += fmt::format(" nhid {}", *object);
  text += via_text(header.rtm_family, attributes);
  if (table != RT_TABLE_MAIN) text += fmt::format(" table {}", table_text(table));
  text += protocol_text(header.rtm_protocol);
  if (header.rtm_scope == RT_SCOPE_LINK) text += " scope link";
  if (header.rtm_scope == RT_SCOPE_HOST) text += " scope host";
  if (attributes.has(RTA_PREFSRC)) {
    text += fmt::format(" src {}", address_text(header.rtm_family, attributes.get(RTA_PREFSRC)));
  }
  if (const auto metric = attributes.u32(RTA_PRIORITY)) text += fmt::format(" metric {}", *metric);
  if ((header.rtm_flags & RTNH_F_ONLINK) != 0) text += " onlink";
  return text + nexthops_text(header.rtm_family, attributes.get(RTA_MULTIPATH));
}

std::string rule_text(const Message& message) {
  const auto& header = *message.header<fib_rule_hdr>();
  const Attributes attributes = message.attributes(sizeof header);
  std::string text = (header.flags & FIB_RULE_INVERT) != 0 ? "not from " : "from ";
  text += header.src_len == 0 ? "all" : prefix_text(header.family, attributes.get(FRA_SRC), header.src_len);
  if (header.dst_len != 0) {
    text += fmt::format(" to {}", prefix_text(header.family, attributes.get(FRA_DST), header.dst_len));
  }
  if (header.tos != 0) text += fmt::format(" tos {:#04x}", header.tos);
  if (const auto mark = attributes.u32(FRA_FWMARK)) text += fmt::format(" fwmark {:#x}", *mark);
  if (const auto netdev = attributes.text(FRA_IIFNAME)) text += fmt::format(" iif {}", fabric::printable(*netdev));
  if (const auto netdev = attributes.text(FRA_OIFNAME)) text += fmt::format(" oif {}", fabric::printable(*netdev));
  if (header.action == FR_ACT_TO_TBL) {
    return text + fmt::format(" lookup {}", table_text(attributes.u32(FRA_TABLE).value_or(header.table)));
  }
  if (header.action == FR_ACT_GOTO) return text + fmt::format(" goto {}", attributes.u32(FRA_GOTO).value_or(0));
  if (header.action == FR_ACT_BLACKHOLE) return text + " blackhole";
  if (header.action == FR_ACT_UNREACHABLE) return text + " unreachable";
  return text + (header.action == FR_ACT_PROHIBIT ? " prohibit" : "");
}

std::string neighbour_text(const Message& message) {
  const auto& header = *message.header<ndmsg>();
  const Attributes attributes = message.attributes(sizeof header);
  std::string text = address_text(header.ndm_family, attributes.get(NDA_DST));
  const Bytes mac = attributes.get(NDA_LLADDR);
  for (std::size_t i = 0; i < mac.size(); ++i)
    text += fmt::format("{}{:02x}", i == 0 ? " lladdr " : ":", mac[i]);
  return (header.ndm_state & NUD_PERMANENT) != 0 ? text + " PERMANENT" : text;
}

}  // namespace

std::string to_string(const NetRecord& record) {
  if (!is_well_formed(record)) return "?";
  const Message message = message_of(record);
  switch (record.type) {
    case RTM_NEWADDR:
      return address_record_text(message);
    case RTM_NEWROUTE:
      return route_text(message);
    case RTM_NEWRULE:
      return rule_text(message);
    default:
      return neighbour_text(message);
  }
}

}  // namespace hook
