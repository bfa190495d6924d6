// What RDMA netlink makes of a request: drivers/infiniband/core/nldev.c and device.c, Linux 6.12.
#include <fmt/format.h>
#include <rdma/rdma_netlink.h>

#include <algorithm>
#include <cerrno>

#include "unit/hook_infiniband_node.hpp"

namespace test_support {
namespace {

constexpr unsigned type_of(unsigned command) {
  return RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
}

}  // namespace

// ib_device_set_netns_put(), rdma_dev_change_netns()
ScriptedReply InfinibandNode::move_rdma(const ScriptedRequest& request, ByteView netns, IbFunction& function) {
  const int target = netns_of(static_cast<int>(value_at<std::uint32_t>(netns)));
  if (target < 0) return refusal(EINVAL);
  if (state_->is_shared) return refusal(EOPNOTSUPP);
  if (state_->rdma_move_refusal != 0) return refusal(state_->rdma_move_refusal);
  // The namespace of the process, not of its socket.
  if (function.netns != request.process_netns) return refusal(ENODEV);
  std::string line = fmt::format("{}: {} -> {}", shown(function.netns), function.rdma.data(), shown(target));
  function.netns = target;
  make_netdev_anew(static_cast<int>(&function - state_->functions.data()), line);
  note(line);
  return {};
}

// nldev_get_dumpit(), nldev_sys_get_doit(), nldev_set_doit(), nldev_newlink(), nldev_dellink()
ScriptedReply InfinibandNode::answer_rdma(const ScriptedRequest& request) {
  const auto is_visible = [&](const IbFunction& function) {
    return state_->is_shared || function.netns == request.socket_netns;
  };
  ScriptedReply reply;
  reply.type = request.type;
  if (request.type == type_of(RDMA_NLDEV_CMD_SYS_GET)) {
    reply.messages.push_back(
        AttributeWriter()
            .put(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, static_cast<std::uint8_t>(state_->is_shared ? 1 : 0))
            .buffer());
    return reply;
  }
  if (request.type == type_of(RDMA_NLDEV_CMD_GET) && request.is_dump) {
    for (const IbFunction& function : state_->functions) {
      if (!is_visible(function)) continue;
      reply.messages.push_back(AttributeWriter()
                                   .put(RDMA_NLDEV_ATTR_DEV_INDEX, function.rdma_index)
                                   .put(RDMA_NLDEV_ATTR_DEV_NAME, std::string_view(function.rdma.data()))
                                   .buffer());
    }
    return reply;
  }
  if (request.type == type_of(RDMA_NLDEV_CMD_NEWLINK)) return refusal(EINVAL);  // no such type is loaded
  const ByteView index = find_attribute(request.payload, RDMA_NLDEV_ATTR_DEV_INDEX);
  const auto found = std::find_if(state_->functions.begin(), state_->functions.end(), [&](const IbFunction& each) {
    return is_visible(each) && index.data() != nullptr && each.rdma_index == value_at<std::uint32_t>(index);
  });
  if (found == state_->functions.end()) return refusal(EINVAL);
  if (request.type == type_of(RDMA_NLDEV_CMD_DELLINK)) return refusal(EINVAL);  // hardware
  const ByteView netns = find_attribute(request.payload, RDMA_NLDEV_NET_NS_FD);
  if (request.type != type_of(RDMA_NLDEV_CMD_SET) || netns.data() == nullptr) return refusal(EOPNOTSUPP);
  return move_rdma(request, netns, *found);
}

}  // namespace test_support
