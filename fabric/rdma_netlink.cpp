#include "fabric/rdma_netlink.hpp"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include <functional>

#include "fabric/netlink_socket.hpp"

namespace fabric::rdma_netlink {
namespace {

using netlink::Attributes;
using netlink::Message;
using netlink::Socket;

struct DeviceIndex {
  nlattr header{sizeof(DeviceIndex), RDMA_NLDEV_ATTR_DEV_INDEX};
  std::uint32_t index = 0;
};

bool request(Socket& socket, unsigned command, unsigned flags, netlink::Bytes payload,
             const std::function<void(const Attributes&)>& handler) {
  const auto done =
      socket.request(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), flags, payload, [&](const Message& message) {
        handler(message.attributes(0));
        return true;
      });
  return done.has_value();
}

std::optional<NetnsMode> ask_netns_mode(Socket& socket) {
  std::optional<NetnsMode> answer;
  request(socket, RDMA_NLDEV_CMD_SYS_GET, 0, {}, [&](const Attributes& attributes) {
    if (const auto mode = attributes.u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE)) {
      answer = *mode != 0 ? NetnsMode::kShared : NetnsMode::kExclusive;
    }
  });
  return answer;
}

}  // namespace

std::optional<Answer> read(bool with_netns_mode) {
  auto socket = Socket::open(NETLINK_RDMA);
  if (!socket) return std::nullopt;
  std::vector<std::pair<std::uint32_t, std::string>> devices;
  const bool listed = request(*socket, RDMA_NLDEV_CMD_GET, NLM_F_DUMP, {}, [&](const Attributes& attributes) {
    const auto index = attributes.u32(RDMA_NLDEV_ATTR_DEV_INDEX);
    auto name = attributes.text(RDMA_NLDEV_ATTR_DEV_NAME);
    if (index && name) devices.emplace_back(*index, std::move(*name));
  });
  if (!listed) return std::nullopt;
  Answer answer;
  for (const auto& [index, name] : devices) {
    answer.port_netdevs.hcas.insert(name);
    DeviceIndex device;
    device.index = index;
    // A device that vanishes meanwhile has no netdev; the others still do.
    request(*socket, RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP, netlink::bytes_of(device),
            [&, &hca = name](const Attributes& attributes) {
              const auto port = attributes.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
              auto netdev = attributes.text(RDMA_NLDEV_ATTR_NDEV_NAME);
              if (port && netdev) answer.port_netdevs.netdevs[{hca, *port}] = std::move(*netdev);
            });
  }
  if (with_netns_mode) answer.netns_mode = ask_netns_mode(*socket);
  return answer;
}

std::optional<NetnsMode> read_netns_mode() {
  auto socket = Socket::open(NETLINK_RDMA);
  return socket ? ask_netns_mode(*socket) : std::nullopt;
}

}  // namespace fabric::rdma_netlink
