// Events of Kubernetes about claims, which `kubectl describe resourceclaim` prints. Pure.
#pragma once

#include <ctime>
#include <string_view>

#include "base/json/json.hpp"
#include "base/result.hpp"
#include "shim/dra/claims.hpp"

namespace shim {

// Returns the reason of the event about a claim that cannot be prepared, in the form that Kubernetes uses: "HcaInUse",
// "HcaMissing", "Refused" for a request or configuration that stays wrong, "FailedPrepare" for any other failure.
std::string_view event_reason(base::FailureReason reason);

// Returns the Event (v1) about a claim that cannot be prepared. node: the name of the node. now: seconds since 1970.
base::Json claim_event(const ClaimKey& claim, const base::Error& why, std::string_view node, std::time_t now);

}  // namespace shim
