// The HCAs of the uverbs nodes that a device plugin, --device or CDI gave a container.
#pragma once

#include <vector>

#include "fabric/result.hpp"
#include "hook/plan/pools.hpp"
#include "hook/request/request.hpp"

namespace hook {

// In the order that PCIDEVICE_* names, then by rail. Errors: a node that belongs to no HCA, or has another number than
// the node's own.
fabric::Result<std::vector<const NodeHca*>> hcas_of_given(const NodeMap& node, const Request& request);

}  // namespace hook
