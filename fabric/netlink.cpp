#include "fabric/netlink.hpp"

#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace fabric::netlink {
namespace {

// The kernel remembers the largest buffer that the reader passed to recv(2), and returns at most 32 kB of a dump per
// recv(2) (netlink_dump(), Linux 6.12).
constexpr std::size_t kBufferSize = 32 << 10;
// Of request_all(). A netdev without the statistics takes about 1 kB; a part of a dump is at most as long as the
// buffer, or 8 kB (NLMSG_GOODSIZE) if that is longer.
constexpr std::size_t kPartSize = 8 << 10;
constexpr int kDumpTries = 5;
constexpr time_t kTimeoutSeconds = 5;  // a container must start even if the kernel does not answer

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

// RTM_GETROUTE for one address, which the kernel answers with the entry of its table (inet6_rtm_getroute() of
// net/ipv6/route.c, Linux 6.12; RTM_F_FIB_MATCH: Linux 4.13 and later).
struct RouteQuery {
  rtmsg route{.rtm_family = AF_INET6,
              .rtm_dst_len = 128,
              .rtm_src_len = 0,
              .rtm_tos = 0,
              .rtm_table = 0,
              .rtm_protocol = 0,
              .rtm_scope = 0,
              .rtm_type = 0,
              .rtm_flags = RTM_F_FIB_MATCH};
  nlattr dst_header{NLA_HDRLEN + 16, RTA_DST};
  // An address for documentation (RFC 3849), which no network has: only a default route leads to it.
  std::uint8_t dst[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
};

// Adds the IPv6 default route of the main table by one request: a dump lists some routes for each netdev. Returns false
// if the answer does not show whether there is such a route.
bool look_up_default_ipv6(std::vector<FoundRoute>& routes) {
  auto socket = Socket::open(NETLINK_ROUTE);
  if (!socket) return false;
  const RouteQuery query;
  const auto answered = socket->request(RTM_GETROUTE, 0, bytes_of(query), [&](const Message& message) {
    const auto* const header = message.header<rtmsg>();
    return !header || header->rtm_dst_len != 0 || add_route(false, routes, message);
  });
  return answered ? !routes.empty() : answered.error().code == ENETUNREACH;
}

// Appends a request to the bytes of a datagram.
void append_request(std::vector<std::uint8_t>& datagram, unsigned type, unsigned flags, std::uint32_t sequence,
                    Bytes payload) {
  nlmsghdr header{};
  header.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(payload.size()));
  header.nlmsg_type = static_cast<std::uint16_t>(type);
  header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  header.nlmsg_seq = sequence;
  const Bytes bytes = bytes_of(header);
  datagram.insert(datagram.end(), bytes.begin(), bytes.end());
  datagram.insert(datagram.end(), payload.begin(), payload.end());
  datagram.resize(NLMSG_ALIGN(datagram.size()));
}

// Receives several datagrams with one system call.
class Datagrams {
 public:
  Datagrams() {
    for (std::size_t i = 0; i < headers_.size(); ++i) {
      pieces_[i] = {buffers_[i], kPartSize};
      headers_[i].msg_hdr.msg_iov = &pieces_[i];
      headers_[i].msg_hdr.msg_iovlen = 1;
    }
  }
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  // Waits for the first datagram only. Errors: the errno of recvmmsg(2), EMSGSIZE for a datagram that was cut.
  Result<std::vector<Bytes>> receive(int fd) {
    const auto count =
        TEMP_FAILURE_RETRY(::recvmmsg(fd, headers_.data(), Socket::kMostQueries, MSG_WAITFORONE, nullptr));
    if (count <= 0) return sys_error(count < 0 ? errno : EPROTO, "receive netlink answers");
    std::vector<Bytes> datagrams;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      if ((headers_[i].msg_hdr.msg_flags & MSG_TRUNC) != 0) return sys_error(EMSGSIZE, "receive a netlink answer");
      datagrams.emplace_back(buffers_[i], headers_[i].msg_len);
    }
    return datagrams;
  }

 private:
  alignas(nlmsghdr) std::uint8_t buffers_[Socket::kMostQueries][kPartSize];
  std::array<iovec, Socket::kMostQueries> pieces_{};
  std::array<mmsghdr, Socket::kMostQueries> headers_{};
};

// A netlink attribute with the index of an RDMA device.
struct DeviceIndex {
  nlattr header{sizeof(DeviceIndex), RDMA_NLDEV_ATTR_DEV_INDEX};
  std::uint32_t index = 0;
};

// Sends a request to RDMA netlink and passes the attributes of each answer. Returns false on any error.
bool query_rdma(Socket& socket, unsigned command, unsigned flags, Bytes payload,
                const std::function<void(const Attributes&)>& handler) {
  const auto pass = [&](const Message& message) {
    handler(message.attributes(0));
    return true;
  };
  return socket.request(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), flags, payload, pass).has_value();
}

constexpr unsigned kPrivilegedQkeyMode = 96;  // RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE, Linux 6.7

std::optional<NetnsMode> query_netns_mode(Socket& socket) {
  std::optional<NetnsMode> answer;
  query_rdma(socket, RDMA_NLDEV_CMD_SYS_GET, 0, {}, [&](const Attributes& attributes) {
    if (const auto mode = attributes.u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE)) {
      // 1 is shared (ib_devices_shared_netns, drivers/infiniband/core/device.c).
      answer = *mode != 0 ? NetnsMode::kShared : NetnsMode::kExclusive;
    }
  });
  return answer;
}

}  // namespace

std::optional<NextMessage> next_message(Bytes& rest) {
  const auto header = value_of<nlmsghdr>(rest);
  if (!header || header->nlmsg_len < sizeof *header || header->nlmsg_len > rest.size()) return std::nullopt;
  const Bytes body = rest.subspan(NLMSG_HDRLEN, header->nlmsg_len - NLMSG_HDRLEN);
  rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(header->nlmsg_len), rest.size()));
  return NextMessage{*header, body};
}

Attributes::Attributes(Bytes bytes) {
  constexpr std::size_t kUsualSize = 24;  // of an attribute of a link
  entries_.reserve(bytes.size() / kUsualSize);
  while (const auto header = value_of<nlattr>(bytes)) {
    // A wrong length makes the rest of the message unreadable.
    if (header->nla_len < sizeof *header || header->nla_len > bytes.size()) return;
    // NLA_TYPE_MASK clears the flags for nested and byte-ordered attributes.
    entries_.emplace_back(header->nla_type & NLA_TYPE_MASK, bytes.subspan(NLA_HDRLEN, header->nla_len - NLA_HDRLEN));
    bytes = bytes.subspan(std::min<std::size_t>(NLA_ALIGN(header->nla_len), bytes.size()));
  }
}

Bytes Attributes::get(unsigned type) const {
  const auto found = std::ranges::find(entries_, type, &std::pair<unsigned, Bytes>::first);
  return found == entries_.end() ? Bytes() : found->second;
}

std::optional<std::string> Attributes::text(unsigned type) const {
  const Bytes bytes = get(type);
  if (bytes.empty()) return std::nullopt;
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  // The terminating zero may be missing in a malformed attribute.
  return std::string(begin, strnlen(begin, bytes.size()));
}

Result<Socket> Socket::open(int protocol) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd.ok()) return sys_error(errno, "open netlink socket (protocol {})", protocol);
  const timeval timeout{kTimeoutSeconds, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  return Socket(std::move(fd));
}

Result<void> Socket::request(unsigned type, unsigned flags, Bytes payload,
                             const std::function<bool(const Message&)>& handler) {
  // NLM_F_DUMP consists of two bits, and one of them alone is NLM_F_ROOT. So both bits must be set.
  const bool dump = (flags & NLM_F_DUMP) == NLM_F_DUMP;
  std::vector<std::uint8_t> request;
  append_request(request, type, flags, ++sequence_, payload);
  if (::send(fd_.get(), request.data(), request.size(), 0) < 0)
    return sys_error(errno, "netlink request of type {}", type);

  alignas(nlmsghdr) std::uint8_t buffer[kBufferSize];
  bool interrupted = false;
  for (;;) {
    const ssize_t count = TEMP_FAILURE_RETRY(::recv(fd_.get(), buffer, sizeof buffer, 0));
    if (count <= 0)
      return sys_error(count < 0 ? errno : EPROTO, "receive the netlink answer to a request of type {}", type);
    Bytes rest(buffer, static_cast<std::size_t>(count));
    while (const auto answer = next_message(rest)) {
      const auto& [head, body] = *answer;
      // This message answers an earlier request on the socket.
      if (head.nlmsg_seq != sequence_) continue;
      // NLM_F_DUMP_INTR: the table changed during the dump. Any part may have it; EINTR is returned after the last
      // part.
      interrupted |= (head.nlmsg_flags & NLM_F_DUMP_INTR) != 0;
      if (head.nlmsg_type == NLMSG_DONE || head.nlmsg_type == NLMSG_ERROR) {
        // NLMSG_ERROR with code 0 is an acknowledgement.
        const int code = value_of<int>(body).value_or(0);
        if (code < 0) return sys_error(errno_of(code), "netlink request of type {}", type);
        if (interrupted) return sys_error(EINTR, "the kernel's list changed during a netlink request of type {}", type);
        return {};
      }
      if (!handler(Message{head.nlmsg_type, body}) || !dump) return {};
    }
  }
}

bool Socket::set_strict() {
  constexpr int kOn = 1;
  return ::setsockopt(fd_.get(), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &kOn, sizeof kOn) == 0;
}

// recvmmsg(2) waits for the first answer only. The kernel has queued the answers to single requests before send(2)
// returns, and each receive of a part of a dump queues the next part (netlink_recvmsg(), Linux 6.12).
Result<std::vector<int>> Socket::request_all(std::span<const Query> queries,
                                             const std::function<void(std::size_t query, const Message&)>& handler) {
  const std::uint32_t first = sequence_ + 1;
  std::vector<std::uint8_t> requests;
  for (const Query& query : queries)
    append_request(requests, query.type, query.flags, ++sequence_, query.payload);
  if (::send(fd_.get(), requests.data(), requests.size(), 0) < 0) return sys_error(errno, "send netlink requests");
  Datagrams datagrams;
  std::vector<int> codes(queries.size(), 0);
  bool interrupted = false;
  for (std::size_t open = queries.size(); open > 0;) {
    for (Bytes rest : TRY(datagrams.receive(fd_.get()))) {
      while (const auto answer = next_message(rest)) {
        const auto& [head, body] = *answer;
        const std::size_t query = head.nlmsg_seq - first;
        if (query >= queries.size()) continue;
        interrupted |= (head.nlmsg_flags & NLM_F_DUMP_INTR) != 0;
        const bool ends = head.nlmsg_type == NLMSG_DONE || head.nlmsg_type == NLMSG_ERROR;
        if (ends) codes[query] = errno_of(value_of<int>(body).value_or(0));
        if (!ends) handler(query, Message{head.nlmsg_type, body});
        if ((ends || queries[query].flags == 0) && open > 0) --open;
      }
    }
  }
  if (interrupted) return sys_error(EINTR, "the kernel's lists changed during netlink requests");
  return codes;
}

Result<void> dump(unsigned type, Bytes header, const std::function<void()>& restart,
                  const std::function<bool(const Message&)>& handler) {
  for (int attempt = 1;; ++attempt) {
    restart();
    Socket socket = TRY(Socket::open(NETLINK_ROUTE));
    auto done = socket.request(type, NLM_F_DUMP, header, handler);
    // Only EINTR is worth another attempt: the table changed during the dump. On a busy node this may happen each time,
    // so the last attempt returns the error.
    if (done || done.error().code != EINTR || attempt == kDumpTries) return done;
  }
}

std::optional<Address> to_address(unsigned family, Bytes bytes) {
  constexpr std::size_t kIpv4Size = 4;
  Address address;
  if (bytes.size() != (family == AF_INET ? kIpv4Size : address.bytes.size())) return std::nullopt;
  if (family == AF_INET) address.bytes[10] = address.bytes[11] = 0xff;
  std::copy(bytes.begin(), bytes.end(), address.bytes.end() - static_cast<std::ptrdiff_t>(bytes.size()));
  return address;
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
  const unsigned prefix = header->ifa_prefixlen;
  netdev->addresses.push_back({*address, prefix, fmt::format("{}/{}", to_string(*address), prefix)});
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
  std::vector<std::pair<std::uint32_t, std::string>> devices;
  const bool listed = query_rdma(*socket, RDMA_NLDEV_CMD_GET, NLM_F_DUMP, {}, [&](const Attributes& attributes) {
    const auto index = attributes.u32(RDMA_NLDEV_ATTR_DEV_INDEX);
    auto name = attributes.text(RDMA_NLDEV_ATTR_DEV_NAME);
    if (index && name) devices.emplace_back(*index, std::move(*name));
  });
  if (!listed) return std::nullopt;
  RdmaAnswer answer;
  for (const auto& [index, name] : devices) {
    answer.port_netdevs.hcas.insert(name);
    const DeviceIndex device{.index = index};
    // A dump of ports must name its device (nldev_port_get_dumpit(), Linux 6.12), so each device gets one request. If a
    // device is removed meanwhile, its request fails and the requests for the remaining devices continue.
    query_rdma(*socket, RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP, bytes_of(device),
               [&, &hca = name](const Attributes& attributes) {
                 const auto port = attributes.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
                 auto netdev = attributes.text(RDMA_NLDEV_ATTR_NDEV_NAME);
                 if (port && netdev) answer.port_netdevs.netdevs[{hca, *port}] = std::move(*netdev);
               });
  }
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
  if (socket) query_rdma(*socket, RDMA_NLDEV_CMD_SYS_GET, 0, {}, take);
  return on;
}

std::optional<bool> privileged_qkey_of(const Attributes& answer) {
  const auto mode = answer.u8(kPrivilegedQkeyMode);
  return mode ? std::optional(*mode != 0) : std::nullopt;
}

}  // namespace fabric::netlink
