// `rdma-hook doctor`: the node's whole chain, from the kernel to the engine, each finding with its remedy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hook/doctor/checks.hpp"
#include "hook/grant/node.hpp"

namespace hook {

// Never fails: what cannot be seen is a finding. Of a snapshot without a root what it tells is looked at, and no more.
// With a root, in which the configuration and the ledger are too, unless they are named, files are looked at as well.
std::vector<Check> examine_node(const NodeSettings& node);

// The worst of them; nullopt: nothing is wrong. A note is nothing wrong.
std::optional<Grade> worst(const std::vector<Check>& checks);

// A table of 80 columns. quiet: what is wrong alone; empty: nothing.
std::string findings_text(const std::vector<Check>& checks, bool quiet);
// {"verdict": "ok"|"warnings"|"broken", "version",
//  "checks": [{"name", "looked", "summary", "findings": [{"grade", "object", "message", "remedy"}]}]}
std::string findings_json(const std::vector<Check>& checks);

}  // namespace hook
