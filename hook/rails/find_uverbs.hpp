// The uverbs node of an RDMA device.
#pragma once

#include <optional>
#include <string>

#include "hook/plan/renumber.hpp"

namespace hook {

// sysfs: a descriptor of /sys. nullopt: the device has none (yet), or is not visible there.
std::optional<NewNode> find_uverbs(int sysfs, const std::string& hca);

}  // namespace hook
