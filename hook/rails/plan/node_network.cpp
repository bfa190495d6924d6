// The node's network as plan_rails() wants it.
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/netlink.hpp"
#include "fabric/netlink_socket.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/rails/plan/plan_rails.hpp"

namespace hook {
namespace {

using fabric::Result;
namespace netlink = fabric::netlink;

// The first 4 MiB, some 28,000 sockets; listening ones come first. A system without IPv6 has no tcp6.
Result<std::string> read_sockets(const char* path) {
  constexpr std::size_t kLimit = std::size_t{4} << 20;
  constexpr std::size_t kStep = std::size_t{64} << 10;
  const fabric::UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.ok() && errno == ENOENT) return std::string();
  if (!fd.ok()) return fabric::sys_error(errno, "open `{}`", path);
  std::string text;
  while (text.size() < kLimit) {
    const std::size_t used = text.size();
    text.resize(used + kStep);
    const ssize_t count = ::read(fd.get(), text.data() + used, kStep);
    if (count < 0 && errno != EINTR) return fabric::sys_error(errno, "read `{}`", path);
    text.resize(used + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) break;
  }
  return text;
}

// The netdevs of a route over several, RTA_MULTIPATH.
std::vector<int> hops_of(netlink::Bytes bytes) {
  std::vector<int> hops;
  while (bytes.size() >= sizeof(rtnexthop)) {
    const auto* hop = reinterpret_cast<const rtnexthop*>(bytes.data());
    const std::size_t length = RTNH_ALIGN(std::size_t{hop->rtnh_len});
    if (hop->rtnh_len < sizeof(rtnexthop)) break;
    hops.push_back(hop->rtnh_ifindex);
    bytes = bytes.subspan(std::min(length, bytes.size()));
  }
  return hops;
}

// False when the dump may stop: the kernel walks an IPv4 table in the order of its keys, so that no default route
// follows a destination (net/ipv4/fib_trie.c, fib_table_dump(), Linux 6.12).
bool add_default_hops(const netlink::Message& message, NodeNetwork& node) {
  const auto* header = message.header<rtmsg>();
  if (!header || message.type != RTM_NEWROUTE) return true;
  const netlink::Attributes attributes = message.attributes(sizeof *header);
  if (attributes.u32(RTA_TABLE).value_or(header->rtm_table) != RT_TABLE_MAIN) return true;
  if (header->rtm_dst_len != 0) {
    const netlink::Bytes destination = attributes.get(RTA_DST);
    return header->rtm_family != AF_INET || destination.empty() || destination[0] == 0;
  }
  if (header->rtm_type != RTN_UNICAST) return true;
  for (const int ifindex : hops_of(attributes.get(RTA_MULTIPATH))) {
    const auto netdev = std::find_if(node.netdevs.begin(), node.netdevs.end(),
                                     [&](const fabric::Netdev& one) { return one.ifindex == ifindex; });
    if (netdev == node.netdevs.end()) continue;
    fabric::Route route{header->rtm_family == AF_INET ? "0.0.0.0/0" : "::/0", netdev->name, RT_TABLE_MAIN};
    if (std::find(node.routes.begin(), node.routes.end(), route) == node.routes.end()) {
      node.routes.push_back(std::move(route));
    }
  }
  return true;
}

// read_network() names the first netdev of a default route over several; a node on two uplinks loses either.
Result<void> add_multipath(NodeNetwork& node) {
  constexpr int kTries = 5;  // the table may change during a dump
  for (const int family : {AF_INET, AF_INET6}) {
    rtmsg header{};
    header.rtm_family = static_cast<unsigned char>(family);
    for (int attempt = 1;; ++attempt) {
      auto socket = TRY(netlink::Socket::open(NETLINK_ROUTE));
      auto done = socket.request(RTM_GETROUTE, NLM_F_DUMP, netlink::bytes_of(header),
                                 [&](const auto& message) { return add_default_hops(message, node); });
      if (done) break;
      if (done.error().code != EINTR || attempt == kTries) return std::move(done).error();
    }
  }
  return {};
}

}  // namespace

Result<NodeNetwork> read_node_network(bool for_moves) {
  auto network = netlink::read_network(false);
  if (!network) return fabric::wrap(std::move(network).error(), "read the node's network");
  NodeNetwork node;
  node.netdevs = std::move(network->netdevs);
  node.routes = std::move(network->routes);
  if (!for_moves) return node;
  if (auto added = add_multipath(node); !added) {
    return fabric::wrap(std::move(added).error(), "read the node's default routes");
  }
  const std::string tcp = TRY(read_sockets("/proc/net/tcp"));
  const std::string tcp6 = TRY(read_sockets("/proc/net/tcp6"));
  node.services = service_addresses(tcp, tcp6);
  return node;
}

}  // namespace hook
