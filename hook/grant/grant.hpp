// Turns the request of a container into its devices, with the same steps for every way: read, decide under the locks,
// book, apply, settle. If a step fails, all are rolled back.
#pragma once

#include <functional>
#include <string_view>

#include "hook/base/json/json_fwd.hpp"
#include "hook/base/process/identity.hpp"
#include "hook/base/result.hpp"
#include "hook/grant/add_network.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// The differences between the ways to grant HCAs: by createRuntime, rdma-runtime and rdma-nri.
struct Way {
  // Event of the log line: "granted" is counted in the metrics; "booked" is counted later, by createRuntime.
  std::string_view event;
  NetworkTarget network = {};
  // True: the grant of the token in the container's annotation first moves to the grantee.
  bool binds_token = false;
  bool variables = false;  // apply() sets the container's variables
  // Writes the plan to the place where the container finds it. The rails and the view exist by then. Also called for an
  // empty plan.
  std::function<Result<void>(const Plan& plan)> apply;
};

// Grants HCAs to a container. requesting: with a request. Errors: as read_for(), foresee(), add_network(); the
// ledger's; errors of way.apply.
Result<void> grant(const OpenLedger& open, const ContainerRequest& requesting, const Grantee& who, const Way& way,
                   Call& call);

// Writes the edited config.json to the place where the runtime reads it.
using Publish = std::function<Result<void>(const Plan& plan, Json& config)>;

// Grants as grant() does, but writes the plan into requesting.document (edit_spec()), which is then published.
// With call.state, the container is the user of the grant. This user is gone when the requester, which becomes the
// runtime, and the container are gone. Without call.state, a token is the user until createRuntime binds it to the
// container. The token is gone when the requester is gone.
Result<void> grant_in_spec(ContainerRequest& requesting, const ProcessIdentity& requester, Call& call,
                           const Publish& publish);

}  // namespace hook
