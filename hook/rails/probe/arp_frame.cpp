#include "hook/rails/probe/arp_frame.hpp"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/if_ether.h>

#include <algorithm>
#include <cstring>

namespace hook {
namespace {

struct ArpFrame {
  ether_header ethernet;
  ether_arp arp;
};
static_assert(sizeof(ArpFrame) == 42, "no padding: copied from and to the wire");

constexpr std::size_t kIpv4Offset = 12;  // of an IPv4 address in its IPv6 form

fabric::Address to_address(const std::uint8_t (&bytes)[4]) {
  fabric::Address address;
  address.bytes[10] = address.bytes[11] = 0xff;
  std::copy_n(bytes, sizeof bytes, address.bytes.begin() + kIpv4Offset);
  return address;
}

void put_address(const fabric::Address& address, std::uint8_t (&bytes)[4]) {
  std::copy_n(address.bytes.begin() + kIpv4Offset, sizeof bytes, bytes);
}

bool is_ipv4_over_ethernet(const ArpFrame& frame) {
  const auto& header = frame.arp.ea_hdr;
  return frame.ethernet.ether_type == htons(ETHERTYPE_ARP) && header.ar_pro == htons(ETHERTYPE_IP) &&
         header.ar_hln == ETH_ALEN && header.ar_pln == 4 &&
         // RFC 1122, 2.3.3 lets a host take both for the same, and Linux does (net/ipv4/arp.c, arp_rcv()).
         (header.ar_hrd == htons(ARPHRD_ETHER) || header.ar_hrd == htons(ARPHRD_IEEE802));
}

}  // namespace

std::vector<std::uint8_t> arp_request(const MacAddress& mac, const std::optional<fabric::Address>& source,
                                      const fabric::Address& target) {
  ArpFrame frame{};
  std::fill(std::begin(frame.ethernet.ether_dhost), std::end(frame.ethernet.ether_dhost), std::uint8_t{0xff});
  std::copy(mac.begin(), mac.end(), frame.ethernet.ether_shost);
  frame.ethernet.ether_type = htons(ETHERTYPE_ARP);
  frame.arp.ea_hdr = {.ar_hrd = htons(ARPHRD_ETHER),
                      .ar_pro = htons(ETHERTYPE_IP),
                      .ar_hln = ETH_ALEN,
                      .ar_pln = 4,
                      .ar_op = htons(ARPOP_REQUEST)};
  std::copy(mac.begin(), mac.end(), frame.arp.arp_sha);
  if (source && source->is_ipv4()) put_address(*source, frame.arp.arp_spa);
  put_address(target, frame.arp.arp_tpa);
  std::vector<std::uint8_t> bytes(sizeof frame);
  std::memcpy(bytes.data(), &frame, sizeof frame);
  return bytes;
}

std::optional<AddressClaim> parse_arp(std::span<const std::uint8_t> bytes) {
  ArpFrame frame{};
  if (bytes.size() < sizeof frame) return std::nullopt;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (!is_ipv4_over_ethernet(frame)) return std::nullopt;
  const bool request = frame.arp.ea_hdr.ar_op == htons(ARPOP_REQUEST);
  if (!request && frame.arp.ea_hdr.ar_op != htons(ARPOP_REPLY)) return std::nullopt;
  AddressClaim claim;
  std::copy(std::begin(frame.arp.arp_sha), std::end(frame.arp.arp_sha), claim.mac.begin());
  if (claim.mac == MacAddress{}) return std::nullopt;
  constexpr std::uint8_t kNobody[4] = {};
  claim.tentative = std::equal(std::begin(kNobody), std::end(kNobody), frame.arp.arp_spa);
  if (claim.tentative && !request) return std::nullopt;
  claim.address = claim.tentative ? to_address(frame.arp.arp_tpa) : to_address(frame.arp.arp_spa);
  return claim;
}

}  // namespace hook
