// Turns the request of a container into its devices, with the same steps for every way: read, decide under the locks,
// book as pending, apply, make the grant valid. If a step fails, the earlier steps are rolled back. grant() ends before
// the apply step: the caller writes booking->adjustment, and then calls booking->finish().
#pragma once

#include <memory>

#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "hook/grant/booking.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/container_request.hpp"

namespace hook {

// Books HCAs for a container, and makes its rails and view. requesting: must have a request. call.ledger: open. Errors:
// those of find_plan() and the ledger; with the reason kNetwork, those of add_rails(), or the namespace or the ledger
// cannot be read.
Result<std::unique_ptr<Booking>> grant(const ContainerRequest& requesting, const Grantee& who, const Way& way,
                                       Call& call);

// Does the same for a container that does not exist yet, and opens the ledger. The caller writes its config.json.
// requester: the process that requests HCAs for the container. With call.state, no createRuntime hook follows: the
// requester becomes the runtime, and the user of the grant is the container. This user is gone when both the requester
// and the container are gone. Without call.state, the user is a token, which is gone when the requester is gone, until
// createRuntime moves the grant from the token to the container.
Result<std::unique_ptr<Booking>> grant_in_spec(const ContainerRequest& requesting, const ProcessIdentity& requester,
                                               Call& call);

}  // namespace hook
