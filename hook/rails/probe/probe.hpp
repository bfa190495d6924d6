// Does the gateway answer, does another host have our address: ARP (RFC 826, 5227) and neighbour discovery (RFC 4861)
// by a packet socket of the container's namespace, for all rails at the same time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/rail.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

struct Probe {
  enum class Kind { kGateway, kDuplicate };
  Kind kind = Kind::kGateway;
  std::string netdev;      // for people
  int ifindex = 0;         // of an Ethernet netdev that is up
  MacAddress mac{};        // the netdev's own
  fabric::Address source;  // kGateway: ours. kDuplicate: not used, the probe says nothing of us
  fabric::Address target;  // the gateway, or the address that should be free
};

struct ProbeOptions {
  unsigned retries = 3;  // tries in all
  std::chrono::milliseconds interval{100};
};

struct ProbeAnswer {
  bool answered = false;
  MacAddress mac{};  // who answered, or who wants the same address at this moment; none of the probes' own
  unsigned tries = 0;
};

// packet: AF_PACKET, SOCK_RAW, protocol 0, not bound; bound and filtered here, of no other use afterwards, and its
// close(2) waits for an RCU grace period. One answer per probe, in their order. A kGateway probe ends with the first
// answer, a kDuplicate probe is over when all its tries were silent. Takes at most retries x interval for all of them
// together. A frame with a VLAN tag is another network's; what one of the probed netdevs itself says is no answer,
// since the rails of a container may answer for each other (arp_ignore 0). Children of one ipvlan parent share its MAC:
// that none of them has the address is for the kernel to say (EADDRINUSE).
// Errors, each naming the netdev: the socket; a netdev that is gone, or no Ethernet (IPoIB has other frames). A netdev
// that is down counts as silent, and so does a try for which its queue has no room.
// System calls: bind, getsockname, setsockopt, sendto, ppoll, recvfrom.
Result<std::vector<ProbeAnswer>> run_probes(int packet, const std::vector<Probe>& probes, const ProbeOptions& options);

// Questions for the holder of an address, and what answers say, as bytes over Ethernet: ARP (RFC 826; RFC 5227 for
// probes), neighbour solicitations and advertisements (RFC 4861, 4.3, 4.4, 7.1; RFC 4862, 5.4 for duplicates).

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

// Is the address free, does the gateway answer: before the container starts, for all its rails at once.

// A rail whose netdev is up inside.
struct PlacedRail {
  const RailRecord* record = nullptr;
  const Network* network = nullptr;
  int ifindex = 0;  // inside
};

// kDuplicate: before the addresses are added; fails if another host has one of them, and the network's duplicate_test
// is "fail". kGateway: after addresses and routes are there; fails if a gateway is silent, and gateway_test is "fail".
Result<void> test_rails(Probe::Kind kind, NetworkNamespace& inside, const std::vector<PlacedRail>& rails,
                        std::vector<std::string>& warnings);

}  // namespace hook
