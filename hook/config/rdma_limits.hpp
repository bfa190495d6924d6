// Limits of what a container allocates of an HCA.
#pragma once

#include <cstdint>
#include <optional>

namespace hook {

// Most objects and open contexts that one container may have of one HCA, as the kernel's controller `rdma` counts them
// (Documentation/admin-guide/cgroup-v2.rst, "RDMA"). nullopt: no limit.
struct RdmaLimits {
  std::optional<std::uint32_t> handles;  // contexts: one for each ibv_open_device()
  std::optional<std::uint32_t> objects;  // PDs, MRs, QPs, CQs and all others, added up
  friend bool operator==(const RdmaLimits&, const RdmaLimits&) = default;
};
inline bool is_limited(const RdmaLimits& limits) {
  return limits.handles || limits.objects;
}

}  // namespace hook
