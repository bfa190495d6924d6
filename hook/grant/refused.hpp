// Notes the refusal of a container for `rdma-hook devices --refused` (hook/ledger/refusals.hpp).
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hook/ledger/refusals.hpp"
#include "hook/oci/caller.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

// Returns the identity of a container. Only containerd and CRI-O have pods: annotations of other engines can come from
// an image. Pure.
RefusedContainer refused_container(std::string id, const ContainerSpec& spec, Engine engine);

// Returns the identity from the text of the container's config.json. Returns only the id if the text is no valid
// config.json. Pure.
RefusedContainer refused_container(std::string id, const std::string& config_text, const Caller& caller);

// Notes that the stage refused the container. Every program that refuses a container calls this function, after its
// last step for the container. Best effort, and within 50 ms (note_refusal()).
void note_refused(const std::string& ledger_directory, std::string_view stage, RefusedContainer container,
                  const Error& error);

}  // namespace hook
