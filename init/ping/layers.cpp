#include "init/ping/layers.hpp"

#include <array>

namespace init::ping {

namespace {

constexpr std::string_view kFabric =
    "run `ibdiagnet` on one of these nodes: it checks cables, the routing of the subnet manager, and P_Keys";

}  // namespace

const LayerInfo& about(Layer layer) {
  // In the order of Layer.
  static constexpr std::array<LayerInfo, kLayers> kAbout = {{
      {"good", '.', "#cfe8d5", "#1e4a31", ""},
      {"rank", 'R', "#111111", "#ffffff", "read the log of this rank; NCCL waits for it as well"},
      {"library", 'L', "#8c564b", "#c49c94",
       "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (RHEL) in the image"},
      {"provider", 'P', "#7f3fbf", "#c5a3ff", "run `rdma-init doctor` where the rank runs"},
      {"memlock", 'M', "#e377c2", "#f7a8dc",
       "set the limit to unlimited: `--ulimit memlock=-1`, LimitMEMLOCK=infinity of the engine or slurmd, or "
       "CAP_IPC_LOCK"},
      {"route", 'O', "#0a9bb0", "#45d6e8",
       "add a route from the address of this rail to the network of the peer's rail"},
      {"neighbour", 'N', "#6b7a00", "#c8dc3c", "check the VLAN, the cable, and that both rails are in the same network",
       kFabric},
      {"gid", 'G', "#1f5fd0", "#6ea8ff",
       "unset NCCL_IB_GID_INDEX and let rdma-init set it: ENTRYPOINT [\"rdma-init\", \"--\"]"},
      {"pkey", 'K', "#2f4f4f", "#9fc5c5",
       "name the job's partition on each rank: NCCL_IB_PKEY is its index in "
       "/sys/class/infiniband/DEVICE/ports/PORT/pkeys; ask the administrator of the subnet manager to make these ports "
       "full members of it"},
      {"mtu", 'U', "#e08a00", "#ffc14d", "set the same MTU on both netdevs and on all switches between them",
       "set one MTU for the partition in the subnet manager, and check the path with `ibdiagnet`"},
      {"receiver", 'B', "#a0522d", "#e6996b", "check the load of the receiving rank"},
      {"retry", 'X', "#d11d1d", "#ff5c5c",
       "check the firewall for UDP port 4791, and the priority flow control of the switches", kFabric},
      {"data", 'D', "#ff00c8", "#ff62dd",
       "replace the HCA or the cable: something changes data that the link's checksum covers"},
      {"verbs", 'V', "#5b2a2a", "#d98c8c", ""},
      {"untested", '?', "#b4b8bd", "#5a6068", ""},
  }};
  return kAbout[static_cast<std::size_t>(layer)];
}

std::string_view remedy_of(Layer layer, bool infiniband) {
  const LayerInfo& info = about(layer);
  return infiniband && !info.infiniband.empty() ? info.infiniband : info.remedy;
}

}  // namespace init::ping
