// The directory in which the real runtime (runc or crun) records its containers. Reading a file there costs less than
// starting the runtime.
#pragma once

#include <optional>
#include <string>

#include "hook/ledger/runtime_state.hpp"
#include "shim/runtime/invocation.hpp"

namespace shim {

// Returns the bundle of `create` as an absolute path; empty: the working directory cannot be read.
std::string absolute_bundle(const Invocation& invocation);
// Returns the directory in which runc or crun keeps the state of the container. Returns an empty path if the id is not
// a single path component: both runtimes reject such an id.
std::string state_directory(const Invocation& invocation);

// Returns the bundle that the runtime recorded for the container. nullopt: the container does not exist, or its runtime
// keeps state in another format.
std::optional<std::string> find_bundle(const Invocation& invocation);

// Returns the state directory in which the runtime records whether the container is alive. make_root: creates a missing
// root directory, as the runtime would. nullopt: the container needs the createRuntime hook, because the program is
// neither runc nor crun, or because its root is unknown or missing.
std::optional<hook::RuntimeState> runtime_state_of(const Invocation& invocation, bool make_root = false);

}  // namespace shim
