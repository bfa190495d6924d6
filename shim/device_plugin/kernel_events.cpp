#include "shim/device_plugin/kernel_events.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

namespace shim {
namespace {

// include/uapi/rdma/rdma_netlink.h, Linux 6.12: RDMA_NL_GROUP_NOTIFY.
constexpr unsigned kRdmaNotify = 4;
// Of the kernel's own; udev's are another group.
constexpr std::uint32_t kKernelUevents = 1;

constexpr std::uint32_t group_bit(unsigned group) {
  return 1U << (group - 1);
}

fabric::UniqueFd listening(int protocol, std::uint32_t groups) {
  fabric::UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = groups;
  if (socket.ok() && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    socket.reset();
  return socket;
}

// "add@/devices/...", then NAME=value, each ended by a zero. Other subsystems send many.
bool matters(std::string_view uevent) {
  for (const std::string_view subsystem : {"SUBSYSTEM=infiniband", "SUBSYSTEM=net", "SUBSYSTEM=misc"}) {
    if (uevent.find(subsystem) != std::string_view::npos) return true;
  }
  return false;
}

bool is_of(int socket, int protocol) {
  int own = -1;
  socklen_t size = sizeof own;
  return ::getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &own, &size) == 0 && own == protocol;
}

}  // namespace

KernelEvents KernelEvents::open() {
  KernelEvents events;
  for (const auto& [protocol, groups] :
       {std::pair(NETLINK_ROUTE,
                  group_bit(RTNLGRP_LINK) | group_bit(RTNLGRP_IPV4_IFADDR) | group_bit(RTNLGRP_IPV6_IFADDR)),
        std::pair(NETLINK_RDMA, group_bit(kRdmaNotify)), std::pair(NETLINK_KOBJECT_UEVENT, kKernelUevents)}) {
    if (auto socket = listening(protocol, groups); socket.ok()) events.sockets_.push_back(std::move(socket));
  }
  return events;
}

bool KernelEvents::take() const {
  bool any = false;
  std::array<char, 16384> buffer;
  for (const fabric::UniqueFd& socket : sockets_) {
    const bool filtered = is_of(socket.get(), NETLINK_KOBJECT_UEVENT);
    for (;;) {
      const auto size = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
      if (size < 0 && errno == ENOBUFS) any = true;  // some are lost
      if (size < 0 && errno != ENOBUFS && errno != EINTR) break;
      if (size > 0) any = any || !filtered || matters({buffer.data(), static_cast<std::size_t>(size)});
      if (size == 0) break;
    }
  }
  return any;
}

}  // namespace shim
