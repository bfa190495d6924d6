// Which grant of the ledger is a container's or a pod's that the runtime names.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "fabric/result.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/container_spec.hpp"

namespace shim {

struct Holder {
  hook::Owner owner;
  hook::GrantUser user;
};

// A token without a process is one of rdma-nri's: the container's id stands for it.
bool is_unbound(const hook::Grant& grant, const hook::GrantUser& user);
// Ids of the containers for which nothing but the runtime's word stands: of the node's network namespace, and bound by
// no hook. Errors: the ledger's.
fabric::Result<std::set<std::string>> unbound_containers(const hook::Ledger& ledger);

// The container's part in the pod's grant, or its own; nullopt: it has none. Errors: the ledger's.
fabric::Result<std::optional<Holder>> find_holder(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                  const std::string& id);

// The key of the pod's grant. containerd 1.7 tells of a pod's end when its network namespace is gone already (tried:
// 1.7.24): then the grant of which the sandbox is a part.
fabric::Result<std::optional<std::string>> find_pod_grant(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                          const std::string& id);

}  // namespace shim
