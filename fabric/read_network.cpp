#include "fabric/read_network.hpp"

#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

#include <array>

namespace fabric::netlink {
namespace {

constexpr std::size_t kMaxRoutes = 4096;  // a BGP router has a million routes; a snapshot must stay readable

// Returns the word of /sys/class/net/*/operstate for IF_OPER_* (net/core/net-sysfs.c, Linux 6.12).
const char* operstate_name(unsigned state) {
  constexpr std::array kNames = {"unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"};
  return state < kNames.size() ? kNames[state] : "unknown";
}

std::string name_of(const std::vector<Netdev>& netdevs, int ifindex) {
  const auto found = std::ranges::find(netdevs, ifindex, &Netdev::ifindex);
  return found == netdevs.end() ? std::string() : found->name;
}

// Returns the ifindex of a route's netdev; a multipath route yields the netdev of its first hop.
int out_ifindex(const Attributes& attributes) {
  if (const auto out = attributes.u32(RTA_OIF)) return static_cast<int>(*out);
  const Bytes hops = attributes.get(RTA_MULTIPATH);
  return hops.size() < sizeof(rtnexthop) ? 0 : reinterpret_cast<const rtnexthop*>(hops.data())->rtnh_ifindex;
}

// Appends the route of a message. Returns false if the dump may stop: kMaxRoutes routes were read, or `all` is false
// and no default route can follow. The kernel walks an IPv4 table in key order, so no default route follows the first
// destination other than zero (net/ipv4/fib_trie.c, fib_table_dump()).
bool add_route(bool all, std::vector<FoundRoute>& routes, const Message& message) {
  const auto* header = message.header<rtmsg>();
  if (!header || message.type != RTM_NEWROUTE) return true;
  const Attributes attributes = message.attributes(sizeof *header);
  // rtm_table has eight bits. Only the attribute RTA_TABLE can name a table above 255.
  const unsigned table = attributes.u32(RTA_TABLE).value_or(header->rtm_table);
  const auto dst = to_address(header->rtm_family, attributes.get(RTA_DST));
  const bool is_default = header->rtm_dst_len == 0;
  if (!all) {
    if (table != RT_TABLE_MAIN) return true;
    // After an IPv4 destination other than zero, no default route follows, so the dump stops. IPv6 tables are not
    // dumped in key order and are read to the end.
    if (!is_default) return !(header->rtm_family == AF_INET && dst && dst->bytes[12] != 0);
  }
  // Skip local and blackhole routes, because they lead to no other node, and cloned routes, which are cache entries.
  if (header->rtm_type != RTN_UNICAST || (header->rtm_flags & RTM_F_CLONED) != 0) return true;
  if (!is_default && !dst) return true;
  const std::string any = header->rtm_family == AF_INET ? "0.0.0.0/0" : "::/0";
  routes.push_back(
      {{is_default ? any : fmt::format("{}/{}", to_string(*dst), unsigned{header->rtm_dst_len}), "", table},
       out_ifindex(attributes)});
  return routes.size() < kMaxRoutes;
}

// Appends the routes of a family.
Result<void> read_routes(int family, bool all, std::vector<FoundRoute>& routes) {
  rtmsg header{};
  header.rtm_family = static_cast<unsigned char>(family);
  // If the dump is repeated, keep the routes of the other family, which were read before.
  const std::size_t before = routes.size();
  return dump(
      RTM_GETROUTE, bytes_of(header), [&] { routes.resize(before); },
      [&](const Message& message) { return add_route(all, routes, message); });
}

// Adds the IPv6 default route of the main table by one request: a dump lists some routes for each netdev. Returns false
// if the answer does not show whether there is such a route. The kernel answers with the entry of its table
// (inet6_rtm_getroute() of net/ipv6/route.c, Linux 6.12; RTM_F_FIB_MATCH: Linux 4.13 and later).
bool look_up_default_ipv6(std::vector<FoundRoute>& routes) {
  auto socket = Socket::open(NETLINK_ROUTE);
  if (!socket) return false;
  rtmsg route{};
  route.rtm_family = AF_INET6;
  route.rtm_dst_len = 128;
  route.rtm_flags = RTM_F_FIB_MATCH;
  Query query(RTM_GETROUTE, 0, route);
  // An address for documentation (RFC 3849), which no network has: only a default route leads to it.
  constexpr std::uint8_t kNowhere[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  query.put(RTA_DST, Bytes(kNowhere));
  const auto answered = socket->request(std::move(query), [&](const Message& message) {
    const auto* const header = message.header<rtmsg>();
    return !header || header->rtm_dst_len != 0 || add_route(false, routes, message);
  });
  return answered ? !routes.empty() : answered.error().code == ENETUNREACH;
}

// Starts a query of RDMA netlink, which has no fixed header: the attributes follow at once.
Query rdma_query(unsigned command, unsigned flags = 0) {
  return {RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), flags, Bytes()};
}

// Sends a request to RDMA netlink and passes the attributes of each answer. Returns false on any error.
bool query_rdma(Socket& socket, Query request, const std::function<void(const Attributes&)>& handler) {
  const auto pass = [&](const Message& message) {
    handler(message.attributes(0));
    return true;
  };
  return socket.request(std::move(request), pass).has_value();
}

// Requests for ports. A dump of ports must name its device (nldev_port_get_dumpit(), Linux 6.12), so a request for each
// port, several in one message, takes fewer system calls.
class RdmaPorts {
 public:
  void add(std::uint32_t device, const std::string& hca, std::uint32_t last_port) {
    constexpr std::uint32_t kMostPorts = 255;  // a port number is a byte in verbs
    for (std::uint32_t port = 1; port <= std::min(last_port, kMostPorts); ++port) {
      Query query = rdma_query(RDMA_NLDEV_CMD_PORT_GET);
      query.put(RDMA_NLDEV_ATTR_DEV_INDEX, device);
      query.put(RDMA_NLDEV_ATTR_PORT_INDEX, port);
      queries_.push_back(std::move(query));
      ports_.emplace_back(hca, port);
    }
  }

  // Adds the netdevs of the ports. If a device is removed meanwhile, the requests for its ports fail and the remaining
  // ones continue. Returns false if the answers cannot be received.
  bool read(Socket& socket, rdma_sysfs::PortNetdevs& found) {
    for (std::size_t begin = 0; begin < queries_.size(); begin += Socket::kMostQueries) {
      const std::size_t count = std::min(queries_.size() - begin, Socket::kMostQueries);
      const auto answered =
          socket.request_all(std::span(queries_).subspan(begin, count), [&](std::size_t query, const Message& message) {
            const Attributes attributes = message.attributes(0);
            auto netdev = attributes.text(RDMA_NLDEV_ATTR_NDEV_NAME);
            if (netdev) found.netdevs[ports_[begin + query]] = std::move(*netdev);
            const auto prefix = attributes.u64(RDMA_NLDEV_ATTR_SUBNET_PREFIX);  // InfiniBand only, in host byte order
            if (!prefix) return;
            std::string& bytes = found.subnets[ports_[begin + query]];
            for (int shift = 56; shift >= 0; shift -= 8)
              bytes += static_cast<char>(*prefix >> shift);
          });
      if (!answered) return false;
    }
    return true;
  }

 private:
  std::vector<Query> queries_;
  std::vector<std::pair<std::string, unsigned>> ports_;  // HCA and port of each query
};

constexpr unsigned kPrivilegedQkeyMode = 96;  // RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE, Linux 6.7

std::optional<NetnsMode> query_netns_mode(Socket& socket) {
  std::optional<NetnsMode> answer;
  query_rdma(socket, rdma_query(RDMA_NLDEV_CMD_SYS_GET), [&](const Attributes& attributes) {
    if (const auto mode = attributes.u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE)) {
      // 1 is shared (ib_devices_shared_netns, drivers/infiniband/core/device.c).
      answer = *mode != 0 ? NetnsMode::kShared : NetnsMode::kExclusive;
    }
  });
  return answer;
}

}  // namespace

std::optional<Address> to_address(unsigned family, Bytes bytes) {
  constexpr std::size_t kIpv4Size = 4;
  Address address;
  if (bytes.size() != (family == AF_INET ? kIpv4Size : address.bytes.size())) return std::nullopt;
  if (family == AF_INET) address.bytes[10] = address.bytes[11] = 0xff;
  std::ranges::copy(bytes, address.bytes.end() - static_cast<std::ptrdiff_t>(bytes.size()));
  return address;
}

std::uint8_t family_of(const Address& address) {
  return address.is_ipv4() ? AF_INET : AF_INET6;
}

Bytes bytes_in_family(const Address& address) {
  return Bytes(address.bytes).subspan(address.is_ipv4() ? 12 : 0);
}

std::optional<Netdev> parse_link(const Message& message) {
  const auto* header = message.header<ifinfomsg>();
  if (!header || message.type != RTM_NEWLINK) return std::nullopt;
  const Attributes attributes = message.attributes(sizeof *header);
  auto name = attributes.text(IFLA_IFNAME);
  if (!name) return std::nullopt;
  Netdev netdev;
  netdev.name = std::move(*name);
  netdev.ifindex = header->ifi_index;
  netdev.type = header->ifi_type;
  netdev.in_this_netns = true;
  if (attributes.has(IFLA_ADDRESS)) netdev.mac = fmt::format("{:02x}", fmt::join(attributes.get(IFLA_ADDRESS), ":"));
  if (const auto mtu = attributes.u32(IFLA_MTU)) netdev.mtu = static_cast<int>(*mtu);
  netdev.operstate = operstate_name(attributes.u8(IFLA_OPERSTATE).value_or(0));
  // Use the value of sysfs: reading /sys/class/net/*/carrier returns EINVAL while the netdev is administratively down.
  if ((header->ifi_flags & IFF_UP) == 0) {
    netdev.carrier = Unreadable{EINVAL};
  } else {
    netdev.carrier = static_cast<int>(attributes.u8(IFLA_CARRIER).value_or(1));
  }
  // If IFLA_LINK_NETNSID is present, the ifindex in IFLA_LINK is of that network namespace, not of this one.
  netdev.lower_ifindex = static_cast<int>(attributes.u32(IFLA_LINK).value_or(0));
  if (const auto netns = attributes.u32(IFLA_LINK_NETNSID)) netdev.lower_netns_id = static_cast<int>(*netns);
  netdev.master_ifindex = static_cast<int>(attributes.u32(IFLA_MASTER).value_or(0));
  if (attributes.has(IFLA_LINKINFO)) netdev.kind = Attributes(attributes.get(IFLA_LINKINFO)).text(IFLA_INFO_KIND);
  return netdev;
}

void add_address(std::vector<Netdev>& netdevs, const Message& message) {
  const auto* header = message.header<ifaddrmsg>();
  if (!header || message.type != RTM_NEWADDR) return;
  const auto netdev = std::ranges::find(netdevs, static_cast<int>(header->ifa_index), &Netdev::ifindex);
  // A netdev that was created after the dump of links is not in the list.
  if (netdev == netdevs.end()) return;
  const Attributes attributes = message.attributes(sizeof *header);
  // On a point-to-point link, IFA_ADDRESS is the address of the peer and IFA_LOCAL the address of the netdev.
  const auto address =
      to_address(header->ifa_family, attributes.get(attributes.has(IFA_LOCAL) ? IFA_LOCAL : IFA_ADDRESS));
  if (!address) return;
  // An IPv6 address ::ffff:a.b.c.d has the GID of IPv4 a.b.c.d, and counts as that address.
  const bool mapped = header->ifa_family == AF_INET6 && address->is_ipv4();
  const unsigned written = header->ifa_prefixlen;
  const unsigned prefix = mapped ? written - std::min(written, 96U) : written;
  InterfaceAddress own{*address, prefix, fmt::format("{}/{}", to_string(*address), prefix)};
  const auto peer = to_address(header->ifa_family, attributes.get(IFA_ADDRESS));
  if (peer && *peer != *address && !mapped) own.peer = peer;
  const std::uint32_t flags = attributes.u32(IFA_FLAGS).value_or(header->ifa_flags);
  own.tentative = (flags & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC)) == IFA_F_TENTATIVE;
  own.dad_failed = (flags & IFA_F_DADFAILED) != 0;
  own.deprecated = (flags & IFA_F_DEPRECATED) != 0;
  own.label = attributes.text(IFA_LABEL).value_or("");
  if (own.label == netdev->name) own.label.clear();
  netdev->addresses.push_back(std::move(own));
}

void fill_masters(std::vector<Netdev>& netdevs) {
  for (Netdev& netdev : netdevs) {
    if (netdev.master_ifindex == 0) continue;
    netdev.master = name_of(netdevs, netdev.master_ifindex);
    const auto master = std::ranges::find(netdevs, netdev.master_ifindex, &Netdev::ifindex);
    if (master == netdevs.end() || master->kind != "bond") continue;
    if (!master->slaves) master->slaves.emplace();
    master->slaves->push_back(netdev.name);
  }
}

// Links are read first, because addresses and routes name a netdev only by its index. Masters are filled last, because
// a slave may precede its master in the dump. A netdev may appear between the dumps of links and of addresses; its
// addresses are then dropped.
Result<std::optional<std::vector<Netdev>>> read_netdevs(std::size_t most) {
  std::vector<Netdev> netdevs;
  TRY_VOID(dump(
      RTM_GETLINK, bytes_of(ifinfomsg{}), [&] { netdevs.clear(); },
      [&](const Message& message) {
        if (auto netdev = parse_link(message)) netdevs.push_back(std::move(*netdev));
        return netdevs.size() <= most;
      }));
  if (netdevs.size() > most) return std::optional<std::vector<Netdev>>();
  TRY_VOID(dump(
      RTM_GETADDR, bytes_of(ifaddrmsg{}),
      [&] {
        for (Netdev& netdev : netdevs)
          netdev.addresses.clear();
      },
      [&](const Message& message) {
        add_address(netdevs, message);
        return true;
      }));
  fill_masters(netdevs);
  return std::optional(std::move(netdevs));
}

Result<std::vector<Netdev>> read_netdevs() {
  return *TRY(read_netdevs(SIZE_MAX));
}

Result<std::vector<FoundRoute>> read_default_routes() {
  std::vector<FoundRoute> routes;
  TRY_VOID(read_routes(AF_INET, false, routes));
  if (routes.empty() && !look_up_default_ipv6(routes)) TRY_VOID(read_routes(AF_INET6, false, routes));
  return routes;
}

std::vector<Route> name_routes(std::vector<FoundRoute> routes, const std::vector<Netdev>& netdevs) {
  std::vector<Route> named;
  for (FoundRoute& found : routes) {
    found.route.dev = name_of(netdevs, found.ifindex);
    if (!found.route.dev.empty()) named.push_back(std::move(found.route));
  }
  return named;
}

Result<Network> read_network(bool all_routes) {
  Network network;
  network.netdevs = TRY(read_netdevs());
  std::vector<FoundRoute> routes;
  for (const int family : {AF_INET, AF_INET6})
    TRY_VOID(read_routes(family, all_routes, routes));
  network.routes = name_routes(std::move(routes), network.netdevs);
  return network;
}

std::optional<RdmaAnswer> read_rdma(bool with_netns_mode) {
  auto socket = Socket::open(NETLINK_RDMA);
  if (!socket) return std::nullopt;
  RdmaAnswer answer;
  RdmaPorts ports;
  bool has_ports = true;
  const bool listed =
      query_rdma(*socket, rdma_query(RDMA_NLDEV_CMD_GET, NLM_F_DUMP), [&](const Attributes& attributes) {
        const auto index = attributes.u32(RDMA_NLDEV_ATTR_DEV_INDEX);
        auto name = attributes.text(RDMA_NLDEV_ATTR_DEV_NAME);
        if (!index || !name) return;
        // For a device, the attribute is the number of its last port (fill_dev_info(), Linux 4.16 to 6.12).
        const auto last_port = attributes.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
        has_ports = has_ports && last_port;
        ports.add(*index, *name, last_port.value_or(0));
        answer.port_netdevs.hcas.insert(std::move(*name));
      });
  if (!listed || !has_ports || !ports.read(*socket, answer.port_netdevs)) return std::nullopt;
  if (with_netns_mode) answer.netns_mode = query_netns_mode(*socket);
  return answer;
}

std::optional<NetnsMode> read_netns_mode() {
  auto socket = Socket::open(NETLINK_RDMA);
  return socket ? query_netns_mode(*socket) : std::nullopt;
}

std::optional<bool> read_privileged_qkey() {
  auto socket = Socket::open(NETLINK_RDMA);
  std::optional<bool> on;
  const auto take = [&](const Attributes& attributes) { on = privileged_qkey_of(attributes); };
  if (socket) query_rdma(*socket, rdma_query(RDMA_NLDEV_CMD_SYS_GET), take);
  return on;
}

std::optional<bool> privileged_qkey_of(const Attributes& answer) {
  const auto mode = answer.u8(kPrivilegedQkeyMode);
  return mode ? std::optional(*mode != 0) : std::nullopt;
}

}  // namespace fabric::netlink
