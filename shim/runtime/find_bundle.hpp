// Where the bundle of a container is: for one that exists already, as its runtime's own state says, because reading a
// file costs less than asking the runtime.
#pragma once

#include <optional>
#include <string>

#include "fabric/result.hpp"
#include "shim/runtime/invocation.hpp"

namespace shim {

// The bundle of `create`, absolute; empty: it cannot be told.
std::string absolute_bundle(const Invocation& invocation);
// Of runc and crun, where no --root is given.
std::string default_root(Dialect dialect);
// Where runc or crun keeps its state of this container; empty: the id or the root is none that they take.
std::string state_directory(const std::string& root, const std::string& id, Dialect dialect);

// nullopt: there is no such container, or its runtime keeps its state in another way. root: of --root; empty: the
// runtime's own.
std::optional<std::string> find_bundle(const std::string& root, const std::string& id, Dialect dialect);

}  // namespace shim
