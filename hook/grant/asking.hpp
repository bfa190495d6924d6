// A container as its engine describes it, and what it asks for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/json/json_fwd.hpp"
#include "hook/config/config.hpp"
#include "hook/oci/caller.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/request/parse_request.hpp"
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
fabric::Result<std::string> read_bundle_config(const std::string& bundle);

// admin: the administrator's configuration. That it cannot be read is an error for a container that asks, and a warning
// for one that does not. root: prefix of the /sys that says which of the dynamic device numbers in linux.devices are
// uverbs nodes; nullopt: none says it. Errors: about the configuration, that /sys could not be looked at, or refusals.
fabric::Result<Asking> understand(const std::string& config_text, const fabric::Result<Config>& admin,
                                  const Caller& caller, const std::optional<std::string>& root = "");
fabric::Result<Asking> understand_spec(ContainerSpec spec, const fabric::Result<Config>& admin, Recognised caller,
                                       const std::optional<std::string>& root = "");

// Whether it may get netdevs. Which HCAs it will have, and so which pool's network counts, is not asked. Pure.
bool may_get_rails(const Asking& asking);
// Whether only createRuntime can mount its view of sysfs: it may write to mounts, and has a user namespace. Pure.
bool needs_own_view(const Asking& asking);

}  // namespace hook
