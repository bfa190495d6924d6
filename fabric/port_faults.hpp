// Faults of ports that rdma-init reports in a container and rdma-hook on the node, with the same causes. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric {

// Why a port is not ACTIVE.
enum class InactiveCause {
  kPort,     // its own link or state
  kPf,       // it is the port of a VF, and that of its PF is not ACTIVE
  kNoGuid,   // InfiniBand: the VF has no GUID
  kUnserved  // InfiniBand: the link is up and a subnet manager runs, but the VF has no LID: the subnet manager serves
             // no virtual ports, or the VF's link state is `disable`
};
// Returns the port of the VF's PF with the same number, nullptr if the HCA is no VF or the port is not known.
const Port* port_of_pf(const std::vector<Hca>& hcas, const Hca& vf, const Port& port);
// Returns the cause of a port that is not ACTIVE. of_pf: port_of_pf(). The PF's link is the cause of all its VFs'
// states, so it precedes a missing GUID.
InactiveCause inactive_cause(const Hca& hca, const Port& port, const Port* of_pf);
// Returns its remedy. netdev: the name of the port's netdev, or "NETDEV". pf: the netdev of the PF on the node, or
// "PF".
std::string inactive_remedy(InactiveCause cause, const Port& port, std::string_view netdev, std::string_view pf);

// The effect of the node GUID 0 on a RoCE port. A server refuses the second client with one queue pair number and one
// GUID as stale (cm_match_req() of drivers/infiniband/core/cm.c, Linux 6.12), and all such VFs have the GUID 0.
inline constexpr std::string_view kZeroGuidEffect =
    "node GUID 0: NCCL does not need it, but RDMA_CM may refuse connections as stale";

// The file of mlx5's global traffic class, below the directory of the HCA in /sys/class/infiniband. Only MLNX_OFED has
// it. The kernel's driver sets the class in each queue pair that it makes.
inline constexpr std::string_view kGlobalClassFile = "tc/1/traffic_class";
inline constexpr std::string_view kGlobalClassEffect =
    "does not reach queue pairs that are made by DevX (NCCL GIN, DeepEP, NVSHMEM's IBGDA)";
// Returns the number in the text of that file, "Global tclass=236"; empty: none is set.
std::string_view parse_global_class(std::string_view text);

}  // namespace fabric
