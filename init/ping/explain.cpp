#include "init/ping/explain.hpp"

#include <fmt/core.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "fabric/read_network.hpp"

namespace init::ping {
namespace {

using base::netlink::Query;
using fabric::Address;
using fabric::netlink::bytes_in_family;
using fabric::netlink::family_of;

// Sends the request and passes the answer to use().
Result<void> ask(Query request, auto use) {
  auto socket = TRY(base::netlink::Socket::open(NETLINK_ROUTE));
  return socket.request(std::move(request), [&](const base::netlink::Message& message) {
    use(message);
    return true;
  });
}

// Returns the next hop of the rail's route to the peer.
Result<Address> next_hop(const Rail& rail, std::uint32_t netdev, const Address& peer) {
  rtmsg header{};
  header.rtm_family = family_of(peer);
  header.rtm_dst_len = header.rtm_src_len = peer.is_ipv4() ? 32 : 128;
  // Without this flag the kernel reports a route for every address.
  header.rtm_flags = RTM_F_FIB_MATCH;
  Query request(RTM_GETROUTE, 0, header);
  request.put(RTA_DST, bytes_in_family(peer));
  request.put(RTA_SRC, bytes_in_family(rail.gid));
  request.put(RTA_OIF, netdev);
  Address hop = peer;
  TRY_VOID(ask(std::move(request), [&](const base::netlink::Message& message) {
    const auto gateway =
        fabric::netlink::to_address(header.rtm_family, message.attributes(sizeof(rtmsg)).get(RTA_GATEWAY));
    if (gateway) hop = *gateway;
  }));
  return hop;
}

// Returns the state of a neighbour, NUD_*; nullopt if the kernel does not say.
std::optional<unsigned> neighbour_state(std::uint32_t netdev, const Address& address) {
  ndmsg header{};
  header.ndm_family = family_of(address);
  header.ndm_ifindex = static_cast<int>(netdev);
  Query request(RTM_GETNEIGH, 0, header);
  request.put(NDA_DST, bytes_in_family(address));
  std::optional<unsigned> state;
  const auto done = ask(std::move(request), [&](const base::netlink::Message& message) {
    if (const auto* found = message.header<ndmsg>()) state = found->ndm_state;
  });
  return done ? state : std::nullopt;
}

}  // namespace

Failure explain(const Rail& rail, const Address& peer) {
  if (rail.infiniband || rail.netdev.empty() || peer.is_zero()) return {};
  const std::uint32_t netdev = ::if_nametoindex(rail.netdev.c_str());
  if (netdev == 0) return {};
  const std::string name = base::printable(rail.netdev);
  const auto hop = next_hop(rail, netdev, peer);
  if (!hop && (hop.error().code == ENETUNREACH || hop.error().code == EHOSTUNREACH)) {
    return {Layer::kRoute, fmt::format("no route from {} on {} to {}", to_string(rail.gid), name, to_string(peer))};
  }
  const Address& next = hop ? *hop : peer;
  const auto state = neighbour_state(netdev, next);
  if (!state || (*state & (NUD_FAILED | NUD_INCOMPLETE)) == 0) return {};
  return {Layer::kNeighbour,
          fmt::format("{} does not answer on {}: its MAC address is not resolved", to_string(next), name)};
}

}  // namespace init::ping
