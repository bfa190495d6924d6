// Finds the claims of Kubernetes' Dynamic Resource Allocation whose HCAs a container or pod may use, and adds their
// HCAs to its request. The claims own these HCAs (hook/claim/claims.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/request/request.hpp"

namespace hook {

// Returns the grants of the claims whose CDI devices the container has: their variables have the value that only the
// claim's CDI file has. A variable with another value counts as none, because a pod's author can write it. Reads at
// most kMostClaims claims, those of the last variables: a runtime adds the variables of CDI devices last. root: prefix
// of the node's /sys. Errors: the grant of such a claim cannot be read; the claim is not reserved for the container's
// pod, as the engine names it, and the container has no device node of the claim.
inline constexpr std::size_t kMostClaims = 64;
Result<std::vector<Grant>> claims_of(const ContainerRequest& requesting, const Ledger& ledger, const std::string& root);

// Returns the grants of the prepared claims that are reserved for a pod. uid: the pod's UID, as the runtime reports it.
// Errors: a grant that may be such a claim's cannot be read.
Result<std::vector<Grant>> claims_of_pod(std::string_view uid, const Ledger& ledger);

// Lets `owner` use the HCAs of the claims, and sets their terms in the request. Removes the device nodes that the
// container has by a claim for monitoring, so that they request no HCA. A request without a selection becomes one for
// the claims' HCAs. root: prefix of the node's /sys.
void join_claims(const std::vector<Grant>& claims, const std::string& root, Owner& owner, Request& request);

}  // namespace hook
