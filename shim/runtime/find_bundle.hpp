// Where the bundle of a container is: for one that exists already, as its runtime's own state says, because reading a
// file costs less than asking the runtime.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "shim/runtime/invocation.hpp"

namespace shim {

// Pure: of runc's ROOT/ID/state.json and crun's ROOT/ID/status. nullopt: none is said.
std::optional<std::string> bundle_of_runc_state(std::string_view text);
std::optional<std::string> bundle_of_crun_status(std::string_view text);

// The bundle of `create`, absolute; empty: it cannot be told.
std::string absolute_bundle(const Invocation& invocation);
// Where runc or crun keeps its state of this container; empty: the id or the root is none that they take.
std::string state_directory(const std::string& root, const std::string& id, Dialect dialect);

// nullopt: there is no such container, or its runtime keeps its state in another way. root: of --root; empty: the
// runtime's own.
std::optional<std::string> find_bundle(const std::string& root, const std::string& id, Dialect dialect);

}  // namespace shim
