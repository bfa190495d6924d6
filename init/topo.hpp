// The drawing of `rdma-init topo`: NUMA nodes with their GPUs and HCAs, and how far apart they are. Pure.
#pragma once

#include <string>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"

namespace init {

// Words of NCCL and nvidia-smi: PIX one PCIe bridge between them, PXB several bridges but no host bridge, PHB the same
// host bridge, NODE the same NUMA node, SYS across NUMA nodes, "?" not known.
enum class Distance { kPix, kPxb, kPhb, kNode, kSys, kUnknown };

struct PciPlace {
  std::string pci;
  int numa_node = -1;
  const std::vector<std::string>* path = nullptr;  // upstream ports, root first; nullptr: unknown
};
Distance distance_between(const PciPlace& left, const PciPlace& right);

std::string topo_text(const fabric::Inventory& inventory, const Decision& decision);

}  // namespace init
