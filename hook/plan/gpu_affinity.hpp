// Which HCAs are near a container's GPUs: by PCI path, then by NUMA node.
#pragma once

#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/plan/pools.hpp"
#include "hook/request/request.hpp"

namespace hook {

// The GPUs of a container. Errors: it has none, or none that the inventory knows. Its GPUs are the device nodes in
// linux.devices, of which the UUIDs of NVIDIA_VISIBLE_DEVICES leave those that they name, if any; without nodes the
// UUIDs, else its indices, say which are meant. `all` there says nothing: images carry it. In an inventory without GPU
// nodes (a snapshot) nvidiaN and renderD(128+N) are the N-th GPU by PCI address.
fabric::Result<std::vector<const fabric::Gpu*>> container_gpus(const fabric::Inventory& inventory,
                                                               const Request& request);

// All that are as near to the GPU as the nearest; in the order given.
std::vector<const NodeHca*> nearest(const std::vector<const NodeHca*>& hcas, const fabric::Gpu& gpu);

// The same HCAs, those that a container with these GPUs should take first in front: each GPU in turn names its nearest
// of those that are left. Without GPUs the order stays.
std::vector<const NodeHca*> by_nearness(std::vector<const NodeHca*> hcas, const std::vector<const fabric::Gpu*>& gpus);

}  // namespace hook
