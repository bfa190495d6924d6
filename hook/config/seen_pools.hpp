// The name of the file in which rdma-hook notes the pools of this node, beside the cluster's config.json. The
// containers of Kubernetes' DaemonSet see that directory, and it outlives a reboot.
#pragma once

namespace hook {

// A JSON list of the names of pools with "expect" of which this node has had an HCA.
inline constexpr const char* kSeenPoolsFile = "pools-seen.json";

}  // namespace hook
