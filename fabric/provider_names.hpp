// The names of libibverbs' providers. Pure.
#pragma once

#include <string>
#include <string_view>

#include "fabric/inventory.hpp"

namespace fabric {

// Returns the name of an HCA's provider by its kernel driver, empty for an unknown driver.
std::string provider_of(const Hca& hca);
// Returns true for the name of a provider of rdma-core: "mlx5".
bool is_provider(std::string_view name);

}  // namespace fabric
