// The runtime behind, and what its own files tell: where it keeps containers, and where the bundle of one is, because
// reading a file costs less than asking the runtime.
#pragma once

#include <optional>
#include <string>

#include "hook/ledger/runtime_state.hpp"
#include "shim/runtime/invocation.hpp"

namespace shim {

struct Behind {
  std::string runtime;  // absolute path
  Invocation invocation;
  Dialect dialect = Dialect::kRunc;
};

// The bundle of `create`, absolute; empty: it cannot be told.
std::string absolute_bundle(const Invocation& invocation);
// Where runc or crun keeps its state of this container; empty: the id or the root is none that they take.
std::string state_directory(const std::string& root, const std::string& id, Dialect dialect);

// nullopt: there is no such container, or its runtime keeps its state in another way. root: of --root; empty: the
// runtime's own.
std::optional<std::string> find_bundle(const std::string& root, const std::string& id, Dialect dialect);

// Where the runtime behind will tell whether the container lives. nullopt, and the container needs the hook: it is
// neither runc nor crun by the name of its program, its root is not known for sure, or not there yet. make_root: it is
// made then, as the runtime would.
std::optional<hook::RuntimeState> state_behind(const Behind& behind, bool make_root = false);

}  // namespace shim
