// Questions for the holder of an address, and what answers say, as bytes over Ethernet: ARP (RFC 826; RFC 5227 for
// probes), neighbour solicitations and advertisements (RFC 4861, 4.3, 4.4, 7.1; RFC 4862, 5.4 for duplicates).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fabric/address.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// What a frame says of an address, in ARP as in neighbour discovery.
struct AddressClaim {
  fabric::Address address;
  MacAddress mac{};        // whose it is, as the frame says
  bool tentative = false;  // its sender does not have it yet: it asks, as we do, whether it may take it
  friend bool operator==(const AddressClaim&, const AddressClaim&) = default;
};

// Who has target, broadcast by mac. source: our address; nullopt or not IPv4: none, which makes it the probe of RFC
// 5227, from which no host learns an address. target: IPv4.
std::vector<std::uint8_t> arp_request(const MacAddress& mac, const std::optional<fabric::Address>& source,
                                      const fabric::Address& target);

// A whole Ethernet frame as a packet socket gives it, padding included. nullopt: no ARP for IPv4 over Ethernet, too
// short, another operation than request and reply, tagged (another network's), or without a sender.
std::optional<AddressClaim> parse_arp(std::span<const std::uint8_t> frame);

// ff02::1:ffXX:XXXX, to which every host with such an address listens.
fabric::Address solicited_node(const fabric::Address& address);
// 33:33 and the last four bytes (RFC 2464, 7). group: an IPv6 multicast address.
MacAddress multicast_mac(const fabric::Address& group);

// The sum over pseudo-header and message (RFC 4443, 2.3), host byte order: of a message whose field is zero what
// belongs there, of a good message zero.
std::uint16_t icmpv6_checksum(const fabric::Address& source, const fabric::Address& destination,
                              std::span<const std::uint8_t> message);

// Who has target, to its solicited-node group. source: our address, answers come to it; nullopt or IPv4: none, and
// answers come to all nodes, as for duplicate address detection. target: IPv6.
std::vector<std::uint8_t> neighbour_solicitation(const MacAddress& mac, const std::optional<fabric::Address>& source,
                                                 const fabric::Address& target);

// A whole Ethernet frame as a packet socket gives it, padding included. nullopt: no solicitation or advertisement, or
// one that RFC 4861, 7.1 discards (hop limit, checksum, lengths, a multicast target); tagged (another network's); about
// an address of the IPv4-mapped range, which belongs to ARP. A solicitation claims its source address, or, when it has
// none, tentatively its target.
std::optional<AddressClaim> parse_neighbour(std::span<const std::uint8_t> frame);

}  // namespace hook
