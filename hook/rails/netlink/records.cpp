#include "hook/rails/netlink/records.hpp"

#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "hook/rails/netlink/record_parts.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::netlink::Attributes;
using fabric::netlink::Bytes;

constexpr std::string_view kDigits = "0123456789abcdef";

std::optional<unsigned> digit_of(char digit) {
  const auto found = kDigits.find(digit);
  return found == std::string_view::npos ? std::nullopt : std::optional(static_cast<unsigned>(found));
}

}  // namespace

NetRecord address_record(int ifindex, const Address& address, unsigned prefix, const AddressFlags& flags) {
  const bool ipv6 = !address.is_ipv4();
  ifaddrmsg header{};
  header.ifa_family = family_of(address);
  header.ifa_prefixlen = static_cast<std::uint8_t>(prefix);
  header.ifa_scope = flags.host_scope && !ipv6 ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
  header.ifa_index = static_cast<std::uint32_t>(ifindex);
  Payload payload = start_payload(header);
  append_attribute(payload, IFA_LOCAL, bytes_of(address));
  append_attribute(payload, IFA_ADDRESS, bytes_of(address));
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
  Payload payload = start_payload(header);
  if (prefix != 0) {
    const Bytes all = bytes_of(*route.destination);
    Payload destination(all.begin(), all.end());
    for (std::size_t bit = prefix; bit < destination.size() * 8; ++bit)  // the kernel refuses host bits
      destination[bit / 8] &= static_cast<std::uint8_t>(~(0x80U >> (bit % 8)));
    append_attribute(payload, RTA_DST, destination);
  }
  if (route.gateway) append_attribute(payload, RTA_GATEWAY, bytes_of(*route.gateway));
  append_u32(payload, RTA_OIF, static_cast<std::uint32_t>(route.ifindex));
  if (route.source) append_attribute(payload, RTA_PREFSRC, bytes_of(*route.source));
  append_u32(payload, RTA_TABLE, route.table);
  return {RTM_NEWROUTE, std::move(payload)};
}

NetRecord rule_record(const Address& from, unsigned table, unsigned priority) {
  fib_rule_hdr header{};
  header.family = family_of(from);
  header.src_len = static_cast<std::uint8_t>(address_bits(header.family));
  header.table = static_cast<std::uint8_t>(table <= 0xff ? table : unsigned{RT_TABLE_UNSPEC});
  header.action = FR_ACT_TO_TBL;
  Payload payload = start_payload(header);
  append_attribute(payload, FRA_SRC, bytes_of(from));
  append_u32(payload, FRA_PRIORITY, priority);
  append_u32(payload, FRA_TABLE, table);
  return {RTM_NEWRULE, std::move(payload)};
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
