#include "fabric/node_events.hpp"

#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <functional>

namespace fabric {
namespace {

// Multicast group RDMA_NL_GROUP_NOTIFY, for changes of RDMA devices. Source: include/uapi/rdma/rdma_netlink.h,
// Linux 6.12.
constexpr unsigned kRdmaNotify = 4;
// Multicast group of the uevents that the kernel sends; udev sends its own to another group.
constexpr std::uint32_t kKernelUevents = 1;
// Room for events between two requests. More events are lost, and the node is then read whole.
constexpr int kEventBytes = 1 << 20;

constexpr std::uint32_t group_bit(unsigned group) {
  return 1U << (group - 1);
}

// Opens the socket if it is not open. A kernel without this protocol or group refuses the socket or the bind.
void listen(UniqueFd& socket, int protocol, std::uint32_t groups) {
  if (socket.ok()) return;
  socket = UniqueFd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
  if (!socket.ok()) return;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = groups;
  // The call needs CAP_NET_ADMIN; without it the buffer keeps its usual size.
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kEventBytes, sizeof kEventBytes);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) socket.reset();
}

bool has(const NetdevsOfInventory& netdevs, std::optional<std::uint32_t> index) {
  return index && netdevs.indexes.contains(*index);
}

bool is_link_about(const netlink::Message& message, const NetdevsOfInventory& netdevs) {
  const auto* const link = message.header<ifinfomsg>();
  if (!link) return true;
  const netlink::Attributes attributes = message.attributes(sizeof(ifinfomsg));
  const auto name = attributes.text(IFLA_IFNAME);
  return !name || netdevs.names.contains(*name) || has(netdevs, static_cast<std::uint32_t>(link->ifi_index)) ||
         has(netdevs, attributes.u32(IFLA_MASTER)) || has(netdevs, attributes.u32(IFLA_LINK));
}

bool is_message_about(const netlink::Message& message, const NetdevsOfInventory& netdevs) {
  switch (message.type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
      return is_link_about(message, netdevs);
    case RTM_NEWADDR:
    case RTM_DELADDR: {
      const auto* const address = message.header<ifaddrmsg>();
      return !address || has(netdevs, address->ifa_index);
    }
    default:
      return true;
  }
}

// Calls matters() for each pending datagram. Returns true if one matters, if events were lost or cut, or if the socket
// failed. Closes the socket then.
bool take_all(UniqueFd& socket, const std::function<bool(netlink::Bytes)>& matters) {
  std::array<std::uint8_t, 32768> buffer;
  bool any = false;
  while (socket.ok()) {
    const ssize_t size = ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0 && errno == ENOBUFS) {  // the kernel dropped events, and has kept later ones
      any = true;
      continue;
    }
    if (size <= 0) {
      socket.reset();
      return true;
    }
    const auto length = static_cast<std::size_t>(size);
    any = any || length > buffer.size() || matters({buffer.data(), length});
  }
  return any;
}

}  // namespace

NetdevsOfInventory netdevs_of(const Inventory& inventory, bool addresses) {
  NetdevsOfInventory netdevs;
  for (const Hca& hca : inventory.hcas) {
    for (const Port& port : hca.ports)
      if (port.netdev) netdevs.names.insert(*port.netdev);
  }
  for (const Netdev& netdev : inventory.netdevs) {
    netdevs.names.insert(netdev.name);
    if (netdev.master) netdevs.names.insert(*netdev.master);
    if (netdev.ifindex > 0) netdevs.indexes.insert(static_cast<unsigned>(netdev.ifindex));
    netdevs.all = netdevs.all || (addresses && netdev.ifindex <= 0);
  }
  return netdevs;
}

bool is_about(netlink::Bytes messages, const NetdevsOfInventory& netdevs) {
  if (netdevs.all) return true;
  while (!messages.empty()) {
    const auto message = netlink::next_message(messages);
    if (!message || is_message_about(*message, netdevs)) return true;
  }
  return false;
}

bool is_of_inventory(std::string_view uevent) {
  const auto has = [&](std::string_view text) { return uevent.find(text) != std::string_view::npos; };
  if (!has("SUBSYSTEM=net")) return has("SUBSYSTEM=infiniband") || has("SUBSYSTEM=misc") || has("SUBSYSTEM=pci");
  return !has("/devices/virtual/") || has("ACTION=move");
}

bool NodeEvents::open() {
  listen(links_, NETLINK_ROUTE,
         group_bit(RTNLGRP_LINK) | group_bit(RTNLGRP_IPV4_IFADDR) | group_bit(RTNLGRP_IPV6_IFADDR));
  listen(rdma_, NETLINK_RDMA, group_bit(kRdmaNotify));
  listen(uevents_, NETLINK_KOBJECT_UEVENT, kKernelUevents);
  return receives_all();
}

std::vector<int> NodeEvents::fds() const {
  std::vector<int> fds;
  for (const UniqueFd* socket : {&links_, &rdma_, &uevents_})
    if (socket->ok()) fds.push_back(socket->get());
  return fds;
}

bool NodeEvents::take(const NetdevsOfInventory& netdevs) {
  std::array<pollfd, 3> sockets = {{{links_.get(), POLLIN, 0}, {rdma_.get(), POLLIN, 0}, {uevents_.get(), POLLIN, 0}}};
  if (::poll(sockets.data(), sockets.size(), 0) == 0) return false;  // ignores a descriptor of -1
  const bool links = take_all(links_, [&](netlink::Bytes messages) { return is_about(messages, netdevs); });
  const bool rdma = take_all(rdma_, [](netlink::Bytes) { return true; });
  const bool uevents = take_all(uevents_, [](netlink::Bytes message) {
    return is_of_inventory({reinterpret_cast<const char*>(message.data()), message.size()});
  });
  return links || rdma || uevents;
}

}  // namespace fabric
