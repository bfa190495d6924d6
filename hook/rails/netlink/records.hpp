// Addresses, routes, rules and neighbours as records of the kernel's own messages. A record has the whole message, so
// adding it again also restores attributes that rdma-hook does not know.
#pragma once

#include <linux/rtnetlink.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fabric/address.hpp"
#include "fabric/read_network.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {

// A message RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWRULE or RTM_NEWNEIGH. The payload is the message's header and attributes
// as the kernel sent them in a dump.
struct NetRecord {
  std::uint16_t type = 0;
  std::vector<std::uint8_t> payload;
  friend bool operator==(const NetRecord&, const NetRecord&) = default;
};

// Returns the record as `ip` writes it: "10.1.0.2/24", "default via 10.1.0.1 table 101", "from 10.1.0.2 lookup 101",
// "10.1.0.9 lladdr 02:00:00:00:00:01 PERMANENT". Leaves out the netdev, because a record has only its index.
std::string to_string(const NetRecord& record);

inline constexpr std::size_t kLongestPayload = 32 << 10;  // limit of a dump's message (netlink_dump(), Linux 6.12)

base::netlink::Message message_of(const NetRecord& record);

// Returns the address family of a payload, which is the first byte of the header of each type; AF_UNSPEC for an empty
// payload.
unsigned family_of(base::netlink::Bytes payload);
unsigned address_bits(unsigned family);
// Returns the routing table of a route: RTA_TABLE, or the table of the header if there is no such attribute.
unsigned table_of(const rtmsg& header, const base::netlink::Attributes& attributes);

// Returns true if the record has a known type and family, a complete header, and well-formed attributes to the last
// byte.
bool is_well_formed(const NetRecord& record);

using base::netlink::value_of;

// Returns the record for a netdev with another index and name. Removes attributes that only dumps have (cache info,
// statistics), and sets IFA_F_NODAD on IPv6 addresses. A label such as "eth0:1" gets the new name. A label without
// ":", or one that would be too long, is removed (label_for()). Keeps unknown attributes. Returns a malformed record
// without change. Pure.
NetRecord for_netdev(const NetRecord& record, int ifindex, std::string_view name);

// Functions that make records.
// ifindex: the index of the netdev.
struct AddressFlags {
  bool no_prefix_route = false;
  bool no_dad = true;       // IPv6: usable at once, without duplicate address detection
  bool host_scope = false;  // IPv4: the kernel does not choose this address as source of other traffic
};
NetRecord address_record(int ifindex, const fabric::Address& address, unsigned prefix, const AddressFlags& flags = {});
struct RouteSpec {
  int ifindex = 0;
  bool ipv6 = false;
  std::optional<fabric::Address>
      destination;  // network address without host bits; nullopt: default route, and prefix is ignored
  unsigned prefix = 0;
  std::optional<fabric::Address> gateway;  // nullopt: on-link
  std::optional<fabric::Address> source;   // preferred source address
  unsigned table = 254;
};
NetRecord route_record(const RouteSpec& route);
// Makes the rule `from ADDRESS lookup TABLE` with this priority.
NetRecord rule_record(const fabric::Address& from, unsigned table, unsigned priority);

// Returns the address of an address record; nullopt for any other record.
std::optional<fabric::Address> address_of(const NetRecord& record);
// Returns the prefix length of an address record, in bits of its family; nullopt for any other record.
std::optional<unsigned> prefix_of(const NetRecord& record);

// Convert a record to lower-case hex, for records on disk, and back. record_from_hex() returns nullopt if the text is
// no hex, the type or family is unknown, the length is wrong, or the attributes are malformed.
std::string to_hex(const NetRecord& record);
std::optional<NetRecord> record_from_hex(std::uint16_t type, std::string_view hex);

// Convert bytes to lower-case hex, and back; nullopt if the text is no hex.
std::string to_hex(const std::vector<std::uint8_t>& bytes);
std::optional<std::vector<std::uint8_t>> bytes_from_hex(std::string_view hex);

// The configuration of a netdev that can move to another namespace, for IPv4 and IPv6: permanent addresses except
// link-local ones; routes by the netdev, in all tables; rules that name the netdev or one of its addresses; permanent
// neighbours. Leaves out routes that the kernel makes itself (table local, proto kernel, cached) or learns from routers
// (proto ra, redirect).
struct NetdevRecords {
  // The records as dumped; for_netdev() prepares them for adding. The kernel accepts the records in this order:
  // addresses, routes (on-link routes first), rules, neighbours. The oldest address is first, because the order decides
  // GID indices and IPv6 source addresses.
  std::vector<NetRecord> records;
  // The configuration that cannot move, as `ip` writes it: IPv4 addresses that expire (DHCP); routes that expire, or
  // use nexthop objects (RTA_NH_ID) or several nexthops; rules that also name another netdev.
  std::vector<std::string> skipped;
};
// Reads the configuration of a netdev. Reads a table again if it changes while it is read. Errors: ENODEV, the netdev
// is gone; EINTR, a table keeps changing.
Result<NetdevRecords> read_records(Netlink& route, int ifindex, std::string_view name);

// Adds the records in their order. A record that exists already is no error. For routes the netdev must be up
// (otherwise ENETDOWN). Stops at the first error. The error names the record as `ip` writes it.
// Errors: EEXIST, another route has the same destination, metric and table. The existing route is never replaced.
Result<void> add_records(Netlink& route, const std::vector<NetRecord>& records);
// Removes the records in reverse order. A missing record is no error. Continues after an error and returns the first
// one.
Result<void> remove_records(Netlink& route, const std::vector<NetRecord>& records);

}  // namespace hook
