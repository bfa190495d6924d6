// Which grant of the ledger is a container's or a pod's that the runtime names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hook/ledger/ledger.hpp"
#include "hook/oci/container_spec.hpp"
#include "shim/result.hpp"

namespace shim {

struct GrantPart {
  hook::Owner owner;
  hook::GrantUser user;
};

// One that is seen, or cannot be looked at, holds what it has, whatever the runtime says.
bool has_process(const hook::GrantUser& user);
// A token without a process is one of rdma-nri's: the container's id stands for it.
bool is_unbound(const hook::Grant& grant, const hook::GrantUser& user);
// What is to be heard or seen of containers and pods, by one look at all grants.
struct Doubtful {
  // For which nothing but that word stands: of the node's network namespace, and bound by no hook. With Grant::since.
  std::map<std::string, std::int64_t> unbound;
  // Whose grant does not say of which pod they are: given by a hook, or by an earlier version of this plugin.
  std::set<std::string> podless;
  // Paths of the network namespaces that hold grants.
  std::set<std::string> namespaces;
};
// Errors: the ledger's.
Result<Doubtful> doubtful_containers(const hook::Ledger& ledger);

// The container's part in the pod's grant, or its own; nullopt: it has none. Errors: the ledger's.
Result<std::optional<GrantPart>> find_holder(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                             const std::string& id);

// Users of the pod that are earlier containers of this name and whose process is not seen: their creation failed after
// CreateContainer, and the runtime did not say so. The kubelet creates a container of a name only once the one before
// it has ended (kuberuntime_manager.go, computePodActions, Kubernetes 1.20 to 1.36). Errors: the ledger's.
Result<std::vector<GrantPart>> find_earlier_tries(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                  const hook::GrantUser& now);

// The pod's grant, and those of its containers that have their own. CRI-O and containerd 1.7 tell of a pod's end when
// its network namespace is gone already (recorded: CRI-O 1.37.0; tried: 1.7.24): then the pod's id leads to it. What of
// them cannot be read goes into `unread`. Errors: the ledger's.
Result<std::vector<hook::Grant>> find_pod_grants(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                 const std::string& id, hook::Ledger::Unread& unread);

}  // namespace shim
