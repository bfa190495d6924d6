// Turns the request of a container into its devices, with the same steps for every way: read, decide under the locks,
// book as pending, apply, make the grant valid. If a step fails, the earlier steps are rolled back.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json/json_fwd.hpp"
#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "hook/apply/adjustment.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

struct NetworkTarget {
  std::string netns_path = {};  // "/var/run/netns/cni-1", "/proc/PID/ns/net"; empty: no namespace yet, so no rails
  bool hurried = false;         // as in RailsInput
};

// The differences between the ways to grant HCAs: by createRuntime, rdma-runtime and rdma-nri.
struct Way {
  // Event of the log line: "granted" is counted in the metrics; "booked" is counted later, by createRuntime.
  std::string_view event;
  NetworkTarget network = {};
  // True: a grant that rdma-runtime or rdma-nri booked under the token in the container's annotation first moves to the
  // grantee.
  bool binds_token = false;
  bool variables = false;  // apply() sets the container's variables
  // Writes the plan to the place where the container finds it. Called when the rails and the view exist, and also for a
  // plan without HCAs.
  std::function<Result<void>(const Plan& plan, const Adjustment& adjustment)> apply;
};

// Grants HCAs to a container. requesting: must have a request. Errors: as read_for(), foresee(); with the reason
// kNetwork, as add_rails(), or the namespace or the ledger cannot be read; the ledger's; errors of way.apply.
Result<void> grant(const OpenLedger& open, const ContainerRequest& requesting, const Grantee& who, const Way& way,
                   Call& call);

// Writes the edited config.json to the place where the runtime reads it.
using Publish = std::function<Result<void>(const Plan& plan, Json& config)>;

// Like grant(), but writes the plan into requesting.document (edit_spec()), and then calls `publish` with that
// document. requester: the process that requests HCAs for the container. With call.state, no createRuntime hook
// follows: the requester becomes the runtime, and the user of the grant is the container. This user is gone when both
// the requester and the container are gone. Without call.state, the user is a token, which is gone when the requester
// is gone, until createRuntime moves the grant from the token to the container.
Result<void> grant_in_spec(ContainerRequest& requesting, const ProcessIdentity& requester, Call& call,
                           const Publish& publish);

}  // namespace hook
