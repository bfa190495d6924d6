// Finds the grants of a container or pod that the runtime names.
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

// Returns true if the user's process lives or cannot be checked: its grant then stays, whatever the runtime reports.
bool has_process(const hook::GrantUser& user);
// Returns true for a user without a process in a grant that a token owns. rdma-nri makes such grants, and only the
// container's id identifies the user.
bool is_unbound(const hook::Grant& grant, const hook::GrantUser& user);
// Users and namespaces that need a report of the runtime or of the kernel. Collected in one pass over all grants.
struct Doubtful {
  // Unbound containers by id, with Grant::since: in the node's network namespace, and not bound by a hook. Only the
  // runtime can report their end.
  std::map<std::string, std::int64_t> unbound;
  // Containers without a pod id in their grant: granted by a hook, or by an earlier version of this plugin.
  std::set<std::string> podless;
  // Paths of the network namespaces that own grants.
  std::set<std::string> namespaces;
};
// Errors: of the ledger.
Result<Doubtful> doubtful_containers(const hook::Ledger& ledger);

// Returns the container's part in the pod's grant, or its own grant; nullopt: it has none. Errors: of the ledger.
Result<std::optional<GrantPart>> find_grant_of(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                               const std::string& id);

// Returns users of the pod that are earlier containers of the same name without a process. Their creation failed after
// CreateContainer, and the runtime did not report it. The kubelet creates a container only after the previous container
// of that name has ended. Source: kuberuntime_manager.go, computePodActions, Kubernetes 1.20 to 1.36. Errors: of the
// ledger.
Result<std::vector<GrantPart>> find_earlier_tries(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                  const hook::GrantUser& now);

// Returns the pod's grant, and the grants that its containers own. unread: receives the grants that cannot be read.
// CRI-O and containerd 1.7 report the end of a pod after its network namespace is gone (recorded: CRI-O 1.37.0; tried:
// 1.7.24). The grant is then found by the pod's id. Errors: of the ledger.
Result<std::vector<hook::Grant>> find_pod_grants(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                 const std::string& id, hook::Ledger::Unread& unread);

}  // namespace shim
