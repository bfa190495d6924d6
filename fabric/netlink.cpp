#include "fabric/netlink.hpp"

#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>

namespace fabric::netlink {
namespace {

constexpr std::size_t kMaxRoutes = 4096;  // a snapshot of a BGP router must stay readable
constexpr int kDumpTries = 5;

struct FreeSocket {
  void operator()(nl_sock* socket) const { nl_socket_free(socket); }
};
using Socket = std::unique_ptr<nl_sock, FreeSocket>;

// Returns false to stop reading the dump.
using Handler = std::function<bool(nlmsghdr*)>;

int on_message(nl_msg* message, void* context) {
  return (*static_cast<Handler*>(context))(nlmsg_hdr(message)) ? NL_OK : NL_STOP;
}

Result<Socket> open_socket() {
  Socket socket(nl_socket_alloc());
  if (!socket) return sys_error(ENOMEM, "open rtnetlink socket");
  if (const int error = nl_connect(socket.get(), NETLINK_ROUTE); error < 0) {
    return make_error("open rtnetlink socket: {}", nl_geterror(error));
  }
  return socket;
}

// One dump on a socket of its own, so that a dump that was stopped early leaves nothing behind for the next.
// Runs again from the start when the kernel says that the table changed meanwhile (NLM_F_DUMP_INTR).
template <typename Header>
Result<void> dump(int type, const Header& header, const std::function<void()>& restart, Handler handler) {
  int error = 0;
  for (int attempt = 0; attempt < kDumpTries; ++attempt) {
    restart();
    Socket socket = TRY(open_socket());
    nl_socket_modify_cb(socket.get(), NL_CB_VALID, NL_CB_CUSTOM, on_message, &handler);
    Header copy = header;
    error = nl_send_simple(socket.get(), type, NLM_F_DUMP, &copy, sizeof copy);
    if (error >= 0) error = nl_recvmsgs_default(socket.get());
    if (error >= 0) return {};
    if (error != -NLE_DUMP_INTR) break;
  }
  return make_error("rtnetlink dump {}: {}", type, nl_geterror(error));
}

// IF_OPER_* in the words of /sys/class/net/*/operstate (net/core/net-sysfs.c, 6.12).
const char* operstate_name(unsigned state) {
  constexpr std::array kNames = {"unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"};
  return state < kNames.size() ? kNames[state] : "unknown";
}

std::string mac_text(const nlattr* attribute) {
  const auto* bytes = static_cast<const unsigned char*>(nla_data(attribute));
  std::string text;
  for (int i = 0; i < nla_len(attribute); ++i) {
    fmt::format_to(std::back_inserter(text), "{}{:02x}", i == 0 ? "" : ":", bytes[i]);
  }
  return text;
}

std::optional<Netdev> parse_link(nlmsghdr* message) {
  std::array<nlattr*, IFLA_MAX + 1> attributes{};
  if (nlmsg_parse(message, sizeof(ifinfomsg), attributes.data(), IFLA_MAX, nullptr) < 0) return std::nullopt;
  const auto* header = static_cast<const ifinfomsg*>(nlmsg_data(message));
  const nlattr* name = attributes[IFLA_IFNAME];
  if (!name || nla_len(name) < 1) return std::nullopt;
  Netdev netdev;
  netdev.name = nla_get_string(name);
  netdev.ifindex = header->ifi_index;
  netdev.type = header->ifi_type;
  netdev.in_this_netns = true;
  if (const nlattr* mac = attributes[IFLA_ADDRESS]) netdev.mac = mac_text(mac);
  if (const nlattr* mtu = attributes[IFLA_MTU]) netdev.mtu = static_cast<int>(nla_get_u32(mtu));
  const nlattr* operstate = attributes[IFLA_OPERSTATE];
  netdev.operstate = operstate_name(operstate ? nla_get_u8(operstate) : 0);
  const nlattr* carrier = attributes[IFLA_CARRIER];
  // As reading /sys/class/net/*/carrier does while the netdev is administratively down.
  if ((header->ifi_flags & IFF_UP) == 0) {
    netdev.carrier = Unreadable{EINVAL};
  } else {
    netdev.carrier = carrier ? static_cast<int>(nla_get_u8(carrier)) : 1;
  }
  if (const nlattr* lower = attributes[IFLA_LINK]) netdev.lower_ifindex = static_cast<int>(nla_get_u32(lower));
  if (const nlattr* netns = attributes[IFLA_LINK_NETNSID]) netdev.lower_netns_id = static_cast<int>(nla_get_u32(netns));
  if (const nlattr* master = attributes[IFLA_MASTER]) netdev.master_ifindex = static_cast<int>(nla_get_u32(master));
  if (nlattr* info = attributes[IFLA_LINKINFO]) {
    std::array<nlattr*, IFLA_INFO_MAX + 1> nested{};
    if (nla_parse_nested(nested.data(), IFLA_INFO_MAX, info, nullptr) == 0 && nested[IFLA_INFO_KIND]) {
      netdev.kind = nla_get_string(nested[IFLA_INFO_KIND]);
    }
  }
  return netdev;
}

std::optional<Address> address_from(int family, const nlattr* attribute) {
  const auto* bytes = static_cast<const std::uint8_t*>(nla_data(attribute));
  Address address;
  if (family == AF_INET && nla_len(attribute) == 4) {
    address.bytes[10] = address.bytes[11] = 0xff;
    std::copy_n(bytes, 4, address.bytes.begin() + 12);
    return address;
  }
  if (family == AF_INET6 && nla_len(attribute) == 16) {
    std::copy_n(bytes, 16, address.bytes.begin());
    return address;
  }
  return std::nullopt;
}

void add_address(std::vector<Netdev>& netdevs, nlmsghdr* message) {
  std::array<nlattr*, IFA_MAX + 1> attributes{};
  if (nlmsg_parse(message, sizeof(ifaddrmsg), attributes.data(), IFA_MAX, nullptr) < 0) return;
  const auto* header = static_cast<const ifaddrmsg*>(nlmsg_data(message));
  // On a point-to-point link IFA_ADDRESS is the peer's.
  const nlattr* own = attributes[IFA_LOCAL] ? attributes[IFA_LOCAL] : attributes[IFA_ADDRESS];
  const auto address = own ? address_from(header->ifa_family, own) : std::nullopt;
  const auto netdev = std::find_if(netdevs.begin(), netdevs.end(), [&](const Netdev& candidate) {
    return candidate.ifindex == static_cast<int>(header->ifa_index);
  });
  if (!address || netdev == netdevs.end()) return;
  const unsigned prefix = header->ifa_prefixlen;
  netdev->addresses.push_back({*address, prefix, fmt::format("{}/{}", to_string(*address), prefix)});
}

std::string name_of(const std::vector<Netdev>& netdevs, int ifindex) {
  for (const Netdev& netdev : netdevs) {
    if (netdev.ifindex == ifindex) return netdev.name;
  }
  return {};
}

// Appends what the message says; false when the dump may stop. The kernel walks a table in key order, so after the
// first destination other than zero no default route can follow in it (net/ipv4/fib_trie.c, fib_table_dump()).
bool add_route(const std::vector<Netdev>& netdevs, bool all, std::vector<Route>& routes, nlmsghdr* message) {
  std::array<nlattr*, RTA_MAX + 1> attributes{};
  if (nlmsg_parse(message, sizeof(rtmsg), attributes.data(), RTA_MAX, nullptr) < 0) return true;
  const auto* header = static_cast<const rtmsg*>(nlmsg_data(message));
  const unsigned table = attributes[RTA_TABLE] ? nla_get_u32(attributes[RTA_TABLE]) : header->rtm_table;
  const auto dst = attributes[RTA_DST] ? address_from(header->rtm_family, attributes[RTA_DST]) : std::nullopt;
  if (!all) {
    if (table != RT_TABLE_MAIN) return true;
    if (header->rtm_dst_len != 0) return !(header->rtm_family == AF_INET && dst && dst->bytes[12] != 0);
  }
  if (header->rtm_type != RTN_UNICAST || (header->rtm_flags & RTM_F_CLONED) != 0) return true;
  const std::string text = header->rtm_dst_len == 0 ? header->rtm_family == AF_INET ? "0.0.0.0/0" : "::/0"
                           : dst ? fmt::format("{}/{}", to_string(*dst), static_cast<unsigned>(header->rtm_dst_len))
                                 : std::string();
  const auto add = [&](int ifindex) {
    const std::string dev = name_of(netdevs, ifindex);
    if (!text.empty() && !dev.empty()) routes.push_back(Route{text, dev, table});
  };
  if (const nlattr* out = attributes[RTA_OIF]) {
    add(static_cast<int>(nla_get_u32(out)));
  } else if (const nlattr* hops = attributes[RTA_MULTIPATH]; hops && nla_len(hops) >= static_cast<int>(sizeof(rtnexthop))) {
    add(static_cast<const rtnexthop*>(nla_data(hops))->rtnh_ifindex);
  }
  return routes.size() < kMaxRoutes;
}

// Slaves by name, from the masters that the links name.
void fill_masters(std::vector<Netdev>& netdevs) {
  for (Netdev& netdev : netdevs) {
    if (netdev.master_ifindex == 0) continue;
    netdev.master = name_of(netdevs, netdev.master_ifindex);
    for (Netdev& master : netdevs) {
      if (master.ifindex != netdev.master_ifindex || master.kind != "bond") continue;
      if (!master.slaves) master.slaves.emplace();
      master.slaves->push_back(netdev.name);
    }
  }
}

}  // namespace

Result<Network> read_network(bool all_routes) {
  Network network;
  TRY_VOID(dump(
      RTM_GETLINK, ifinfomsg{}, [&] { network.netdevs.clear(); },
      [&](nlmsghdr* message) {
        if (auto netdev = parse_link(message)) network.netdevs.push_back(std::move(*netdev));
        return true;
      }));
  TRY_VOID(dump(
      RTM_GETADDR, ifaddrmsg{},
      [&] {
        for (Netdev& netdev : network.netdevs) netdev.addresses.clear();
      },
      [&](nlmsghdr* message) {
        add_address(network.netdevs, message);
        return true;
      }));
  for (const int family : {AF_INET, AF_INET6}) {
    rtmsg header{};
    header.rtm_family = static_cast<unsigned char>(family);
    const std::size_t before = network.routes.size();
    TRY_VOID(dump(
        RTM_GETROUTE, header, [&] { network.routes.resize(before); },
        [&](nlmsghdr* message) { return add_route(network.netdevs, all_routes, network.routes, message); }));
  }
  fill_masters(network.netdevs);
  return network;
}

}  // namespace fabric::netlink
