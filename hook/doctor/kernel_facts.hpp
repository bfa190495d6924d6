// What of the kernel and of udev RDMA needs: modules, device nodes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/doctor/findings.hpp"

namespace hook {

struct SeenNode {
  bool is_device = false;  // a character device
  std::string number;      // "231:192"
  unsigned mode = 0;       // permissions
};

struct ExpectedNode {
  std::string path;    // "/dev/infiniband/uverbs0"
  std::string number;  // as the kernel has it; empty: not known
  fabric::Attr<SeenNode> seen;
};

// A PCI function without an HCA whose driver has another half for RDMA.
struct HalfDriven {
  std::string pci;
  std::string driver;           // "mlx5_core"; empty: it has none
  std::string module;           // "mlx5_ib"
  fabric::Attr<bool> loaded{};  // that module
};

struct KernelFacts {
  fabric::Attr<bool> uverbs{};   // ib_uverbs is there
  fabric::Attr<bool> rdma_cm{};  // rdma_ucm is there
  std::vector<HalfDriven> half_driven;
  std::vector<ExpectedNode> nodes;
  std::optional<bool> privileged_qkey;  // nullopt: the kernel does not say, or this is no live node
};

// Whether a path is there. Unreadable: it cannot be told.
fabric::Attr<bool> is_path_there(const std::string& path);

// root: in front of /sys and /dev.
KernelFacts read_kernel_facts(const std::string& root, const fabric::Inventory& inventory);

// Pure: "modules", "nodes", "qkey".
std::vector<Check> check_kernel(const KernelFacts& facts, const fabric::Inventory& inventory, const Config& config);

}  // namespace hook
