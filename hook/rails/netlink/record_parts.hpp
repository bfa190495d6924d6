// What the kernel's messages about addresses, routes, rules and neighbours are made of. Internal to
// hook/rails/netlink.
#pragma once

#include <linux/rtnetlink.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/netlink.hpp"

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

}  // namespace hook
