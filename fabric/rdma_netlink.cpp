#include "fabric/rdma_netlink.hpp"

#include <linux/netlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <rdma/rdma_netlink.h>

#include <array>
#include <functional>
#include <memory>

namespace fabric::rdma_netlink {
namespace {

struct FreeSocket {
  void operator()(nl_sock* socket) const { nl_socket_free(socket); }
};
struct FreeMessage {
  void operator()(nl_msg* message) const { nlmsg_free(message); }
};
using Socket = std::unique_ptr<nl_sock, FreeSocket>;
using Message = std::unique_ptr<nl_msg, FreeMessage>;
using Attributes = std::array<nlattr*, RDMA_NLDEV_ATTR_MAX>;
using Handler = std::function<void(const Attributes&)>;

int on_message(nl_msg* message, void* context) {
  Attributes attributes{};
  if (nlmsg_parse(nlmsg_hdr(message), 0, attributes.data(), RDMA_NLDEV_ATTR_MAX - 1, nullptr) == 0) {
    (*static_cast<Handler*>(context))(attributes);
  }
  return NL_OK;
}

bool request(nl_sock* socket, int command, int flags, std::optional<unsigned> device, Handler handler) {
  const Message message(nlmsg_alloc_simple(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), flags));
  if (!message) return false;
  if (device && nla_put_u32(message.get(), RDMA_NLDEV_ATTR_DEV_INDEX, *device) < 0) return false;
  nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, on_message, &handler);
  return nl_send_auto(socket, message.get()) >= 0 && nl_recvmsgs_default(socket) >= 0;
}

}  // namespace

std::optional<Answer> read(bool with_netns_mode) {
  const Socket socket(nl_socket_alloc());
  if (!socket || nl_connect(socket.get(), NETLINK_RDMA) < 0) return std::nullopt;
  std::vector<std::pair<unsigned, std::string>> devices;
  const bool listed = request(socket.get(), RDMA_NLDEV_CMD_GET, NLM_F_DUMP, std::nullopt, [&](const Attributes& a) {
    if (a[RDMA_NLDEV_ATTR_DEV_INDEX] && a[RDMA_NLDEV_ATTR_DEV_NAME]) {
      devices.emplace_back(nla_get_u32(a[RDMA_NLDEV_ATTR_DEV_INDEX]), nla_get_string(a[RDMA_NLDEV_ATTR_DEV_NAME]));
    }
  });
  if (!listed) return std::nullopt;
  Answer answer;
  for (const auto& [index, name] : devices) {
    // A device that vanishes meanwhile has no netdev; the others still do.
    request(socket.get(), RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP, index, [&, &hca = name](const Attributes& a) {
      if (a[RDMA_NLDEV_ATTR_PORT_INDEX] && a[RDMA_NLDEV_ATTR_NDEV_NAME]) {
        answer.port_netdevs[{hca, nla_get_u32(a[RDMA_NLDEV_ATTR_PORT_INDEX])}] =
            nla_get_string(a[RDMA_NLDEV_ATTR_NDEV_NAME]);
      }
    });
  }
  if (with_netns_mode) {
    request(socket.get(), RDMA_NLDEV_CMD_SYS_GET, 0, std::nullopt, [&](const Attributes& a) {
      if (const nlattr* mode = a[RDMA_NLDEV_SYS_ATTR_NETNS_MODE]) {
        answer.netns_mode = nla_get_u8(mode) != 0 ? NetnsMode::kShared : NetnsMode::kExclusive;
      }
    });
  }
  return answer;
}

}  // namespace fabric::rdma_netlink
