// Reads what the real runtime can do, from its command `features` (runtime-spec 1.3, features.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hook/oci/container_spec.hpp"

namespace shim {

// Returns whether the runtime moves the netdevs of linux.netDevices, from the output of `features`. The member
// ociVersionMax does not show it: crun 1.28 does, and has 1.1.0. nullopt: the output is no such document.
std::optional<bool> moves_netdevs(std::string_view features);

// Checks that the runtime moves the netdevs that config.json names, and asks it only if there are any: runc 1.3 and
// crun 1.21 ignore linux.netDevices without an error, and the container would lack its rails. Returns a warning if the
// runtime does not answer; empty: none. Errors: the runtime ignores them.
Result<std::string> check_moved_netdevs(const hook::ContainerSpec& spec, const std::string& runtime);

}  // namespace shim
