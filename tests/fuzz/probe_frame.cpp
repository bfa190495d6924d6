// Any frames of ARP and neighbour discovery, which every host of a rail's network can send during a probe.
#include <algorithm>
#include <optional>
#include <vector>

#include "hook/rails/probe/probe.hpp"
#include "require.hpp"

namespace {

using fuzz::require;
using Frame = std::vector<std::uint8_t>;

constexpr std::size_t kMessage = 54;

fabric::Address arbitrary_address(FuzzedDataProvider& data, bool ipv4) {
  fabric::Address address;
  const auto bytes = data.ConsumeBytes<std::uint8_t>(address.bytes.size());
  std::copy(bytes.begin(), bytes.end(), address.bytes.begin());
  if (!ipv4) return address;
  std::fill_n(address.bytes.begin(), 10, std::uint8_t{0});
  address.bytes[10] = address.bytes[11] = 0xff;
  return address;
}

hook::MacAddress arbitrary_mac(FuzzedDataProvider& data) {
  hook::MacAddress mac{0x02};
  const auto bytes = data.ConsumeBytes<std::uint8_t>(mac.size() - 1);
  std::copy(bytes.begin(), bytes.end(), mac.begin() + 1);
  return mac;
}

// Sets length and checksum, which random bytes seldom have right.
void seal(Frame& frame) {
  if (frame.size() < kMessage + 4) return;
  const std::size_t length = frame.size() - kMessage;
  frame[18] = static_cast<std::uint8_t>(length >> 8);
  frame[19] = static_cast<std::uint8_t>(length);
  frame[kMessage + 2] = frame[kMessage + 3] = 0;
  fabric::Address source;
  fabric::Address destination;
  std::copy_n(frame.begin() + 22, 16, source.bytes.begin());
  std::copy_n(frame.begin() + 38, 16, destination.bytes.begin());
  const auto sum = hook::icmpv6_checksum(source, destination, std::span(frame).subspan(kMessage));
  frame[kMessage + 2] = static_cast<std::uint8_t>(sum >> 8);
  frame[kMessage + 3] = static_cast<std::uint8_t>(sum);
}

void check_frame(Frame frame) {
  frame.shrink_to_fit();  // a read beyond the end is a read beyond the allocation
  const auto arp = hook::parse_arp(frame);
  const auto neighbour = hook::parse_neighbour(frame);
  require(!arp || !neighbour, "a frame is of one protocol");
  if (arp) require(arp->address.is_ipv4(), "ARP has an IPv4 address");
  if (neighbour) {
    require(!neighbour->address.is_ipv4() && !neighbour->address.is_zero(), "neighbour discovery has an IPv6 address");
    require(neighbour->address.bytes[0] != 0xff, "a claimed address is not multicast");
  }
  if (const auto claim = arp ? arp : neighbour) {
    require(claim->mac != hook::MacAddress{}, "a claim has a sender");
    Frame padded = frame;
    padded.resize(frame.size() + 7, 0x5a);
    require(hook::parse_arp(padded) == arp && hook::parse_neighbour(padded) == neighbour, "padding changes nothing");
  }
}

// Demands that a query of rdma-hook reads back, as in another rdma-hook on the network.
Frame check_question(FuzzedDataProvider& data) {
  const bool ipv4 = data.ConsumeBool();
  const auto mac = arbitrary_mac(data);
  const auto target = arbitrary_address(data, ipv4);
  const auto source = data.ConsumeBool() ? std::optional(arbitrary_address(data, ipv4)) : std::nullopt;
  Frame frame = ipv4 ? hook::arp_request(mac, source, target) : hook::neighbour_solicitation(mac, source, target);
  const auto claim = ipv4 ? hook::parse_arp(frame) : hook::parse_neighbour(frame);
  if (!claim) {
    require(!ipv4, "an ARP query reads back");
    return frame;
  }
  require(claim->mac == mac, "a query has its sender");
  require(claim->address == (claim->tentative ? target : source.value_or(target)), "a query has its address");
  return frame;
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider data) {
  check_frame(Frame(text.begin(), text.end()));
  Frame frame = check_question(data);
  // The query, changed, lengthened or cut.
  for (auto left = data.ConsumeIntegralInRange(0, 4); left > 0; --left)
    frame[data.ConsumeIntegralInRange<std::size_t>(0, frame.size() - 1)] = data.ConsumeIntegral<std::uint8_t>();
  if (data.ConsumeBool()) {
    const auto more = data.ConsumeBytes<std::uint8_t>(data.ConsumeIntegralInRange<std::size_t>(0, 40));
    frame.insert(frame.end(), more.begin(), more.end());
  }
  if (data.ConsumeBool()) seal(frame);
  if (data.ConsumeBool()) frame.resize(data.ConsumeIntegralInRange<std::size_t>(0, frame.size()));
  check_frame(frame);
}
