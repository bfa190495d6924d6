#include "hook/network/netlink/records.hpp"

#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::Error;
using fabric::Result;
using fabric::netlink::Attributes;
using fabric::netlink::Bytes;
using fabric::netlink::Message;
using Payload = std::vector<std::uint8_t>;

constexpr std::uint8_t kFamilies[] = {AF_INET, AF_INET6};
constexpr unsigned kTypeMask = static_cast<unsigned>(NLA_TYPE_MASK);
constexpr std::size_t kLongestPayload = 32 << 10;  // a dump has none longer (netlink_dump(), Linux 6.12)
constexpr std::size_t kIpv4Offset = 12;            // of the four bytes in the IPv6 form
constexpr std::uint32_t kIpv6Metric = 1024;        // IP6_RT_PRIO_USER: what a route without one gets
constexpr std::uint32_t kForever = 0xffffffff;     // INFINITY_LIFE_TIME

// ---- what a record is made of

std::size_t header_size(unsigned type) {
  switch (type) {
    case RTM_NEWADDR:
      return sizeof(ifaddrmsg);
    case RTM_NEWROUTE:
      return sizeof(rtmsg);
    case RTM_NEWRULE:
      return sizeof(fib_rule_hdr);
    case RTM_NEWNEIGH:
      return sizeof(ndmsg);
    default:
      return 0;
  }
}

Message view(const NetRecord& record) {
  return {record.type, record.payload};
}

// All four headers begin with it.
unsigned family_of(Bytes payload) {
  return payload.empty() ? std::uint8_t{AF_UNSPEC} : payload[0];
}

std::size_t address_size(unsigned family) {
  return family == AF_INET ? 4 : 16;
}

unsigned address_bits(unsigned family) {
  return static_cast<unsigned>(address_size(family)) * 8;
}

std::optional<Address> to_address(unsigned family, Bytes bytes) {
  if (bytes.size() != address_size(family)) return std::nullopt;
  Address address;
  if (family == AF_INET) address.bytes[10] = address.bytes[11] = 0xff;
  std::copy(bytes.begin(), bytes.end(), address.bytes.end() - static_cast<std::ptrdiff_t>(bytes.size()));
  return address;
}

Bytes bytes_of(const Address& address) {
  return Bytes(address.bytes).subspan(address.is_ipv4() ? kIpv4Offset : 0);
}

std::uint8_t family_of(const Address& address) {
  return address.is_ipv4() ? AF_INET : AF_INET6;
}

// False: they are not well-formed. type: with its flags (NLA_F_NESTED).
bool for_each_attribute(Bytes attributes, const std::function<void(unsigned type, Bytes value)>& function) {
  int rest = static_cast<int>(attributes.size());
  const auto* attribute = reinterpret_cast<const nlattr*>(attributes.data());
  for (; nla_ok(attribute, rest); attribute = nla_next(attribute, &rest)) {
    function(attribute->nla_type, Bytes(static_cast<const std::uint8_t*>(nla_data(attribute)),
                                        static_cast<std::size_t>(nla_len(attribute))));
  }
  return rest == 0;
}

bool is_well_formed(const NetRecord& record) {
  const std::size_t header = header_size(record.type);
  const std::size_t size = record.payload.size();
  if (header == 0 || size < header || size > kLongestPayload) return false;
  const unsigned family = family_of(record.payload);
  if (family != AF_INET && family != AF_INET6) return false;
  return for_each_attribute(Bytes(record.payload).subspan(header), [](unsigned, Bytes) {});
}

void append(Payload& payload, unsigned type, Bytes value) {
  const nlattr header{static_cast<std::uint16_t>(NLA_HDRLEN + value.size()), static_cast<std::uint16_t>(type)};
  const Bytes bytes = fabric::netlink::bytes_of(header);
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  payload.insert(payload.end(), value.begin(), value.end());
  payload.resize(NLA_ALIGN(payload.size()));
}

void append_u32(Payload& payload, unsigned type, std::uint32_t value) {
  append(payload, type, fabric::netlink::bytes_of(value));
}

void append_text(Payload& payload, unsigned type, const std::string& text) {
  append(payload, type, Bytes(reinterpret_cast<const std::uint8_t*>(text.c_str()), text.size() + 1));
}

template <typename Header>
Payload start(const Header& header) {
  const Bytes bytes = fabric::netlink::bytes_of(header);
  return {bytes.begin(), bytes.end()};
}

template <typename T>
std::optional<T> value_of(Bytes bytes) {
  T value{};
  if (bytes.size() < sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

unsigned table_of(const rtmsg& header, const Attributes& attributes) {
  return attributes.u32(RTA_TABLE).value_or(header.rtm_table);
}

// ---- what of a netdev's dumps is taken

enum class Verdict { kLeave, kTake, kSkip };
// filtered: the kernel says that it gave only what was asked for.
using Judge = std::function<Verdict(const Message&, bool filtered)>;

struct Sorted {
  std::vector<NetRecord> taken;
  std::vector<NetRecord> skipped;
};

// A kernel without IPv6, or without rules, has none of them.
bool is_missing_facility(int code) {
  return code == EOPNOTSUPP || code == EAFNOSUPPORT;
}

Result<Sorted> collect(Netlink& route, const std::function<NetlinkMessage()>& request, std::uint16_t type,
                       std::string_view what, const Judge& judge) {
  Sorted sorted;
  const auto handler = [&](const nlmsghdr* answer) {
    if (answer->nlmsg_type != type) return;
    NetRecord record{type, {}};
    const Message message = to_message(answer);
    const Verdict verdict = judge(message, (answer->nlmsg_flags & NLM_F_DUMP_FILTERED) != 0);
    if (verdict == Verdict::kLeave) return;
    record.payload.assign(message.payload.begin(), message.payload.end());
    if (!is_well_formed(record)) return;
    (verdict == Verdict::kTake ? sorted.taken : sorted.skipped).push_back(std::move(record));
  };
  auto done = route.dump(
      request, what, [&] { sorted = {}; }, handler);
  if (!done && !is_missing_facility(done.error().code)) return std::move(done).error();
  return sorted;
}

Verdict judge_address(const Message& message, unsigned family, int ifindex) {
  const auto* header = message.header<ifaddrmsg>();
  if (!header || header->ifa_family != family || static_cast<int>(header->ifa_index) != ifindex) return Verdict::kLeave;
  const Attributes attributes = message.attributes(sizeof *header);
  const auto address = to_address(family, attributes.get(IFA_ADDRESS));
  if (!address || address->is_link_local()) return Verdict::kLeave;
  const std::uint32_t flags = attributes.u32(IFA_FLAGS).value_or(header->ifa_flags);
  if ((flags & IFA_F_PERMANENT) != 0) return Verdict::kTake;
  // IPv6 ones that expire come from router advertisements and come again.
  return family == AF_INET ? Verdict::kSkip : Verdict::kLeave;
}

bool has_nexthop_by(Bytes multipath, int ifindex) {
  while (const auto hop = value_of<rtnexthop>(multipath)) {
    if (hop->rtnh_len < sizeof *hop || hop->rtnh_len > multipath.size()) return false;
    if (hop->rtnh_ifindex == ifindex) return true;
    multipath = multipath.subspan(std::min<std::size_t>(RTNH_ALIGN(hop->rtnh_len), multipath.size()));
  }
  return false;
}

Verdict judge_route(const Message& message, unsigned family, int ifindex, bool filtered) {
  const auto* header = message.header<rtmsg>();
  if (!header || header->rtm_family != family || (header->rtm_flags & RTM_F_CLONED) != 0) return Verdict::kLeave;
  const Attributes attributes = message.attributes(sizeof *header);
  const auto from = header->rtm_protocol;
  const bool own = from != RTPROT_KERNEL && from != RTPROT_REDIRECT && from != RTPROT_RA;
  if (!own || table_of(*header, attributes) == RT_TABLE_LOCAL) return Verdict::kLeave;
  const auto oif = attributes.u32(RTA_OIF);
  if (oif ? static_cast<int>(*oif) == ifindex : has_nexthop_by(attributes.get(RTA_MULTIPATH), ifindex)) {
    const auto cache = value_of<rta_cacheinfo>(attributes.get(RTA_CACHEINFO));
    const bool expires = cache && cache->rta_expires != 0;
    return attributes.has(RTA_NH_ID) || !oif || expires ? Verdict::kSkip : Verdict::kTake;
  }
  // With net.ipv4.nexthop_compat_mode=0 only the object's number is there: the kernel knows whether it is by this
  // netdev.
  return filtered && !oif && attributes.has(RTA_NH_ID) ? Verdict::kSkip : Verdict::kLeave;
}

bool is_one_of(unsigned family, Bytes address, unsigned prefix, const std::set<Address>& addresses) {
  const auto wanted = to_address(family, address);
  return wanted && prefix == address_bits(family) && addresses.contains(*wanted);
}

Verdict judge_rule(const Message& message, const std::string& name, const std::set<Address>& addresses) {
  const auto* header = message.header<fib_rule_hdr>();
  if (!header || (header->family != AF_INET && header->family != AF_INET6)) return Verdict::kLeave;
  const Attributes attributes = message.attributes(sizeof *header);
  bool ours = is_one_of(header->family, attributes.get(FRA_SRC), header->src_len, addresses) ||
              is_one_of(header->family, attributes.get(FRA_DST), header->dst_len, addresses);
  bool others = false;
  for (const unsigned type : {FRA_IIFNAME, FRA_OIFNAME}) {
    const auto netdev = attributes.text(type);
    ours |= netdev == name;
    others |= netdev && netdev != name && netdev != "lo";
  }
  if (!ours) return Verdict::kLeave;
  return others ? Verdict::kSkip : Verdict::kTake;
}

Verdict judge_neighbour(const Message& message, unsigned family, int ifindex) {
  const auto* header = message.header<ndmsg>();
  const bool ours = header && header->ndm_family == family && header->ndm_ifindex == ifindex;
  const bool permanent = ours && (header->ndm_state & NUD_PERMANENT) != 0 && (header->ndm_flags & NTF_PROXY) == 0;
  return permanent ? Verdict::kTake : Verdict::kLeave;
}

Result<Sorted> read_addresses(Netlink& route, std::uint8_t family, int ifindex) {
  ifaddrmsg header{};
  header.ifa_family = family;
  header.ifa_index = static_cast<std::uint32_t>(ifindex);  // heeded by strict checking only
  const auto request = [&] { return RequestBuilder(RTM_GETADDR, NLM_F_DUMP, header).take(); };
  auto found = TRY(collect(route, request, RTM_NEWADDR, fmt::format("read the addresses of netdev {}", ifindex),
                           [&](const Message& message, bool) { return judge_address(message, family, ifindex); }));
  // Of one scope the kernel has the newest IPv6 address first (ipv6_link_dev_addr()), the oldest IPv4 one.
  if (family == AF_INET6) std::reverse(found.taken.begin(), found.taken.end());
  return found;
}

Result<Sorted> read_routes(Netlink& route, std::uint8_t family, int ifindex, const Judge& judge) {
  rtmsg header{};
  header.rtm_family = family;
  const auto request = [&] {
    RequestBuilder builder(RTM_GETROUTE, NLM_F_DUMP, header);
    builder.put(RTA_OIF, ifindex);  // heeded by strict checking only
    return builder.take();
  };
  return collect(route, request, RTM_NEWROUTE, fmt::format("read the routes of netdev {}", ifindex), judge);
}

Result<Sorted> read_rules(Netlink& route, const std::string& name, const std::set<Address>& addresses) {
  const auto request = [] { return RequestBuilder(RTM_GETRULE, NLM_F_DUMP, fib_rule_hdr{}).take(); };
  return collect(route, request, RTM_NEWRULE, "read the routing rules",
                 [&](const Message& message, bool) { return judge_rule(message, name, addresses); });
}

Result<Sorted> read_neighbours(Netlink& route, std::uint8_t family, int ifindex) {
  ndmsg header{};
  header.ndm_family = family;
  const auto request = [&] {
    RequestBuilder builder(RTM_GETNEIGH, NLM_F_DUMP, header);
    builder.put(NDA_IFINDEX, ifindex);
    return builder.take();
  };
  return collect(route, request, RTM_NEWNEIGH, fmt::format("read the neighbours of netdev {}", ifindex),
                 [&](const Message& message, bool) { return judge_neighbour(message, family, ifindex); });
}

bool is_on_link(const NetRecord& record) {
  const Attributes attributes = view(record).attributes(sizeof(rtmsg));
  return !attributes.has(RTA_GATEWAY) && !attributes.has(RTA_VIA);
}

void add(NetdevRecords& into, Sorted from) {
  std::move(from.taken.begin(), from.taken.end(), std::back_inserter(into.records));
  for (const NetRecord& record : from.skipped)
    into.skipped.push_back(to_string(record));
}

// ---- for another netdev

// Writes the attributes of one payload behind another. edit: true for one that it has dealt with.
void copy_attributes(Bytes attributes, Payload& into, const std::function<bool(unsigned type, Bytes value)>& edit) {
  for_each_attribute(attributes, [&](unsigned type, Bytes value) {
    if (!edit(type & kTypeMask, value)) append(into, type, value);
  });
}

// "eth0:1" for "net1" is "net1:1". nullopt: there is no label to keep, the kernel makes it the name.
std::optional<std::string> label_for(Bytes label, std::string_view name) {
  const std::string text(reinterpret_cast<const char*>(label.data()),
                         strnlen(reinterpret_cast<const char*>(label.data()), label.size()));
  const auto colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string renamed = std::string(name) + text.substr(colon);
  return renamed.size() < IFNAMSIZ ? std::optional(std::move(renamed)) : std::nullopt;
}

std::uint32_t address_flags_for(std::uint32_t flags, unsigned family) {
  flags &= ~std::uint32_t{IFA_F_TENTATIVE | IFA_F_DADFAILED | IFA_F_OPTIMISTIC | IFA_F_DEPRECATED | IFA_F_SECONDARY};
  return family == AF_INET6 ? flags | IFA_F_NODAD : flags;
}

Payload address_for(const Message& message, int ifindex, std::string_view name) {
  ifaddrmsg header = *message.header<ifaddrmsg>();
  header.ifa_index = static_cast<std::uint32_t>(ifindex);
  const std::uint32_t flags = message.attributes(sizeof header).u32(IFA_FLAGS).value_or(header.ifa_flags);
  header.ifa_flags = static_cast<std::uint8_t>(address_flags_for(header.ifa_flags, header.ifa_family));
  Payload payload = start(header);
  copy_attributes(message.payload.subspan(sizeof header), payload, [&](unsigned type, Bytes value) {
    if (type == IFA_FLAGS) {
      append_u32(payload, IFA_FLAGS, address_flags_for(flags, header.ifa_family));
    } else if (type == IFA_LABEL) {
      if (const auto label = label_for(value, name)) append_text(payload, IFA_LABEL, *label);
    } else {
      return type == IFA_CACHEINFO;
    }
    return true;
  });
  // Deprecated by whoever set it up, so as to be nobody's source address: there is no other way to say so.
  const ifa_cacheinfo deprecated{.ifa_prefered = 0, .ifa_valid = kForever, .cstamp = 0, .tstamp = 0};
  if ((flags & IFA_F_DEPRECATED) != 0) append(payload, IFA_CACHEINFO, fabric::netlink::bytes_of(deprecated));
  return payload;
}

Payload route_for(const Message& message, int ifindex) {
  rtmsg header = *message.header<rtmsg>();
  header.rtm_flags &= RTNH_F_ONLINK | RTNH_F_PERVASIVE;  // the rest is state, and some of it is refused
  Payload payload = start(header);
  copy_attributes(message.payload.subspan(sizeof header), payload, [&](unsigned type, Bytes) {
    if (type == RTA_OIF) append_u32(payload, RTA_OIF, static_cast<std::uint32_t>(ifindex));
    return type == RTA_OIF || type == RTA_CACHEINFO;
  });
  return payload;
}

Payload rule_for(const Message& message, std::string_view name) {
  fib_rule_hdr header = *message.header<fib_rule_hdr>();
  header.flags &= FIB_RULE_INVERT | FIB_RULE_FIND_SADDR;
  Payload payload = start(header);
  copy_attributes(message.payload.subspan(sizeof header), payload, [&](unsigned type, Bytes value) {
    if (type != FRA_IIFNAME && type != FRA_OIFNAME) return false;
    // `iif lo` is the namespace itself, whichever it is.
    const bool is_lo = value.size() == 3 && std::memcmp(value.data(), "lo", 3) == 0;
    if (!is_lo) append_text(payload, type, std::string(name));
    return !is_lo;
  });
  return payload;
}

Payload neighbour_for(const Message& message, int ifindex) {
  ndmsg header = *message.header<ndmsg>();
  header.ndm_ifindex = ifindex;
  Payload payload = start(header);
  copy_attributes(message.payload.subspan(sizeof header), payload, [&](unsigned type, Bytes) {
    if (type == NDA_IFINDEX) append_u32(payload, NDA_IFINDEX, static_cast<std::uint32_t>(ifindex));
    return type == NDA_IFINDEX || type == NDA_CACHEINFO || type == NDA_PROBES || type == NDA_MASTER;
  });
  return payload;
}

// ---- as `ip` writes them

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

// ---- adding and removing

const char* kind_of(const NetRecord& record) {
  switch (record.type) {
    case RTM_NEWADDR:
      return "address";
    case RTM_NEWROUTE:
      return "route";
    case RTM_NEWRULE:
      return "rule";
    default:
      return "neighbour";
  }
}

struct RouteKey {
  Payload destination;
  unsigned prefix, tos, table, metric;
  Payload gateway;
  std::uint32_t oif;
  friend bool operator==(const RouteKey&, const RouteKey&) = default;
};

RouteKey key_of(const Message& message) {
  const auto& header = *message.header<rtmsg>();
  const Attributes attributes = message.attributes(sizeof header);
  const auto copy = [&](unsigned type) {
    const Bytes bytes = attributes.get(type);
    return Payload(bytes.begin(), bytes.end());
  };
  unsigned metric = attributes.u32(RTA_PRIORITY).value_or(0);
  if (header.rtm_family == AF_INET6 && metric == 0) metric = kIpv6Metric;
  return {.destination = header.rtm_dst_len == 0 ? Payload() : copy(RTA_DST),
          .prefix = header.rtm_dst_len,
          .tos = header.rtm_tos,
          .table = table_of(header, attributes),
          .metric = metric,
          .gateway = copy(RTA_GATEWAY),
          .oif = attributes.u32(RTA_OIF).value_or(0)};
}

// The kernel says EEXIST for any route of the same destination, table and metric.
Result<bool> is_there(Netlink& route, const NetRecord& record) {
  const RouteKey wanted = key_of(view(record));
  const auto family = static_cast<std::uint8_t>(family_of(record.payload));
  const auto same = TRY(read_routes(route, family, static_cast<int>(wanted.oif), [&](const Message& message, bool) {
    const auto* header = message.header<rtmsg>();
    return header && header->rtm_family == family && key_of(message) == wanted ? Verdict::kTake : Verdict::kLeave;
  }));
  return !same.taken.empty();
}

Result<void> check_record(const NetRecord& record, const char* verb) {
  if (is_well_formed(record)) return {};
  return Error{fmt::format("cannot {} a network record of type {}: it is malformed", verb, record.type), EINVAL};
}

Result<void> add_record(Netlink& route, const NetRecord& record) {
  TRY_VOID(check_record(record, "add"));
  // A neighbour that the netdev has learned by itself gives way.
  const int flags = NLM_F_CREATE | (record.type == RTM_NEWNEIGH ? NLM_F_REPLACE : NLM_F_EXCL);
  const std::string what = fmt::format("add {} `{}`", kind_of(record), to_string(record));
  auto added = route.change(RequestBuilder(record.type, flags, Bytes(record.payload)).take(), what);
  if (added || added.error().code != EEXIST) return added;
  if (record.type != RTM_NEWROUTE || TRY(is_there(route, record))) return {};
  return Error{
      fmt::format("cannot {}: another route to the same destination is there", what), EEXIST,
      "`ip route show table all` shows it: give the netdev another subnet, or its routes a table of their own"};
}

Result<void> remove_record(Netlink& route, const NetRecord& record) {
  TRY_VOID(check_record(record, "remove"));
  // RTM_DELADDR is RTM_NEWADDR + 1, and so on.
  auto removed = route.change(RequestBuilder(record.type + 1, 0, Bytes(record.payload)).take(),
                              fmt::format("remove {} `{}`", kind_of(record), to_string(record)));
  if (removed) return removed;
  const int code = removed.error().code;
  const bool gone = code == ENOENT || code == ESRCH || code == EADDRNOTAVAIL || code == ENODEV;
  return gone ? Result<void>() : std::move(removed);
}

constexpr std::string_view kDigits = "0123456789abcdef";

std::optional<unsigned> digit_of(char digit) {
  const auto found = kDigits.find(digit);
  return found == std::string_view::npos ? std::nullopt : std::optional(static_cast<unsigned>(found));
}

}  // namespace

Result<NetdevRecords> read_records(Netlink& route, int ifindex, std::string_view name) {
  NetdevRecords found;
  for (const std::uint8_t family : kFamilies)
    add(found, TRY(read_addresses(route, family, ifindex)));
  std::set<Address> addresses;
  for (const NetRecord& record : found.records)
    if (const auto address = address_of(record)) addresses.insert(*address);
  Sorted routes;
  for (const std::uint8_t family : kFamilies) {
    auto some = TRY(read_routes(route, family, ifindex, [&](const Message& message, bool filtered) {
      return judge_route(message, family, ifindex, filtered);
    }));
    std::move(some.taken.begin(), some.taken.end(), std::back_inserter(routes.taken));
    std::move(some.skipped.begin(), some.skipped.end(), std::back_inserter(routes.skipped));
  }
  std::stable_partition(routes.taken.begin(), routes.taken.end(), is_on_link);
  add(found, std::move(routes));
  add(found, TRY(read_rules(route, std::string(name), addresses)));
  for (const std::uint8_t family : kFamilies)
    add(found, TRY(read_neighbours(route, family, ifindex)));
  return found;
}

NetRecord for_netdev(const NetRecord& record, int ifindex, std::string_view name) {
  if (!is_well_formed(record)) return record;
  const Message message = view(record);
  switch (record.type) {
    case RTM_NEWADDR:
      return {record.type, address_for(message, ifindex, name)};
    case RTM_NEWROUTE:
      return {record.type, route_for(message, ifindex)};
    case RTM_NEWRULE:
      return {record.type, rule_for(message, name)};
    default:
      return {record.type, neighbour_for(message, ifindex)};
  }
}

Result<void> add_records(Netlink& route, const std::vector<NetRecord>& records) {
  for (const NetRecord& record : records)
    TRY_VOID(add_record(route, record));
  return {};
}

Result<void> remove_records(Netlink& route, const std::vector<NetRecord>& records) {
  Result<void> first;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    auto removed = remove_record(route, *record);
    if (!removed && first) first = std::move(removed);
  }
  return first;
}

std::string to_string(const NetRecord& record) {
  if (!is_well_formed(record)) return "?";
  const Message message = view(record);
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

NetRecord address_record(int ifindex, const Address& address, unsigned prefix, const AddressFlags& flags) {
  const bool ipv6 = !address.is_ipv4();
  ifaddrmsg header{};
  header.ifa_family = family_of(address);
  header.ifa_prefixlen = static_cast<std::uint8_t>(prefix);
  header.ifa_scope = flags.host_scope && !ipv6 ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
  header.ifa_index = static_cast<std::uint32_t>(ifindex);
  Payload payload = start(header);
  append(payload, IFA_LOCAL, bytes_of(address));
  append(payload, IFA_ADDRESS, bytes_of(address));
  std::uint32_t bits = flags.no_prefix_route ? std::uint32_t{IFA_F_NOPREFIXROUTE} : 0;
  if (flags.no_dad && ipv6) bits |= IFA_F_NODAD;
  append_u32(payload, IFA_FLAGS, bits);
  return {RTM_NEWADDR, std::move(payload)};
}

NetRecord route_record(const RouteSpec& route) {
  const unsigned prefix = route.destination ? route.prefix : 0;
  rtmsg header{};
  header.rtm_family = route.ipv6 ? AF_INET6 : AF_INET;
  header.rtm_dst_len = static_cast<std::uint8_t>(prefix);
  header.rtm_table = static_cast<std::uint8_t>(route.table <= 0xff ? route.table : unsigned{RT_TABLE_UNSPEC});
  header.rtm_protocol = RTPROT_BOOT;  // as `ip route add`
  header.rtm_scope = !route.ipv6 && !route.gateway ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
  header.rtm_type = RTN_UNICAST;
  Payload payload = start(header);
  if (prefix != 0) {
    const Bytes all = bytes_of(*route.destination);
    Payload destination(all.begin(), all.end());
    for (std::size_t bit = prefix; bit < destination.size() * 8; ++bit)  // the kernel refuses host bits
      destination[bit / 8] &= static_cast<std::uint8_t>(~(0x80U >> (bit % 8)));
    append(payload, RTA_DST, destination);
  }
  if (route.gateway) append(payload, RTA_GATEWAY, bytes_of(*route.gateway));
  append_u32(payload, RTA_OIF, static_cast<std::uint32_t>(route.ifindex));
  if (route.source) append(payload, RTA_PREFSRC, bytes_of(*route.source));
  append_u32(payload, RTA_TABLE, route.table);
  return {RTM_NEWROUTE, std::move(payload)};
}

NetRecord rule_record(const Address& from, unsigned table, unsigned priority) {
  fib_rule_hdr header{};
  header.family = family_of(from);
  header.src_len = static_cast<std::uint8_t>(address_bits(header.family));
  header.table = static_cast<std::uint8_t>(table <= 0xff ? table : unsigned{RT_TABLE_UNSPEC});
  header.action = FR_ACT_TO_TBL;
  Payload payload = start(header);
  append(payload, FRA_SRC, bytes_of(from));
  append_u32(payload, FRA_PRIORITY, priority);
  append_u32(payload, FRA_TABLE, table);
  return {RTM_NEWRULE, std::move(payload)};
}

std::optional<Address> address_of(const NetRecord& record) {
  if (record.type != RTM_NEWADDR || !is_well_formed(record)) return std::nullopt;
  const Attributes attributes = view(record).attributes(sizeof(ifaddrmsg));
  return to_address(family_of(record.payload), attributes.get(attributes.has(IFA_LOCAL) ? IFA_LOCAL : IFA_ADDRESS));
}

std::string to_hex(const NetRecord& record) {
  std::string text;
  text.reserve(record.payload.size() * 2);
  for (const std::uint8_t byte : record.payload) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<NetRecord> record_from_hex(std::uint16_t type, std::string_view hex) {
  if (hex.size() % 2 != 0 || hex.size() > 2 * kLongestPayload) return std::nullopt;
  NetRecord record{type, {}};
  record.payload.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const auto high = digit_of(hex[i]);
    const auto low = digit_of(hex[i + 1]);
    if (!high || !low) return std::nullopt;
    record.payload.push_back(static_cast<std::uint8_t>(*high << 4 | *low));
  }
  return is_well_formed(record) ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace hook
