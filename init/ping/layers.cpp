#include "init/ping/layers.hpp"

namespace init::ping {
namespace {

struct About {
  std::string_view name;
  std::string_view remedy;
};

// In the order of Layer.
constexpr std::array<About, kLayers> kAbout = {{
    {"good", ""},
    {"rank", "read the log of this rank; NCCL waits for it as well"},
    {"library", "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (RHEL) in the image"},
    {"provider", "run `rdma-init doctor` where the rank runs"},
    {"memlock",
     "set the limit to unlimited: `--ulimit memlock=-1`, LimitMEMLOCK=infinity of the engine, or CAP_IPC_LOCK"},
    {"route", "add a route from the address of this rail to the network of the peer's rail"},
    {"neighbour", "check the VLAN, the cable, and that both rails are in the same network"},
    {"gid", "unset NCCL_IB_GID_INDEX and let rdma-init set it: ENTRYPOINT [\"rdma-init\", \"--\"]"},
    {"mtu", "set the same MTU on both netdevs and on all switches between them"},
    {"receiver", "check the load of the receiving rank"},
    {"retry", "check the firewall for UDP port 4791, and the priority flow control of the switches"},
    {"data", "replace the HCA or the cable: something changes data that the link's checksum covers"},
    {"verbs", ""},
    {"untested", ""},
}};

const About& about(Layer layer) {
  return kAbout[static_cast<std::size_t>(layer)];
}

}  // namespace

std::string_view name_of(Layer layer) {
  return about(layer).name;
}

std::string_view remedy_of(Layer layer) {
  return about(layer).remedy;
}

}  // namespace init::ping
