// `rdma-hook doctor`: checks the node from the kernel to the engine. A finding has a remedy if one is known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hook/admin/doctor/checks.hpp"
#include "hook/grant/node.hpp"

namespace hook {

// Runs all checks. Returns an error as a finding. A snapshot without node.root is checked only for the
// facts that it has. With node.root, the files, configuration and ledger below this directory are checked too, unless
// options set other paths.
std::vector<Check> examine_node(const NodeSettings& node);

// Returns the worst grade of all findings; nullopt if there are only notes or none.
std::optional<Grade> worst(const std::vector<Check>& checks);

// Returns the findings as a table of 80 columns.
// quiet: only warnings and broken; returns an empty text if there are none.
std::string findings_text(const std::vector<Check>& checks, bool quiet);
// Returns {"verdict": "ok"|"warnings"|"broken", "version", "checks": [{"name", "looked", "summary", "findings":
// [{"grade", "object", "message", "remedy"}]}]}
std::string findings_json(const std::vector<Check>& checks);

}  // namespace hook
