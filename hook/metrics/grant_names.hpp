// What people call the containers of grants: namespace, pod and container, as their engine wrote them into config.json
// of the bundle.
#pragma once

#include <map>
#include <string>

#include "hook/ledger/grant.hpp"

namespace hook {

// All empty: of no pod, or not to be found out.
struct PodNames {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  friend bool operator==(const PodNames&, const PodNames&) = default;
};

// Reads each container's once. Of a user without a bundle, which rdma-nri does not know, it looks where containerd and
// CRI-O have theirs by default. What an engine that is not of Kubernetes made has no names: an image could have chosen
// them.
class GrantNames {
 public:
  explicit GrantNames(std::string root) : root_(std::move(root)) {}
  PodNames of(const GrantUser& user);
  // Forgets the containers that nobody asked for since the last call.
  void forget_others();

 private:
  struct Known {
    PodNames names;
    bool is_used = true;
  };
  std::string root_;
  std::map<std::string, Known> known_;  // by the bundle
};

}  // namespace hook
