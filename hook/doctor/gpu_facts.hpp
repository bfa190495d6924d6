// What lets GPU and HCA talk to each other directly, and what slows that down.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/doctor/findings.hpp"

namespace hook {

struct GpuFacts {
  bool has_nvidia = false;              // a GPU of NVIDIA's is on the node
  fabric::Attr<bool> nvidia_peermem{};  // loaded
  fabric::Attr<bool> nv_peer_mem{};     // its name before driver 470
  std::string driver_version;           // /proc/driver/nvidia/version; empty: not loaded
  std::string kernel;                   // "6.1.0-18-amd64"
  // ACS control register of bridges that GPUs and HCAs are below (PCI Express 5.0, 7.7.8.3); 0: it has no ACS.
  // Unreadable also when configuration space is cut off, as it is for who is not root.
  std::map<std::string, fabric::Attr<unsigned>> acs;
  std::map<std::string, std::string> iommu;  // by HCA: type of its IOMMU group, "identity", "DMA"; not there: no group
};

// ACS control of a function's configuration space; Unreadable EMSGSIZE: the extended part is not in it.
fabric::Attr<unsigned> acs_control(std::string_view configuration_space);

// The bridges that lie between a GPU and an HCA below a bridge that both share: what they send each other need not go
// higher. Pure.
std::vector<std::string> bridges_between(const fabric::Inventory& inventory);

// root: in front of /sys and /proc.
GpuFacts read_gpu_facts(const std::string& root, const fabric::Inventory& inventory);

// Pure: "gpudirect", "acs", "iommu".
std::vector<Check> check_gpus(const GpuFacts& facts, const fabric::Inventory& inventory);

}  // namespace hook
