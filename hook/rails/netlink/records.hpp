// What the kernel's messages about addresses, routes, rules and neighbours are made of. Internal to
// hook/rails/netlink.
#pragma once

#include <linux/rtnetlink.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/netlink.hpp"
#include "hook/base/result.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {

// RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWRULE, RTM_NEWNEIGH with its payload (header and attributes) as dumped.
struct NetRecord {
  std::uint16_t type = 0;
  std::vector<std::uint8_t> payload;
  friend bool operator==(const NetRecord&, const NetRecord&) = default;
};

// "10.1.0.2/24", "default via 10.1.0.1 table 101", "from 10.1.0.2 lookup 101", "10.1.0.9 lladdr 02:00:00:00:00:01
// PERMANENT": without the netdev, of which a record has only the index.
std::string to_string(const NetRecord& record);

using Payload = std::vector<std::uint8_t>;

inline constexpr std::size_t kLongestPayload = 32 << 10;  // a dump has none longer (netlink_dump(), Linux 6.12)

fabric::netlink::Message message_of(const NetRecord& record);

// The address family, with which all four headers begin; AF_UNSPEC for an empty payload.
unsigned family_of(fabric::netlink::Bytes payload);
std::uint8_t family_of(const fabric::Address& address);
unsigned address_bits(unsigned family);
// Four or sixteen of the address's own.
fabric::netlink::Bytes bytes_of(const fabric::Address& address);
unsigned table_of(const rtmsg& header, const fabric::netlink::Attributes& attributes);

// False: they are not well-formed. type: with its flags (NLA_F_NESTED).
bool for_each_attribute(fabric::netlink::Bytes attributes,
                        const std::function<void(unsigned type, fabric::netlink::Bytes value)>& function);
// Whether the record is of a known type and family, has its header, and attributes well-formed to the last byte.
bool is_well_formed(const NetRecord& record);

void append_attribute(Payload& payload, unsigned type, fabric::netlink::Bytes value);
void append_u32(Payload& payload, unsigned type, std::uint32_t value);
// With a terminating zero.
void append_text(Payload& payload, unsigned type, const std::string& text);

template <typename Header>
Payload start_payload(const Header& header) {
  const fabric::netlink::Bytes bytes = fabric::netlink::bytes_of(header);
  return {bytes.begin(), bytes.end()};
}

using fabric::netlink::value_of;

// Addresses, routes, rules and neighbours as the kernel's own messages: kept whole, so that what goes back in is what
// was there, attributes that this program does not know included.

// Pure: the record for a netdev of another index and name. Attributes that only a dump has (cache info, statistics) are
// left out, nodad is set on IPv6 addresses. A label follows the name, or goes if that gets too long. Attributes that
// this program does not know stay. One that is no well-formed record comes back as it is.
NetRecord for_netdev(const NetRecord& record, int ifindex, std::string_view name);

// Makers of records. ifindex: the netdev's.
struct AddressFlags {
  bool no_prefix_route = false;
  bool no_dad = true;       // IPv6: at once valid
  bool host_scope = false;  // IPv4: never chosen as source of others' traffic
};
NetRecord address_record(int ifindex, const fabric::Address& address, unsigned prefix, const AddressFlags& flags = {});
// destination: nullopt: default, whatever the prefix; its host bits are cleared. gateway: nullopt: on-link.
struct RouteSpec {
  int ifindex = 0;
  bool ipv6 = false;
  std::optional<fabric::Address> destination;
  unsigned prefix = 0;
  std::optional<fabric::Address> gateway;
  std::optional<fabric::Address> source;  // preferred source address
  unsigned table = 254;
};
NetRecord route_record(const RouteSpec& route);
// from ADDRESS lookup table, with this priority.
NetRecord rule_record(const fabric::Address& from, unsigned table, unsigned priority);

// nullopt: it is no address record.
std::optional<fabric::Address> address_of(const NetRecord& record);
// Its prefix length, in bits of its own family; nullopt: no address record.
std::optional<unsigned> prefix_of(const NetRecord& record);

// Lower-case hex, for records on disk; nullopt: not hex, of no known type or family, too short or too long, or with
// attributes that are not well-formed to the last byte.
std::string to_hex(const NetRecord& record);
std::optional<NetRecord> record_from_hex(std::uint16_t type, std::string_view hex);

// Bytes as lower-case hex, and back; nullopt: the text is not hex.
std::string to_hex(const std::vector<std::uint8_t>& bytes);
std::optional<std::vector<std::uint8_t>> bytes_from_hex(std::string_view hex);

// Records of a live netdev: reading, adding, removing them.

// What is configured on this netdev and can be put elsewhere, both families: permanent addresses without link-local
// ones, routes of all tables that leave by it but not those that the kernel makes by itself (table local, proto
// kernel, cached) nor what routers told it (proto ra, redirect), rules that name it or one of its addresses, permanent
// neighbours. Left out and said in `skipped`, as `ip` would write them: IPv4 addresses that expire (DHCP), routes that
// expire, that go by nexthop objects (RTA_NH_ID) or by several nexthops, and rules that name another netdev as well.
struct NetdevRecords {
  // Addresses (oldest first: the order makes GID indices and IPv6 source addresses), routes (on-link ones first),
  // rules, neighbours: each wants only what is before it. They are as dumped: for_netdev() makes them fit to go back
  // in.
  std::vector<NetRecord> records;
  std::vector<std::string> skipped;
};
// Asks again when a table changes meanwhile. Errors: the netdev is gone (ENODEV), a table that keeps changing (EINTR).
Result<NetdevRecords> read_records(Netlink& route, int ifindex, std::string_view name);

// Adds each in this order; one that is there already is success. Others' routes are never replaced: a route whose
// destination, metric and table are taken by another one is an error (EEXIST). The netdev has to be up for routes
// (ENETDOWN). Stops at the first error, which names the record as `ip` would write it.
Result<void> add_records(Netlink& route, const std::vector<NetRecord>& records);
// Removes each, the last one first; one that is not there is success. Goes on after an error and returns the first.
Result<void> remove_records(Netlink& route, const std::vector<NetRecord>& records);

}  // namespace hook
