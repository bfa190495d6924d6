// The report of `rdma-init topo`: NUMA nodes with their GPUs and HCAs, and the distances between them. Pure.
#pragma once

#include <string>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"

namespace init {

// Distances in the terms of NCCL and nvidia-smi. PIX: one PCIe bridge between the devices. PXB: several bridges but no
// host bridge. PHB: the same host bridge. NODE: the same NUMA node. SYS: different NUMA nodes. "?": the distance is
// unknown.
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

// Returns the nearest used HCAs of each GPU as one JSON object, in the forms that two libraries read. GPUs have the
// same numbers as in topo_text(). HCAs at the same distance are all nearest. Without a used HCA both members are empty.
// "sglang": {"0": "mlx5_0,mlx5_1"}, the value of SGLang's --disaggregation-ib-device
// (python/sglang/srt/distributed/device_communicators/mooncake_transfer_engine.py, get_ib_devices_for_gpu()).
// "mooncake": {"cuda:0": [[nearest], [other HCAs]], "cpu:0": ...}, the file that MC_CUSTOM_TOPO_JSON names
// (mooncake-transfer-engine/src/topology.cpp, Topology::parse()). "cpu:N" is NUMA node N.
// "rails": {"mlx5_0": {"rail": 0, "plane": 1}}, only if the node states rails.
std::string topo_json(const fabric::Inventory& inventory, const Decision& decision);

}  // namespace init
