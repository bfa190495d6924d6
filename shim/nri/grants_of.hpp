// Finds the grants of a container or pod that the runtime names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/container_spec.hpp"

namespace shim {

// Returns true if the user's recorded process lives or cannot be checked. Its grant then stays, even if the runtime
// reports the end of the container.
bool has_process(const hook::GrantUser& user);
// Returns true if the grant is unbound: a token (hook::token_owner()) owns it, and the user has no process yet.
// rdma-nri makes such a grant at CreateContainer. Until a hook binds it to the container, only the user's container id
// tells for which container it is.
bool is_unbound(const hook::Grant& grant, const hook::GrantUser& user);
// Parts of grants whose end the ledger alone cannot detect: the runtime or the kernel must report it. Collected in one
// pass over all grants.
struct Doubtful {
  // Users of unbound grants: container id, and Grant::changed. Their containers are in the node's network namespace,
  // and only the runtime can report their end.
  std::map<std::string, std::optional<std::uint64_t>> unbound;
  // Ids of containers whose grant does not record their pod: a hook or an earlier version of this plugin made the
  // grant.
  std::set<std::string> podless;
  // The network namespaces that own grants: path and key of the grant.
  std::vector<std::pair<std::string, std::string>> namespaces;
};
// Errors: those of the ledger.
Result<Doubtful> doubtful_containers(const hook::Ledger& ledger);

// Returns the container's part in the pod's grant, or its own grant, without a token; nullopt: it has none. Errors:
// those of the ledger.
Result<std::optional<hook::Grantee>> find_grant_of(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                   const std::string& id);

// Returns false if the container has no grant: usually with one system call. A grant that may be its may be stale.
// Errors: those of the ledger.
Result<bool> may_have_grant(const hook::Ledger& ledger, const hook::ContainerSpec& spec, const std::string& id);

// Returns earlier attempts to create the container `now`: users of the same pod and container name, with another id and
// without a process. Their creation failed after CreateContainer, and the runtime did not report that. Such an attempt
// cannot be alive: the kubelet creates a container only after the previous container of that name has ended. Source:
// kuberuntime_manager.go, computePodActions, Kubernetes 1.20 to 1.36. Errors: those of the ledger.
Result<std::vector<hook::Grantee>> find_earlier_tries(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                      const hook::GrantUser& now);

// Returns the pod's grant, and the grants that its containers own. unread: receives the grants that cannot be read.
// CRI-O and containerd 1.7 report the end of a pod after its network namespace is gone (recorded: CRI-O 1.37.0; tried:
// 1.7.24). The pod's id then finds the grant. Errors: those of the ledger.
Result<std::vector<hook::Grant>> find_pod_grants(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                 const std::string& id, hook::Ledger::Unread& unread);

}  // namespace shim
