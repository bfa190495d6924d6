#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/ip6.h>

#include <algorithm>
#include <cstring>

#include "fabric/read_network.hpp"
#include "hook/rails/probe/probe.hpp"

namespace hook {
namespace {

using Bytes = std::span<const std::uint8_t>;

struct Headers {
  ether_header ethernet;
  ip6_hdr ip;
};
static_assert(sizeof(ether_header) == 14 && sizeof(ip6_hdr) == 40, "the wire's");
constexpr std::size_t kIpOffset = sizeof(ether_header);
constexpr std::size_t kMessageOffset = kIpOffset + sizeof(ip6_hdr);
// Solicitation and advertisement have the same layout: an ICMPv6 header, whose last four bytes are flags, then the
// target, then options.
constexpr std::size_t kFixedLength = sizeof(nd_neighbor_solicit);
static_assert(kFixedLength == 24 && sizeof(nd_neighbor_advert) == kFixedLength, "RFC 4861, 4.3 and 4.4");
constexpr std::size_t kOptionUnit = 8;
constexpr std::uint8_t kHopLimit = 255;  // proves that no router has forwarded the packet

fabric::Address to_address(const in6_addr& from) {
  fabric::Address address;
  std::copy_n(from.s6_addr, address.bytes.size(), address.bytes.begin());
  return address;
}

in6_addr to_in6(const fabric::Address& from) {
  in6_addr address{};
  std::ranges::copy(from.bytes, address.s6_addr);
  return address;
}

bool is_multicast(const fabric::Address& address) {
  return address.bytes[0] == 0xff;
}

// Returns the ICMPv6 message of a frame; empty if the frame has no IPv6 packet with an ICMPv6 message directly behind
// its header. RFC 4861, 7.1 requires hop limit 255, which proves that the packet is from this link.
Bytes find_message(Bytes frame, Headers& headers) {
  if (frame.size() < kMessageOffset) return {};
  std::memcpy(&headers.ethernet, frame.data(), sizeof headers.ethernet);
  std::memcpy(&headers.ip, frame.data() + kIpOffset, sizeof headers.ip);
  const std::size_t length = ntohs(headers.ip.ip6_plen);
  const bool good = headers.ethernet.ether_type == htons(ETHERTYPE_IPV6) && (headers.ip.ip6_vfc >> 4) == 6 &&
                    headers.ip.ip6_nxt == IPPROTO_ICMPV6 && headers.ip.ip6_hlim == kHopLimit &&
                    length >= kFixedLength && length <= frame.size() - kMessageOffset;
  return good ? frame.subspan(kMessageOffset, length) : Bytes();
}

struct Options {
  std::optional<MacAddress> source;
  std::optional<MacAddress> target;
};

// Parses link-layer address options. Returns nullopt if an option has length 0 or exceeds the message (RFC 4861, 7.1
// requires to discard it).
std::optional<Options> read_options(Bytes bytes) {
  Options options;
  while (!bytes.empty()) {
    const std::size_t length = bytes.size() < kOptionUnit ? 0 : bytes[1] * kOptionUnit;
    if (length == 0 || length > bytes.size()) return std::nullopt;
    MacAddress mac{};
    std::copy_n(bytes.begin() + 2, mac.size(), mac.begin());
    // An option of another length has no Ethernet address, so it is ignored.
    const bool ethernet = length == kOptionUnit;
    if (ethernet && bytes[0] == ND_OPT_SOURCE_LINKADDR) options.source = mac;
    if (ethernet && bytes[0] == ND_OPT_TARGET_LINKADDR) options.target = mac;
    bytes = bytes.subspan(length);
  }
  return options;
}

std::optional<AddressClaim> read_advertisement(const nd_neighbor_advert& advert, const fabric::Address& destination,
                                               const Options& options, const MacAddress& sender) {
  // RFC 4861, 7.1.2: the solicited flag must be zero in a multicast advertisement.
  const bool solicited = (advert.nd_na_flags_reserved & ND_NA_FLAG_SOLICITED) != 0;
  if (solicited && is_multicast(destination)) return std::nullopt;
  return AddressClaim{to_address(advert.nd_na_target), options.target.value_or(sender), false};
}

std::optional<AddressClaim> read_solicitation(const fabric::Address& source, const fabric::Address& destination,
                                              const fabric::Address& target, const Options& options,
                                              const MacAddress& sender) {
  if (!source.is_zero()) return AddressClaim{source, options.source.value_or(sender), false};
  // Without a source address the solicitation is duplicate address detection of another host. RFC 4861, 7.1.1: it has
  // no source option and is sent to the solicited-node group.
  if (options.source || destination != solicited_node(target)) return std::nullopt;
  return AddressClaim{target, sender, true};
}

void put_message(std::vector<std::uint8_t>& frame, const MacAddress& mac, const fabric::Address& source,
                 const fabric::Address& target) {
  nd_neighbor_solicit message{};
  message.nd_ns_type = ND_NEIGHBOR_SOLICIT;
  message.nd_ns_target = to_in6(target);
  std::memcpy(frame.data() + kMessageOffset, &message, sizeof message);
  // RFC 4861, 4.3: a solicitation without source address has no option with the source link-layer address.
  if (!source.is_zero()) {
    std::uint8_t* option = frame.data() + kMessageOffset + sizeof message;
    option[0] = ND_OPT_SOURCE_LINKADDR;
    option[1] = 1;
    std::ranges::copy(mac, option + 2);
  }
  const std::uint16_t sum =
      htons(icmpv6_checksum(source, solicited_node(target), Bytes(frame).subspan(kMessageOffset)));
  std::memcpy(frame.data() + kMessageOffset + offsetof(icmp6_hdr, icmp6_cksum), &sum, sizeof sum);
}

struct ArpFrame {
  ether_header ethernet;
  ether_arp arp;
};
static_assert(sizeof(ArpFrame) == 42, "no padding: copied from and to the wire");

constexpr std::size_t kMappedIpv4 = 12;  // offset of an IPv4 address in its mapped form

fabric::Address to_address(const std::uint8_t (&bytes)[4]) {
  return *fabric::netlink::to_address(AF_INET, bytes);
}

void put_address(const fabric::Address& address, std::uint8_t (&bytes)[4]) {
  std::copy_n(address.bytes.begin() + kMappedIpv4, sizeof bytes, bytes);
}

bool is_ipv4_over_ethernet(const ArpFrame& frame) {
  const auto& header = frame.arp.ea_hdr;
  return frame.ethernet.ether_type == htons(ETHERTYPE_ARP) && header.ar_pro == htons(ETHERTYPE_IP) &&
         header.ar_hln == ETH_ALEN && header.ar_pln == 4 &&
         // RFC 1122, 2.3.3 allows a host to accept both types as Ethernet, as Linux does (net/ipv4/arp.c, arp_rcv()).
         (header.ar_hrd == htons(ARPHRD_ETHER) || header.ar_hrd == htons(ARPHRD_IEEE802));
}

}  // namespace

fabric::Address solicited_node(const fabric::Address& address) {
  fabric::Address group{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff}};
  std::copy(address.bytes.end() - 3, address.bytes.end(), group.bytes.end() - 3);
  return group;
}

MacAddress multicast_mac(const fabric::Address& group) {
  return {0x33, 0x33, group.bytes[12], group.bytes[13], group.bytes[14], group.bytes[15]};
}

std::uint16_t icmpv6_checksum(const fabric::Address& source, const fabric::Address& destination, Bytes message) {
  std::uint64_t sum = message.size() + IPPROTO_ICMPV6;
  const auto add = [&sum](Bytes bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      sum += i % 2 == 0 ? std::uint64_t{bytes[i]} << 8 : bytes[i];
  };
  add(source.bytes);
  add(destination.bytes);
  add(message);
  while (sum > 0xffff)
    sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

std::vector<std::uint8_t> neighbour_solicitation(const MacAddress& mac, const std::optional<fabric::Address>& source,
                                                 const fabric::Address& target) {
  const bool has_source = source && !source->is_ipv4() && !source->is_zero();
  const std::size_t length = kFixedLength + (has_source ? kOptionUnit : 0);
  const fabric::Address group = solicited_node(target);
  const MacAddress group_mac = multicast_mac(group);
  Headers headers{};
  std::ranges::copy(group_mac, headers.ethernet.ether_dhost);
  std::ranges::copy(mac, headers.ethernet.ether_shost);
  headers.ethernet.ether_type = htons(ETHERTYPE_IPV6);
  headers.ip.ip6_vfc = 6 << 4;
  headers.ip.ip6_plen = htons(static_cast<std::uint16_t>(length));
  headers.ip.ip6_nxt = IPPROTO_ICMPV6;
  headers.ip.ip6_hlim = kHopLimit;
  if (has_source) headers.ip.ip6_src = to_in6(*source);
  headers.ip.ip6_dst = to_in6(group);
  std::vector<std::uint8_t> frame(kMessageOffset + length);
  std::memcpy(frame.data(), &headers.ethernet, sizeof headers.ethernet);
  std::memcpy(frame.data() + kIpOffset, &headers.ip, sizeof headers.ip);
  put_message(frame, mac, has_source ? *source : fabric::Address{}, target);
  return frame;
}

std::optional<AddressClaim> parse_neighbour(Bytes frame) {
  Headers headers{};
  const Bytes message = find_message(frame, headers);
  if (message.empty()) return std::nullopt;
  const fabric::Address source = to_address(headers.ip.ip6_src);
  const fabric::Address destination = to_address(headers.ip.ip6_dst);
  nd_neighbor_advert fixed{};
  std::memcpy(&fixed, message.data(), sizeof fixed);
  const fabric::Address target = to_address(fixed.nd_na_target);
  // RFC 4861, 7.1.1 and 7.1.2 require these checks. Without them, an invalid message would count as an answer.
  if (fixed.nd_na_code != 0 || is_multicast(target) || is_multicast(source)) return std::nullopt;
  if (icmpv6_checksum(source, destination, message) != 0) return std::nullopt;
  const auto options = read_options(message.subspan(kFixedLength));
  if (!options) return std::nullopt;
  MacAddress sender{};
  std::ranges::copy(headers.ethernet.ether_shost, sender.begin());
  std::optional<AddressClaim> claim;
  if (fixed.nd_na_type == ND_NEIGHBOR_ADVERT) claim = read_advertisement(fixed, destination, *options, sender);
  if (fixed.nd_na_type == ND_NEIGHBOR_SOLICIT) claim = read_solicitation(source, destination, target, *options, sender);
  if (!claim || claim->mac == MacAddress{} || claim->address.is_zero() || claim->address.is_ipv4()) return std::nullopt;
  return claim;
}

std::vector<std::uint8_t> arp_request(const MacAddress& mac, const std::optional<fabric::Address>& source,
                                      const fabric::Address& target) {
  ArpFrame frame{};
  std::ranges::fill(frame.ethernet.ether_dhost, std::uint8_t{0xff});
  std::ranges::copy(mac, frame.ethernet.ether_shost);
  frame.ethernet.ether_type = htons(ETHERTYPE_ARP);
  frame.arp.ea_hdr = {.ar_hrd = htons(ARPHRD_ETHER),
                      .ar_pro = htons(ETHERTYPE_IP),
                      .ar_hln = ETH_ALEN,
                      .ar_pln = 4,
                      .ar_op = htons(ARPOP_REQUEST)};
  std::ranges::copy(mac, frame.arp.arp_sha);
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
  std::ranges::copy(frame.arp.arp_sha, claim.mac.begin());
  if (claim.mac == MacAddress{}) return std::nullopt;
  constexpr std::uint8_t kNobody[4] = {};
  claim.tentative = std::equal(std::begin(kNobody), std::end(kNobody), frame.arp.arp_spa);
  // RFC 5227: only a probe has no sender address, and a probe is always a request.
  if (claim.tentative && !request) return std::nullopt;
  claim.address = claim.tentative ? to_address(frame.arp.arp_tpa) : to_address(frame.arp.arp_spa);
  return claim;
}

}  // namespace hook
