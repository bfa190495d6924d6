// Draws `rdma-init topo`: NUMA nodes with their GPUs and HCAs, and the distances between them. Pure.
#pragma once

#include <string>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"

namespace init {

// Distances in the terms of NCCL and nvidia-smi. PIX: one PCIe bridge between the devices. PXB: several bridges but no
// host bridge. PHB: the same host bridge. NODE: the same NUMA node. SYS: different NUMA nodes. "?": not known.
enum class Distance { kPix, kPxb, kPhb, kNode, kSys, kUnknown };

struct PciPlace {
  std::string pci;
  int numa_node = -1;
  const std::vector<std::string>* path = nullptr;  // upstream ports, root first; nullptr: unknown
};
// Returns the distance between two PCI functions.
Distance distance_between(const PciPlace& left, const PciPlace& right);

// Returns the drawing as text.
std::string topo_text(const fabric::Inventory& inventory, const Decision& decision);

}  // namespace init
