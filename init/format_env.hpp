// Formats the decision as text for `rdma-init env`, and as JSON, also for `doctor --json`. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "init/decision.hpp"

namespace init {

// Returns the text as one word of a POSIX shell, for any text.
std::string shell_quote(std::string_view text);

// Returns lines of the form "export NAME='value'", safe for eval.
std::string format_sh(const Decision& decision);
// Returns NAME=value lines for --env-file and dotenv readers. Errors: a value with a line break, which the format
// cannot express.
base::Result<std::string> format_dotenv(const Decision& decision);
// Returns one JSON object: status, env, kept, ports, warnings (docs/rdma-init.md, "Output for machines").
std::string format_json(const Decision& decision);

nlohmann::ordered_json decision_json(const Decision& decision);
// Returns indented JSON text. Invalid UTF-8 in names is replaced and does not throw.
std::string dump_json(const nlohmann::ordered_json& json);

}  // namespace init
