#pragma once

#include <optional>
#include <string>

#include "fabric/result.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

// The owner and the user to book for.
struct Grantee {
  Owner owner;
  GrantUser user;
  std::string token = {};  // the annotation by which createRuntime finds what was booked; empty: it need not be found
};

// user: all but its key, which this function sets. place: as container_owner() has it; nullopt: the container has none
// yet, and a new token stands for it. Errors: as owner_of(); no token can be made.
fabric::Result<Grantee> grantee_of(const ContainerSpec& spec, GrantUser user, const std::optional<std::string>& place);

// Returns the pod as owner if the container joins its network namespace by path and that is not the node's own; else,
// and where nothing is at that path, `otherwise`. Errors: the path cannot be looked at.
fabric::Result<Owner> owner_of(const ContainerSpec& spec, Owner otherwise);
// The container has no network namespace of its own, or joins the node's by path. Errors: as owner_of().
fabric::Result<bool> uses_host_network(const ContainerSpec& spec);

}  // namespace hook
