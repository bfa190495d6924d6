#include "init/ping/explain.hpp"

#include <fmt/core.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "base/text.hpp"
#include "fabric/read_network.hpp"

namespace init::ping {
namespace {

using base::netlink::Bytes;
using fabric::Address;

// A request: a fixed header and attributes.
class Request {
 public:
  template <typename Header>
  explicit Request(const Header& header) {
    append(base::netlink::bytes_of(header));
  }
  void add(unsigned short type, Bytes value) {
    const rtattr attribute{static_cast<unsigned short>(RTA_LENGTH(value.size())), type};
    append(base::netlink::bytes_of(attribute));
    append(value);
  }
  Bytes bytes() const { return bytes_; }

 private:
  void append(Bytes more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  std::vector<std::uint8_t> bytes_;
};

// Returns the address in its own length: 4 bytes of IPv4, 16 of IPv6.
Bytes bytes_in_family(const Address& address) {
  return Bytes(address.bytes).subspan(address.is_ipv4() ? 12 : 0);
}
unsigned char family_of(const Address& address) {
  return address.is_ipv4() ? AF_INET : AF_INET6;
}

// Sends the request and passes the first answer to use(). Returns the errno, 0 for success.
int ask(unsigned type, const Request& request, auto use) {
  auto socket = base::netlink::Socket::open(NETLINK_ROUTE);
  if (!socket) return socket.error().code;
  const auto done = socket->request(type, 0, request.bytes(), [&](const base::netlink::Message& message) {
    use(message);
    return true;
  });
  return done ? 0 : done.error().code;
}

// The next hop of the rail's route to the peer, or the errno of the look-up.
struct NextHop {
  int error = 0;
  Address address;
};

NextHop next_hop(const Rail& rail, std::uint32_t netdev, const Address& peer) {
  rtmsg header{};
  header.rtm_family = family_of(peer);
  header.rtm_dst_len = header.rtm_src_len = peer.is_ipv4() ? 32 : 128;
  // Without this flag the kernel reports a route for every address.
  header.rtm_flags = RTM_F_FIB_MATCH;
  Request request(header);
  request.add(RTA_DST, bytes_in_family(peer));
  request.add(RTA_SRC, bytes_in_family(rail.gid));
  request.add(RTA_OIF, base::netlink::bytes_of(netdev));
  NextHop hop{0, peer};
  hop.error = ask(RTM_GETROUTE, request, [&](const base::netlink::Message& message) {
    const auto gateway =
        fabric::netlink::to_address(header.rtm_family, message.attributes(sizeof(rtmsg)).get(RTA_GATEWAY));
    if (gateway) hop.address = *gateway;
  });
  return hop;
}

// Returns the state of a neighbour, NUD_*; nullopt if the kernel does not say.
std::optional<unsigned> neighbour_state(std::uint32_t netdev, const Address& address) {
  ndmsg header{};
  header.ndm_family = family_of(address);
  header.ndm_ifindex = static_cast<int>(netdev);
  Request request(header);
  request.add(NDA_DST, bytes_in_family(address));
  std::optional<unsigned> state;
  ask(RTM_GETNEIGH, request, [&](const base::netlink::Message& message) {
    if (const auto* found = message.header<ndmsg>()) state = found->ndm_state;
  });
  return state;
}

}  // namespace

Failure explain(const Rail& rail, const Address& peer) {
  if (rail.infiniband || rail.netdev.empty() || peer.is_zero()) return {};
  const std::uint32_t netdev = ::if_nametoindex(rail.netdev.c_str());
  if (netdev == 0) return {};
  const std::string name = base::printable(rail.netdev);
  const NextHop hop = next_hop(rail, netdev, peer);
  if (hop.error == ENETUNREACH || hop.error == EHOSTUNREACH) {
    return {Layer::kRoute, fmt::format("no route from {} on {} to {}", to_string(rail.gid), name, to_string(peer))};
  }
  const auto state = neighbour_state(netdev, hop.address);
  if (!state || (*state & (NUD_FAILED | NUD_INCOMPLETE)) == 0) return {};
  return {Layer::kNeighbour,
          fmt::format("{} does not answer on {}: its MAC address is not resolved", to_string(hop.address), name)};
}

}  // namespace init::ping
