#include "hook/rails/plan/plan_rails.hpp"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/result.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "fabric/read_network.hpp"

namespace hook {
namespace {

namespace netlink = fabric::netlink;

// Reads only the first 4 MiB of a table, which list some 28,000 sockets. All listening sockets are among them, because
// the kernel lists listening sockets first. Returns an empty text if there is no such file: tcp6 is missing without
// IPv6.
Result<std::string> read_sockets(const char* path) {
  constexpr std::size_t kLimit = std::size_t{4} << 20;
  constexpr std::size_t kStep = std::size_t{64} << 10;
  const base::UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.ok() && errno == ENOENT) return std::string();
  if (!fd.ok()) return sys_error(errno, "open `{}`", path);
  std::string text;
  while (text.size() < kLimit) {
    const std::size_t used = text.size();
    text.resize(used + kStep);
    const ssize_t count = ::read(fd.get(), text.data() + used, kStep);
    if (count < 0 && errno != EINTR) return sys_error(errno, "read `{}`", path);
    text.resize(used + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) break;
  }
  return text;
}

// Adds the netdevs of a multipath default route in the main table. Returns false if the dump can stop. The kernel lists
// the routes of an IPv4 table in the order of their destinations, so no default route follows a route to 1.0.0.0 or a
// higher address (net/ipv4/fib_trie.c, fib_table_dump(), Linux 6.12).
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
  netlink::each_nexthop(attributes.get(RTA_MULTIPATH), [&](const rtnexthop& hop, netlink::Bytes) {
    const auto netdev = std::ranges::find(node.netdevs, hop.rtnh_ifindex, &fabric::Netdev::ifindex);
    if (netdev == node.netdevs.end()) return;
    fabric::Route route{header->rtm_family == AF_INET ? "0.0.0.0/0" : "::/0", netdev->name, RT_TABLE_MAIN};
    if (std::ranges::find(node.routes, route) == node.routes.end()) node.routes.push_back(std::move(route));
  });
  return true;
}

// Adds all netdevs of multipath default routes, because read_network() reports only the first netdev of such a route. A
// node with two uplinks must keep both uplinks.
Result<void> add_multipath(NodeNetwork& node) {
  for (const int family : {AF_INET, AF_INET6}) {
    rtmsg header{};
    header.rtm_family = static_cast<unsigned char>(family);
    // Keeps all routes when the dump is repeated, because add_default_hops() adds a route only once.
    TRY_VOID(netlink::dump(
        RTM_GETROUTE, netlink::bytes_of(header), [] {},
        [&](const auto& message) { return add_default_hops(message, node); }));
  }
  return {};
}

// The functions below find the services that use an address of the node, in /proc/net/tcp and tcp6 (Linux 6.12
// Documentation/networking/proc_net_tcp.rst, net/ipv4/tcp_ipv4.c, get_tcp4_sock).

constexpr std::uint16_t kSshPort = 22;
constexpr std::uint16_t kKubeletPort = 10250;
constexpr std::uint16_t kApiServerPort = 6443;
constexpr std::uint8_t kEstablished = 1;
constexpr std::uint8_t kListen = 10;

struct Endpoint {
  fabric::Address address;
  std::uint16_t port = 0;
};

// Parses an endpoint such as "0100007F:0016". The kernel prints each 32-bit word of the address as a number in the
// host's byte order.
std::optional<Endpoint> parse_endpoint(std::string_view text) {
  constexpr std::size_t kWordDigits = 8;
  constexpr std::size_t kIpv4Begin = 12;
  Endpoint endpoint;
  const std::size_t colon = text.find(':');
  if (colon != kWordDigits && colon != 4 * kWordDigits) return std::nullopt;
  const bool ipv4 = colon == kWordDigits;
  if (ipv4) endpoint.address.bytes[10] = endpoint.address.bytes[11] = 0xff;
  std::size_t at = ipv4 ? kIpv4Begin : 0;
  for (std::size_t digit = 0; digit < colon; digit += kWordDigits) {
    const auto word = base::parse_number<std::uint32_t>(text.substr(digit, kWordDigits), 16);
    if (!word) return std::nullopt;
    std::memcpy(&endpoint.address.bytes[at], &*word, sizeof *word);
    at += sizeof *word;
  }
  const auto port = base::parse_number<std::uint16_t>(text.substr(colon + 1), 16);
  if (!port) return std::nullopt;
  endpoint.port = *port;
  return endpoint;
}

bool is_wildcard(const fabric::Address& address) {
  constexpr fabric::Address kIpv4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}};
  return address.is_zero() || address == kIpv4;
}

// Returns the service that has this socket; an empty text if its ports belong to no known service.
std::string_view service_of(const Endpoint& local, const Endpoint& remote, std::uint8_t state) {
  if (local.port == kSshPort) return "sshd";
  if (local.port == kKubeletPort) return "kubelet";
  return state == kEstablished && remote.port == kApiServerPort ? "kubelet" : "";
}

// Parses the first words of a line: "0:", local, remote, state. Returns false for the heading and for an incomplete
// line.
bool read_line(std::string_view line, Endpoint& local, Endpoint& remote, std::uint8_t& state) {
  constexpr std::size_t kWords = 4;
  std::array<std::string_view, kWords> words;
  for (std::string_view& word : words) {
    line = base::trim(line);
    const std::size_t end = line.find(' ');
    if (end == std::string_view::npos) return false;
    word = line.substr(0, end);
    line.remove_prefix(end);
  }
  const auto here = parse_endpoint(words[1]);
  const auto there = parse_endpoint(words[2]);
  const auto number = base::parse_number<std::uint8_t>(words[3], 16);
  if (!here || !there || !number) return false;
  local = *here;
  remote = *there;
  state = *number;
  return true;
}

void add_services(std::string_view text, std::map<fabric::Address, std::string>& services) {
  Endpoint local;
  Endpoint remote;
  std::uint8_t state = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const bool complete = read_line(text.substr(0, end), local, remote, state);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!complete || (state != kEstablished && state != kListen)) continue;
    if (is_wildcard(local.address) || local.address.is_loopback()) continue;
    const std::string_view service = service_of(local, remote, state);
    if (service.empty()) continue;
    std::string& known = services[local.address];
    // If sshd and kubelet use the address, "sshd" is reported: the administrator may be logged in by this address.
    if (known.empty() || service == "sshd") known = service;
  }
}

}  // namespace

Result<NodeNetwork> read_node_network(bool for_moves) {
  auto network = netlink::read_network(false);
  if (!network) return base::wrap(std::move(network).error(), "read the node's network");
  NodeNetwork node;
  node.netdevs = std::move(network->netdevs);
  node.routes = std::move(network->routes);
  // Sockets and multipath routes are read only if a netdev moves, because only a move can disconnect the node, and the
  // tables of a busy node are long.
  if (!for_moves) return node;
  if (auto added = add_multipath(node); !added)
    return base::wrap(std::move(added).error(), "read the node's default routes");
  const std::string tcp = TRY(read_sockets("/proc/net/tcp"));
  const std::string tcp6 = TRY(read_sockets("/proc/net/tcp6"));
  node.services = service_addresses(tcp, tcp6);
  return node;
}

std::map<fabric::Address, std::string> service_addresses(std::string_view tcp, std::string_view tcp6) {
  std::map<fabric::Address, std::string> services;
  add_services(tcp, services);
  add_services(tcp6, services);
  return services;
}

}  // namespace hook
