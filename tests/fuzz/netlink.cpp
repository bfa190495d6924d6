// Any answers of a kernel, or of a sandbox that replaces it, to netlink requests: the attribute walk alone, then whole
// dumps. This file replaces socket(2), send(2) and recvfrom(2) of the tested code (linker option --wrap).
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>
#include <sanitizer/asan_interface.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "arbitrary.hpp"
#include "fabric/port_use.hpp"
#include "fabric/read_network.hpp"
#include "require.hpp"

namespace {

using fuzz::require;
using Buffer = std::vector<std::uint8_t>;

constexpr std::size_t kMaxDatagrams = 24;

// The other side of the socket, for one input.
struct Peer {
  FuzzedDataProvider* data = nullptr;
  std::uint32_t sequence = 0;
  std::size_t datagrams = 0;
} peer;

template <typename T>
void append(Buffer& buffer, const T& value) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(&value);
  buffer.insert(buffer.end(), begin, begin + sizeof value);
}

void append_attribute(Buffer& buffer, FuzzedDataProvider& data, int depth) {
  Buffer payload;
  if (depth > 0 && data.ConsumeIntegralInRange(0, 3) == 0) {
    for (auto left = data.ConsumeIntegralInRange(0, 3); left > 0; --left)
      append_attribute(payload, data, depth - 1);
  } else {
    payload = data.ConsumeBytes<std::uint8_t>(data.PickValueInArray<std::size_t>({4, 4, 1, 16, 6, 0, 8, 40}));
  }
  nlattr header{};
  header.nla_type = data.PickValueInArray<std::uint16_t>(
      {IFLA_IFNAME, IFLA_ADDRESS, IFLA_MTU, IFLA_LINK, IFLA_MASTER, IFLA_LINKINFO, IFLA_LINK_NETNSID, IFLA_OPERSTATE,
       IFLA_CARRIER, IFA_LOCAL, RTA_MULTIPATH, RTA_TABLE, RDMA_NLDEV_ATTR_DEV_NAME, RDMA_NLDEV_ATTR_NDEV_NAME,
       RDMA_NLDEV_ATTR_PORT_INDEX, RDMA_NLDEV_SYS_ATTR_NETNS_MODE});
  const bool honest = data.ConsumeIntegralInRange(0, 15) != 0;
  header.nla_len =
      honest ? static_cast<std::uint16_t>(NLA_HDRLEN + payload.size()) : data.ConsumeIntegral<std::uint16_t>();
  append(buffer, header);
  buffer.insert(buffer.end(), payload.begin(), payload.end());
  buffer.resize(NLA_ALIGN(buffer.size()));
}

void append_message(Buffer& buffer, FuzzedDataProvider& data) {
  Buffer payload = data.ConsumeBytes<std::uint8_t>(
      data.PickValueInArray<std::size_t>({sizeof(ifinfomsg), sizeof(ifaddrmsg), sizeof(rtmsg), 0, 4, 7}));
  payload.resize(NLMSG_ALIGN(payload.size()));
  for (auto left = data.ConsumeIntegralInRange(0, 6); left > 0; --left)
    append_attribute(payload, data, 2);
  nlmsghdr header{};
  header.nlmsg_type = data.PickValueInArray<std::uint16_t>({RTM_NEWLINK, RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE,
                                                            NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP,
                                                            RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET)});
  header.nlmsg_flags = data.PickValueInArray<std::uint16_t>({NLM_F_MULTI, NLM_F_MULTI, NLM_F_DUMP_INTR, 0});
  header.nlmsg_seq = data.ConsumeIntegralInRange(0, 15) != 0 ? peer.sequence : data.ConsumeIntegral<std::uint32_t>();
  const bool honest = data.ConsumeIntegralInRange(0, 15) != 0;
  header.nlmsg_len =
      honest ? static_cast<std::uint32_t>(NLMSG_HDRLEN + payload.size()) : data.ConsumeIntegral<std::uint32_t>();
  append(buffer, header);
  buffer.insert(buffer.end(), payload.begin(), payload.end());
}

void walk_attributes(FuzzedDataProvider& data) {
  Buffer bytes;
  if (data.ConsumeBool()) {
    bytes = data.ConsumeBytes<std::uint8_t>(data.ConsumeIntegralInRange<std::size_t>(0, 64));
  } else {
    for (auto left = data.ConsumeIntegralInRange(0, 4); left > 0; --left)
      append_attribute(bytes, data, 1);
  }
  bytes.shrink_to_fit();  // a read beyond the end is a read beyond the allocation
  const base::netlink::Attributes attributes(bytes);
  for (unsigned type = 0; type < 64; ++type) {
    const auto value = attributes.get(type);
    require(value.size() <= bytes.size(), "an attribute lies within its message");
    require(attributes.has(type) || value.empty(), "a missing attribute is empty");
    require(attributes.u8(type).has_value() == !value.empty(), "a u8 needs one byte");
    require(attributes.u32(type).has_value() == (value.size() >= 4), "a u32 needs four bytes");
    const auto text = attributes.text(type);
    if (text) require(text->find('\0') == std::string::npos, "text ends at its zero");
  }
}

void read_network(bool all_routes) {
  const auto network = fabric::netlink::read_network(all_routes);
  if (!network) return fuzz::require_one_line(network.error().message, "a netlink error");
  for (const fabric::Route& route : network->routes)
    require(!route.dev.empty(), "a route has its netdev");
  // Stacks can be hostile too: a netdev above itself, above each other, above no netdev.
  for (const fabric::Netdev& upper : network->netdevs) {
    (void)fabric::leaves_netns(network->netdevs, upper);
    for (const fabric::Netdev& lower : network->netdevs)
      (void)fabric::is_stacked_on(network->netdevs, upper, lower);
    fabric::GidSearch search(network->netdevs, upper.name);
    for (const fabric::InterfaceAddress& own : upper.addresses)
      search.found_v2(own.address);
    (void)search.complete();
  }
}

}  // namespace

extern "C" {

int __wrap_socket(int, int, int) {
  if (peer.data->ConsumeIntegralInRange(0, 31) == 0) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  return ::open("/dev/null", O_RDWR | O_CLOEXEC);
}

ssize_t __wrap_send(int, const void* request, size_t size, int) {
  require(size >= sizeof(nlmsghdr), "a request has a header");
  nlmsghdr header{};
  std::memcpy(&header, request, sizeof header);
  require(header.nlmsg_len == size, "a request has its length");
  peer.sequence = header.nlmsg_seq;
  return static_cast<ssize_t>(size);
}

ssize_t __wrap_recvfrom(int, void* answer, size_t size, int, sockaddr* sender, socklen_t*) {
  ASAN_UNPOISON_MEMORY_REGION(answer, size);
  if (peer.data->remaining_bytes() == 0 || ++peer.datagrams > kMaxDatagrams) {
    errno = EAGAIN;
    return -1;
  }
  *reinterpret_cast<sockaddr_nl*>(sender) = {};  // port 0: the kernel
  Buffer buffer;
  for (auto left = peer.data->ConsumeIntegralInRange(0, 4); left > 0; --left)
    append_message(buffer, *peer.data);
  const std::size_t count = std::min(buffer.size(), size);
  std::copy_n(buffer.data(), count, static_cast<std::uint8_t*>(answer));
  // The tested code must not read bytes that the kernel did not write.
  ASAN_POISON_MEMORY_REGION(static_cast<std::uint8_t*>(answer) + count, size - count);
  return static_cast<ssize_t>(count);
}

}  // extern "C"

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  peer = Peer{&data, 0, 0};
  walk_attributes(data);
  const bool all = data.ConsumeBool();
  if (data.ConsumeIntegralInRange(0, 3) == 0) {
    (void)fabric::netlink::read_rdma(all);
  } else {
    read_network(all);
  }
}
