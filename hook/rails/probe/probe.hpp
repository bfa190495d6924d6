// Tests whether gateways answer, and whether another host has the address of a rail, for all rails at the same time.
// Uses ARP (RFC 826, 5227) and neighbour discovery (RFC 4861) on a packet socket of the container's namespace.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fabric/address.hpp"
#include "hook/config/config.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/rail.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

struct Probe {
  enum class Kind { kGateway, kDuplicate };
  Kind kind = Kind::kGateway;
  std::string netdev;      // name of the netdev, for messages
  int ifindex = 0;         // index of an Ethernet netdev that is up
  MacAddress mac{};        // MAC address of the netdev
  fabric::Address source;  // kGateway: the address of the rail; kDuplicate: unused
  fabric::Address target;  // the gateway, or the address that should be free
};

struct ProbeOptions {
  unsigned retries = 3;  // number of tries, including the first one
  std::chrono::milliseconds interval{100};
};

struct ProbeAnswer {
  bool answered = false;
  MacAddress mac{};  // MAC address of the host that answered, or that tests the same address at this moment
  unsigned tries = 0;
};

// Sends each probe until it has an answer or has used up its tries. Returns one answer for each probe, in their order.
// Takes at most retries x interval in all.
// packet: AF_PACKET, SOCK_RAW, protocol 0, not bound. run_probes() binds the socket and attaches a filter, so the
// socket cannot be used for anything else afterwards. Closing the socket waits for an RCU grace period.
// Ignores frames with a VLAN tag, because they are from another network. Ignores frames of the probed netdevs, because
// the rails of a container can answer for each other (arp_ignore 0). This also ignores other children of an ipvlan
// parent, because they share the MAC address of the parent. Such a duplicate is not missed: the kernel itself refuses
// an address that another child of the parent has (EADDRINUSE).
// Errors name the netdev: the socket fails; the netdev is gone, or is no Ethernet netdev (IPoIB has other frames). If a
// netdev is down or its queue is full, the try counts as unanswered.
// System calls: bind, getsockname, setsockopt, sendto, ppoll, recvfrom.
Result<std::vector<ProbeAnswer>> run_probes(int packet, const std::vector<Probe>& probes, const ProbeOptions& options);

// Converts probes and answers to and from Ethernet frames: ARP (RFC 826; RFC 5227 for probes), neighbour solicitations
// and advertisements (RFC 4861, 4.3, 4.4, 7.1; RFC 4862, 5.4 for duplicates).

// An address that the sender of an ARP or neighbour discovery frame has, or tests before it uses the address.
struct AddressClaim {
  fabric::Address address;
  MacAddress mac{};        // MAC address of the host that has or tests the address
  bool tentative = false;  // true: the sender only tests if the address is free
  friend bool operator==(const AddressClaim&, const AddressClaim&) = default;
};

// Makes a broadcast ARP request for `target`, which is IPv4.
// source: the rail's address. Without an IPv4 source, the frame is a probe of RFC 5227, from which hosts learn no
// address.
std::vector<std::uint8_t> arp_request(const MacAddress& mac, const std::optional<fabric::Address>& source,
                                      const fabric::Address& target);

// Parses an ARP frame. Returns nullopt if the frame is too short, is no ARP request or reply for IPv4 over Ethernet,
// has a VLAN tag (of another network), has no MAC address of the sender, or is a reply without an IP address of the
// sender.
// frame: a whole Ethernet frame of a packet socket, including padding.
std::optional<AddressClaim> parse_arp(std::span<const std::uint8_t> frame);

// Returns ff02::1:ffXX:XXXX, the multicast group that every host with this address joins.
fabric::Address solicited_node(const fabric::Address& address);
// Returns 33:33 and the last four bytes of an IPv6 multicast address (RFC 2464, 7).
MacAddress multicast_mac(const fabric::Address& group);

// Returns the checksum over pseudo-header and message (RFC 4443, 2.3), in host byte order. If the checksum field in the
// message is zero, the result is the value for that field. If the message has a correct checksum, the result is zero.
std::uint16_t icmpv6_checksum(const fabric::Address& source, const fabric::Address& destination,
                              std::span<const std::uint8_t> message);

// Makes a neighbour solicitation for `target`, which is IPv6, to its solicited-node group.
// source: the rail's address, to which hosts answer. Without an IPv6 source, hosts answer to the multicast group of all
// nodes, as for duplicate address detection.
std::vector<std::uint8_t> neighbour_solicitation(const MacAddress& mac, const std::optional<fabric::Address>& source,
                                                 const fabric::Address& target);

// Parses a solicitation or advertisement. The claim of a solicitation is its source address; without a source address
// it is the target, and tentative. Returns nullopt for any other frame, for a frame that RFC 4861, 7.1 discards (hop
// limit, checksum, lengths, a multicast target), for a frame with a VLAN tag (of another network), and for an
// IPv4-mapped address (such addresses use ARP).
// frame: a whole Ethernet frame of a packet socket, including padding.
std::optional<AddressClaim> parse_neighbour(std::span<const std::uint8_t> frame);

// A rail that is up in the container's namespace.
struct PlacedRail {
  const RailRecord* record = nullptr;
  const Network* network = nullptr;
  int ifindex = 0;  // index in the container's namespace
};

// Tests the addresses or gateways of all rails at once, before the container starts. Returns a warning for each failure
// of a test that the network sets to "warn".
// kind: call the function with kDuplicate before the addresses are added, and with kGateway after addresses and routes
// are added.
// Errors: kDuplicate, another host has an address and duplicate_test of the network is "fail"; kGateway, a gateway is
// silent and gateway_test is "fail".
Result<std::vector<std::string>> test_rails(Probe::Kind kind, NetworkNamespace& inside,
                                            const std::vector<PlacedRail>& rails);

}  // namespace hook
