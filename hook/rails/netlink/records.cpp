#include "hook/rails/netlink/records.hpp"

#include <fmt/format.h>
#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "base/text.hpp"
namespace hook {
namespace {

using base::netlink::Attributes;
using base::netlink::Bytes;
using base::netlink::Message;
using fabric::Address;
using fabric::netlink::bytes_in_family;
using fabric::netlink::family_of;
using fabric::netlink::to_address;

constexpr std::uint32_t kForever = 0xffffffff;  // the kernel's constant INFINITY_LIFE_TIME

NetRecord record_of(const RequestBuilder& message) {
  const Bytes payload = message.message().payload;
  return {static_cast<std::uint16_t>(message.message().type), {payload.begin(), payload.end()}};
}

// Returns the room for a copy of the attributes, with a longer label.
std::size_t room_for(const Message& message) {
  return message.payload.size() + IFNAMSIZ;
}

// Adds the attributes of one message to another.
// edit: called for each attribute; returns true if it has handled the attribute, which is then not added.
void copy_attributes(Bytes attributes, RequestBuilder& into,
                     const std::function<bool(unsigned type, Bytes value)>& edit) {
  each_attribute(attributes, [&](unsigned type, Bytes value) {
    if (!edit(type & kTypeMask, value)) into.put(type, value);
  });
}

// Returns an address label for a netdev with another name: "eth0:1" on "net1" becomes "net1:1". Returns nullopt if the
// label has no ':', because the kernel then uses the netdev's name, or if the new label would be too long.
std::optional<std::string> label_for(Bytes label, std::string_view name) {
  const std::string text(reinterpret_cast<const char*>(label.data()),
                         strnlen(reinterpret_cast<const char*>(label.data()), label.size()));
  const auto colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string renamed = std::string(name) + text.substr(colon);
  return renamed.size() < IFNAMSIZ ? std::optional(std::move(renamed)) : std::nullopt;
}

// Removes flags that only describe the state of an address. Adds IFA_F_NODAD, because the address was in use before and
// a GID needs a valid address at once.
std::uint32_t address_flags_for(std::uint32_t flags, unsigned family) {
  flags &= ~std::uint32_t{IFA_F_TENTATIVE | IFA_F_DADFAILED | IFA_F_OPTIMISTIC | IFA_F_DEPRECATED | IFA_F_SECONDARY};
  return family == AF_INET6 ? flags | IFA_F_NODAD : flags;
}

NetRecord address_for(const Message& message, int ifindex, std::string_view name) {
  ifaddrmsg header = *message.header<ifaddrmsg>();
  header.ifa_index = static_cast<std::uint32_t>(ifindex);
  const std::uint32_t flags = message.attributes(sizeof header).u32(IFA_FLAGS).value_or(header.ifa_flags);
  header.ifa_flags = static_cast<std::uint8_t>(address_flags_for(header.ifa_flags, header.ifa_family));
  RequestBuilder made(RTM_NEWADDR, 0, header, room_for(message));
  copy_attributes(message.payload.subspan(sizeof header), made, [&](unsigned type, Bytes value) {
    if (type == IFA_FLAGS) {
      made.put(IFA_FLAGS, address_flags_for(flags, header.ifa_family));
    } else if (type == IFA_LABEL) {
      if (const auto label = label_for(value, name)) made.put(IFA_LABEL, std::string_view(*label));
    } else {
      return type == IFA_CACHEINFO;
    }
    return true;
  });
  // The kernel does not choose a deprecated address as source. The kernel ignores IFA_F_DEPRECATED in a request, and
  // sets this flag if the preferred lifetime is zero.
  const ifa_cacheinfo deprecated{.ifa_prefered = 0, .ifa_valid = kForever, .cstamp = 0, .tstamp = 0};
  if ((flags & IFA_F_DEPRECATED) != 0) made.put(IFA_CACHEINFO, deprecated);
  return record_of(made);
}

NetRecord route_for(const Message& message, int ifindex) {
  rtmsg header = *message.header<rtmsg>();
  header.rtm_flags &=
      RTNH_F_ONLINK | RTNH_F_PERVASIVE;  // the remaining flags only report a state, and the kernel refuses some of them
  RequestBuilder made(RTM_NEWROUTE, 0, header, room_for(message));
  copy_attributes(message.payload.subspan(sizeof header), made, [&](unsigned type, Bytes) {
    if (type == RTA_OIF) made.put(RTA_OIF, static_cast<std::uint32_t>(ifindex));
    return type == RTA_OIF || type == RTA_CACHEINFO;
  });
  return record_of(made);
}

NetRecord rule_for(const Message& message, std::string_view name) {
  fib_rule_hdr header = *message.header<fib_rule_hdr>();
  // All other flags are state of the kernel, such as FIB_RULE_UNRESOLVED.
  header.flags &= FIB_RULE_INVERT | FIB_RULE_FIND_SADDR;
  RequestBuilder made(RTM_NEWRULE, 0, header, room_for(message));
  copy_attributes(message.payload.subspan(sizeof header), made, [&](unsigned type, Bytes value) {
    if (type != FRA_IIFNAME && type != FRA_OIFNAME) return false;
    // `iif lo` means traffic from the namespace itself, so it is valid in any namespace.
    const bool is_lo = value.size() == 3 && std::memcmp(value.data(), "lo", 3) == 0;
    if (!is_lo) made.put(type, name);
    return !is_lo;
  });
  return record_of(made);
}

NetRecord neighbour_for(const Message& message, int ifindex) {
  ndmsg header = *message.header<ndmsg>();
  header.ndm_ifindex = ifindex;
  RequestBuilder made(RTM_NEWNEIGH, 0, header, room_for(message));
  copy_attributes(message.payload.subspan(sizeof header), made, [&](unsigned type, Bytes) {
    if (type == NDA_IFINDEX) made.put(NDA_IFINDEX, static_cast<std::uint32_t>(ifindex));
    return type == NDA_IFINDEX || type == NDA_CACHEINFO || type == NDA_PROBES || type == NDA_MASTER;
  });
  return record_of(made);
}

}  // namespace

NetRecord address_record(int ifindex, const Address& address, unsigned prefix, const AddressFlags& flags) {
  const bool ipv6 = !address.is_ipv4();
  ifaddrmsg header{};
  header.ifa_family = family_of(address);
  header.ifa_prefixlen = static_cast<std::uint8_t>(prefix);
  header.ifa_scope = flags.host_scope && !ipv6 ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
  header.ifa_index = static_cast<std::uint32_t>(ifindex);
  RequestBuilder made(RTM_NEWADDR, 0, header);
  // IFA_LOCAL has the address itself. IFA_ADDRESS has the peer of a point-to-point link, or the same address.
  made.put(IFA_LOCAL, bytes_in_family(address));
  made.put(IFA_ADDRESS, bytes_in_family(address));
  std::uint32_t bits = flags.no_prefix_route ? std::uint32_t{IFA_F_NOPREFIXROUTE} : 0;
  if (flags.no_dad && ipv6) bits |= IFA_F_NODAD;
  made.put(IFA_FLAGS, bits);
  return record_of(made);
}

NetRecord route_record(const RouteSpec& route) {
  const unsigned prefix = route.destination ? route.prefix : 0;
  rtmsg header{};
  header.rtm_family = route.ipv6 ? AF_INET6 : AF_INET;
  header.rtm_dst_len = static_cast<std::uint8_t>(prefix);
  // The header has one byte for the table. Only RTA_TABLE can have a larger number.
  header.rtm_table = static_cast<std::uint8_t>(route.table <= 0xff ? route.table : unsigned{RT_TABLE_UNSPEC});
  header.rtm_protocol = RTPROT_BOOT;  // the protocol that `ip route add` uses
  header.rtm_scope = !route.ipv6 && !route.gateway ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
  header.rtm_type = RTN_UNICAST;
  RequestBuilder made(RTM_NEWROUTE, 0, header);
  if (prefix != 0) {
    const Address destination = fabric::masked(*route.destination, prefix);  // the kernel refuses host bits
    made.put(RTA_DST, bytes_in_family(destination));
  }
  if (route.gateway) made.put(RTA_GATEWAY, bytes_in_family(*route.gateway));
  made.put(RTA_OIF, static_cast<std::uint32_t>(route.ifindex));
  if (route.source) made.put(RTA_PREFSRC, bytes_in_family(*route.source));
  made.put(RTA_TABLE, route.table);
  return record_of(made);
}

NetRecord rule_record(const Address& from, unsigned table, unsigned priority) {
  fib_rule_hdr header{};
  header.family = family_of(from);
  header.src_len = static_cast<std::uint8_t>(address_bits(header.family));
  header.table = static_cast<std::uint8_t>(table <= 0xff ? table : unsigned{RT_TABLE_UNSPEC});
  header.action = FR_ACT_TO_TBL;
  RequestBuilder made(RTM_NEWRULE, 0, header);
  made.put(FRA_SRC, bytes_in_family(from));
  made.put(FRA_PRIORITY, priority);
  made.put(FRA_TABLE, table);
  return record_of(made);
}

std::optional<Address> address_of(const NetRecord& record) {
  if (record.type != RTM_NEWADDR || !is_well_formed(record)) return std::nullopt;
  const Attributes attributes = message_of(record).attributes(sizeof(ifaddrmsg));
  return to_address(family_of(record.payload), attributes.get(attributes.has(IFA_LOCAL) ? IFA_LOCAL : IFA_ADDRESS));
}

std::optional<unsigned> prefix_of(const NetRecord& record) {
  if (record.type != RTM_NEWADDR || !is_well_formed(record)) return std::nullopt;
  ifaddrmsg header{};
  std::memcpy(&header, record.payload.data(), sizeof header);
  return header.ifa_prefixlen;
}

std::string to_hex(const std::vector<std::uint8_t>& bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::optional<std::vector<std::uint8_t>> bytes_from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0 || hex.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  std::vector<std::uint8_t> bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(*base::parse_number<std::uint8_t>(hex.substr(i, 2), 16));
  return bytes;
}

std::string to_hex(const NetRecord& record) {
  return to_hex(record.payload);
}

// The record is checked again, because its text comes from a file and its message goes to the kernel as root.
std::optional<NetRecord> record_from_hex(std::uint16_t type, std::string_view hex) {
  auto payload = hex.size() <= 2 * kLongestPayload ? bytes_from_hex(hex) : std::nullopt;
  if (!payload) return std::nullopt;
  NetRecord record{type, *std::move(payload)};
  return is_well_formed(record) ? std::optional(std::move(record)) : std::nullopt;
}

NetRecord for_netdev(const NetRecord& record, int ifindex, std::string_view name) {
  if (!is_well_formed(record)) return record;
  const Message message = message_of(record);
  switch (record.type) {
    case RTM_NEWADDR:
      return address_for(message, ifindex, name);
    case RTM_NEWROUTE:
      return route_for(message, ifindex);
    case RTM_NEWRULE:
      return rule_for(message, name);
    default:
      return neighbour_for(message, ifindex);
  }
}

}  // namespace hook
