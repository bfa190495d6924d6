// The annotations that this project reads and writes. config.json's "trusted_annotations" names them by prefix.
#pragma once

namespace hook {

inline constexpr const char* kOwnAnnotations = "rdma-init.io";
inline constexpr const char* kVolcengineAnnotations = "k8s.volcengine.com";
inline constexpr const char* kSpiderpoolAnnotations = "cni.spidernet.io";

// Written beside a grant that is made before the container: its token, by which createRuntime finds the grant.
inline constexpr const char* kGrantAnnotation = "rdma-init.io/grant";

}  // namespace hook
