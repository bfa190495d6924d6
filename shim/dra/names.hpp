// Names of Kubernetes' objects. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "hook/claim/claims.hpp"

namespace shim {

using hook::is_uid;

inline constexpr const char* kDraProgram = "rdma-dra";

// The name of the driver in ResourceSlices, claims and classes, and the domain of its attributes and taints.
inline constexpr const char* kDraDriver = "rdma-init.io";

// The name of each HCA's device in slices and claims, is_dns_label(): "pci-0000-3b-00-0". Different for each HCA.
using DeviceNames = std::map<std::string, std::string>;

inline constexpr std::size_t kLongestLabel = 63;
inline constexpr std::size_t kLongestSubdomain = 253;

// Returns whether the text is a DNS label: 1 to 63 of [a-z0-9-] that neither begin nor end with "-" (RFC 1123).
bool is_dns_label(std::string_view text);
// Returns whether the text is DNS labels joined by ".", of at most 253 characters.
bool is_dns_subdomain(std::string_view text);

}  // namespace shim
