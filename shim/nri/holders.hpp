// Which grant of the ledger is a container's or a pod's that the runtime names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

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
fabric::Result<Doubtful> doubtful_containers(const hook::Ledger& ledger);

// The container's part in the pod's grant, or its own; nullopt: it has none. Errors: the ledger's.
fabric::Result<std::optional<Holder>> find_holder(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                  const std::string& id);

// The pod's grant, and those of its containers that have their own. CRI-O and containerd 1.7 tell of a pod's end when
// its network namespace is gone already (recorded: CRI-O 1.37.0; tried: 1.7.24): then the pod's id leads to it. What of
// them cannot be read goes into `unread`. Errors: the ledger's.
fabric::Result<std::vector<hook::Grant>> find_pod_grants(const hook::Ledger& ledger, const hook::ContainerSpec& spec,
                                                         const std::string& id, hook::Ledger::Unread& unread);

}  // namespace shim
