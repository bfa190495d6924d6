#include "hook/rails/netlink/records.hpp"

#include <fmt/format.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

#include "base/text.hpp"

namespace hook {
namespace {

using base::netlink::Attributes;
using base::netlink::Bytes;
using base::netlink::Message;
using fabric::netlink::to_address;

std::size_t address_size(unsigned family) {
  return family == AF_INET ? 4 : 16;
}

std::string address_text(unsigned family, Bytes bytes) {
  const auto address = to_address(family, bytes);
  return address ? fabric::to_string(*address) : "?";
}

// Returns address and prefix as `ip` prints them: without the prefix if it is /32 (IPv4) or /128 (IPv6).
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
  // IPv4 messages always have IFA_LOCAL. IPv6 messages have it only with a peer address.
  const Bytes local = attributes.has(IFA_LOCAL) ? attributes.get(IFA_LOCAL) : peer;
  std::string text = address_text(header.ifa_family, local);
  if (!std::equal(local.begin(), local.end(), peer.begin(), peer.end()))
    text += fmt::format(" peer {}", address_text(header.ifa_family, peer));
  return fmt::format("{}/{}", text, header.ifa_prefixlen);
}

// Returns the gateway of a route. RTA_VIA has a gateway of another family than the route's (RFC 5549).
std::string via_text(unsigned family, const Attributes& attributes) {
  if (attributes.has(RTA_GATEWAY)) return fmt::format(" via {}", address_text(family, attributes.get(RTA_GATEWAY)));
  const auto other = value_of<std::uint16_t>(attributes.get(RTA_VIA));
  if (!other) return {};
  return fmt::format(" via {} {}", *other == AF_INET6 ? "inet6" : "inet",
                     address_text(*other, attributes.get(RTA_VIA).subspan(sizeof *other)));
}

std::string nexthops_text(unsigned family, Bytes multipath) {
  std::string text;
  fabric::netlink::each_nexthop(multipath, [&](const rtnexthop& hop, Bytes attributes) {
    // The kernel stores the weight minus 1.
    text += fmt::format(" nexthop{} weight {}", via_text(family, Attributes(attributes)), hop.rtnh_hops + 1);
  });
  return text;
}

// Returns the protocol as `ip` prints it. RTPROT_BOOT is left out, because `ip route add` sets it.
std::string protocol_text(unsigned protocol) {
  if (protocol == RTPROT_BOOT) return {};
  if (protocol == RTPROT_STATIC) return " proto static";
  if (protocol == RTPROT_DHCP) return " proto dhcp";
  return protocol == RTPROT_KERNEL ? " proto kernel" : fmt::format(" proto {}", protocol);
}

std::string route_text(const Message& message) {
  // Words of route types, by rtm_type from RTN_UNSPEC on. `ip` does not print "unicast".
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
  if (attributes.has(RTA_PREFSRC))
    text += fmt::format(" src {}", address_text(header.rtm_family, attributes.get(RTA_PREFSRC)));
  if (const auto metric = attributes.u32(RTA_PRIORITY)) text += fmt::format(" metric {}", *metric);
  if ((header.rtm_flags & RTNH_F_ONLINK) != 0) text += " onlink";
  return text + nexthops_text(header.rtm_family, attributes.get(RTA_MULTIPATH));
}

std::string rule_text(const Message& message) {
  const auto& header = *message.header<fib_rule_hdr>();
  const Attributes attributes = message.attributes(sizeof header);
  std::string text = (header.flags & FIB_RULE_INVERT) != 0 ? "not from " : "from ";
  text += header.src_len == 0 ? "all" : prefix_text(header.family, attributes.get(FRA_SRC), header.src_len);
  if (header.dst_len != 0)
    text += fmt::format(" to {}", prefix_text(header.family, attributes.get(FRA_DST), header.dst_len));
  if (header.tos != 0) text += fmt::format(" tos {:#04x}", header.tos);
  if (const auto mark = attributes.u32(FRA_FWMARK)) text += fmt::format(" fwmark {:#x}", *mark);
  if (const auto netdev = attributes.text(FRA_IIFNAME)) text += fmt::format(" iif {}", base::printable(*netdev));
  if (const auto netdev = attributes.text(FRA_OIFNAME)) text += fmt::format(" oif {}", base::printable(*netdev));
  if (header.action == FR_ACT_TO_TBL)
    return text + fmt::format(" lookup {}", table_text(attributes.u32(FRA_TABLE).value_or(header.table)));
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
  if (!mac.empty()) text += fmt::format(" lladdr {:02x}", fmt::join(mac, ":"));
  return (header.ndm_state & NUD_PERMANENT) != 0 ? text + " PERMANENT" : text;
}

struct RecordKind {
  unsigned type;
  std::size_t header_size;
  std::string (*text)(const Message& message);
};
constexpr RecordKind kRecordKinds[] = {{RTM_NEWADDR, sizeof(ifaddrmsg), address_record_text},
                                       {RTM_NEWROUTE, sizeof(rtmsg), route_text},
                                       {RTM_NEWRULE, sizeof(fib_rule_hdr), rule_text},
                                       {RTM_NEWNEIGH, sizeof(ndmsg), neighbour_text}};

// Returns nullptr for an unknown type.
const RecordKind* kind_of(unsigned type) {
  const auto* const found = std::ranges::find(kRecordKinds, type, &RecordKind::type);
  return found == std::end(kRecordKinds) ? nullptr : found;
}

}  // namespace

Message message_of(const NetRecord& record) {
  return {record.type, record.payload};
}

unsigned family_of(Bytes payload) {
  return payload.empty() ? std::uint8_t{AF_UNSPEC} : payload[0];
}

unsigned address_bits(unsigned family) {
  return static_cast<unsigned>(address_size(family)) * 8;
}

unsigned table_of(const rtmsg& header, const Attributes& attributes) {
  // rtm_table has only 8 bits. RTA_TABLE, which the kernel adds to every dump, has the whole number.
  return attributes.u32(RTA_TABLE).value_or(header.rtm_table);
}

bool is_well_formed(const NetRecord& record) {
  const RecordKind* const kind = kind_of(record.type);
  const std::size_t size = record.payload.size();
  if (!kind || size < kind->header_size || size > kLongestPayload) return false;
  // Rules and neighbours of other families, such as multicast routing and bridges, are not restored.
  const unsigned family = family_of(record.payload);
  if (family != AF_INET && family != AF_INET6) return false;
  return each_attribute(Bytes(record.payload).subspan(kind->header_size), [](unsigned, Bytes) {});
}

std::string to_string(const NetRecord& record) {
  if (!is_well_formed(record)) return "?";
  return kind_of(record.type)->text(message_of(record));
}

}  // namespace hook
