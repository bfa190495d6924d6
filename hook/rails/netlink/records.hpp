// Addresses, routes, rules and neighbours as the kernel's own messages: kept whole, so that what goes back in is what
// was there, attributes that this program does not know included.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/netlink/record_parts.hpp"

namespace hook {

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

}  // namespace hook
