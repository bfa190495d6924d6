// One grant from a container's request to its devices, the same for every way: read, decide under the locks, book,
// apply, settle; undone when a step fails.
#pragma once

#include <functional>
#include <string_view>

#include "hook/base/json/json_fwd.hpp"
#include "hook/base/process/identity.hpp"
#include "hook/base/result.hpp"
#include "hook/grant/asking.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/give_network.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// What differs between the ways.
struct Way {
  // Of the log's line: "granted", which is counted; "booked", which createRuntime will count when the container comes.
  std::string_view event;
  NetworkTarget network = {};
  // A token of the container's annotation becomes the grantee's grant first.
  bool binds_token = false;
  bool variables = false;  // apply sets the container's
  // Puts the plan, with its rails given and its view made, where the container finds it; also a plan of nothing.
  std::function<Result<void>(const Plan& plan)> apply;
};

// asking.request: there is one. Errors: as read_for(), foresee(), give_network(), the ledger's, apply's.
Result<void> grant(const OpenLedger& open, const Asking& asking, const Grantee& who, const Way& way, Call& call);

// Puts the edited config.json where the runtime reads it.
using Publish = std::function<Result<void>(const Plan& plan, Json& config)>;

// grant() into asking.document (edit_spec()), which is then published. What is booked is the container's with
// call.state, and free again when the requester, which becomes its runtime, and the container are gone. Without, it is
// the requester's until createRuntime binds it, and free again when the requester is gone and nothing was bound.
Result<void> grant_in_spec(Asking& asking, const ProcessIdentity& requester, Call& call, const Publish& publish);

}  // namespace hook
