// Reads what the kernel and udev provide for RDMA: modules, device nodes, and how GPUs and HCAs reach each other.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"

namespace fabric {

struct SeenNode {
  bool is_device = false;  // true: the node is a character device
  std::string number;      // "231:192"
  unsigned mode = 0;       // permissions of the node
};

struct ExpectedNode {
  std::string path;    // "/dev/infiniband/uverbs0"
  std::string number;  // the kernel's device number; empty: unknown
  Attr<SeenNode> seen;
};

// A PCI network function that could have an HCA but has none: no driver is bound, or the driver's separate RDMA module
// is not loaded or made no HCA.
struct HalfDriven {
  std::string pci;
  std::string driver;   // "mlx5_core"; empty: no driver is bound
  std::string module;   // "mlx5_ib", the RDMA module of the driver
  bool always = false;  // true: every function of the driver has RDMA
  Attr<bool> loaded{};  // whether the module is loaded
};

struct KernelFacts {
  Attr<bool> uverbs{};   // whether ib_uverbs is loaded
  Attr<bool> rdma_cm{};  // whether rdma_ucm is loaded
  std::vector<HalfDriven> half_driven;
  std::vector<ExpectedNode> nodes;
  std::optional<bool> privileged_qkey;  // nullopt: the kernel does not report it, or this is not a live node
};

// Reads the facts from root/sys and root/dev.
KernelFacts read_kernel_facts(const std::string& root, const Inventory& inventory);

// Facts that enable or slow direct transfers between GPU and HCA.
struct GpuFacts {
  bool has_nvidia = false;      // the node has an NVIDIA GPU
  Attr<bool> nvidia_peermem{};  // whether nvidia_peermem is loaded
  Attr<bool> nv_peer_mem{};     // whether nv_peer_mem is loaded, the module's name before driver 470
  std::string driver_version;   // /proc/driver/nvidia/version; empty: not loaded
  std::string kernel;           // "6.1.0-18-amd64"
  // By bridge of bridges_between(): the ACS control register (PCI Express 5.0, 7.7.8.3); 0: the bridge has no ACS. For
  // callers other than root the register is Unreadable, because the kernel truncates the configuration space.
  std::map<std::string, Attr<unsigned>> acs;
  std::map<std::string, std::string> iommu;  // "identity" or "DMA", the type of the HCA's IOMMU group, by HCA
};

// Returns the ACS control register of a PCI configuration space. Returns Unreadable with EMSGSIZE if the text ends
// before the extended configuration space.
Attr<unsigned> acs_control(std::string_view configuration_space);

// For each pair of a GPU and an HCA below a common bridge, returns the bridges between the nearest common bridge and
// both devices. Only these bridges can redirect the traffic between GPU and HCA. Pure.
std::vector<std::string> bridges_between(const Inventory& inventory);

// Reads the facts from root/sys and root/proc.
GpuFacts read_gpu_facts(const std::string& root, const Inventory& inventory);

}  // namespace fabric
