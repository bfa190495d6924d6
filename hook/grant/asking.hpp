// A container as its engine describes it, what it asks for, and the owner of its grant.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hook/base/json/json_fwd.hpp"
#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/oci/caller.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/request/request.hpp"

namespace hook {

struct Asking {
  std::shared_ptr<Json> document = {};  // its config.json; null where something else describes it (NRI)
  ContainerSpec spec = {};
  Config admin = {};
  Recognised caller = {};                  // whose word its annotations are
  std::optional<Request> request = {};     // nullopt: nothing is asked, or what asks may not
  std::vector<std::string> warnings = {};  // e.g. that an annotation asked and was not heard
  Note note = {};                          // as Asked::note
};

// The bundle's config.json of at most 16 MiB, and 262,144 values. Errors name it.
Result<std::string> read_bundle_config(const std::string& bundle);

// admin: the administrator's configuration. That it cannot be read is an error for a container that asks, and a warning
// for one that does not. root: prefix of the /sys that says which of the dynamic device numbers in linux.devices are
// uverbs nodes; nullopt: none says it. Errors: about the configuration, that /sys could not be looked at, or refusals.
Result<Asking> understand(const std::string& config_text, const Result<Config>& admin, const Caller& caller,
                          const std::optional<std::string>& root = "");
Result<Asking> understand_spec(ContainerSpec spec, const Result<Config>& admin, Recognised caller,
                               const std::optional<std::string>& root = "");

// Whether it may get netdevs. Which HCAs it will have, and so which pool's network counts, is not asked. Pure.
bool may_get_rails(const Asking& asking);
// Whether only createRuntime can mount its view of sysfs: it may write to mounts, and has a user namespace. Pure.
bool needs_own_view(const Asking& asking);

// The owner and the user to book for.
struct Grantee {
  Owner owner;
  GrantUser user;
  std::string token = {};  // the annotation by which createRuntime finds what was booked; empty: it need not be found
};

// user: all but its key, which this function sets. place: as container_owner() has it; nullopt: the container has none
// yet, and a new token stands for it. Errors: as owner_of(); no token can be made.
Result<Grantee> grantee_of(const ContainerSpec& spec, GrantUser user, const std::optional<std::string>& place);

// Returns the pod as owner if the container joins its network namespace by path and that is not the node's own; else,
// and where nothing is at that path, `otherwise`. Errors: the path cannot be looked at.
Result<Owner> owner_of(const ContainerSpec& spec, Owner otherwise);
// The container has no network namespace of its own, or joins the node's by path. Errors: as owner_of().
Result<bool> uses_host_network(const ContainerSpec& spec);

}  // namespace hook
