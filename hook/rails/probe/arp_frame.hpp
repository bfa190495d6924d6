// ARP over Ethernet as bytes (RFC 826; RFC 5227 for probes).
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
// 5227, by which nobody learns anything. target: IPv4.
std::vector<std::uint8_t> arp_request(const MacAddress& mac, const std::optional<fabric::Address>& source,
                                      const fabric::Address& target);

// A whole Ethernet frame as a packet socket gives it, padding included. nullopt: no ARP for IPv4 over Ethernet, too
// short, another operation than request and reply, tagged (another network's), or without a sender.
std::optional<AddressClaim> parse_arp(std::span<const std::uint8_t> frame);

}  // namespace hook
