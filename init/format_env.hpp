// The decision as text for `rdma-init env`, and as JSON for `doctor --json` too. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "init/decision.hpp"

namespace init {

// The text as one word of a POSIX shell, whatever it contains.
std::string shell_quote(std::string_view text);

// "export NAME='value'" lines, safe for eval.
std::string format_sh(const Decision& decision);
// NAME=value lines for --env-file and dotenv readers. Error: a value with a line break, which the format cannot hold.
fabric::Result<std::string> format_dotenv(const Decision& decision);
// One JSON object: status, env, kept, ports, warnings (docs/rdma-init.md, "Output for machines").
std::string format_json(const Decision& decision);

nlohmann::ordered_json decision_json(const Decision& decision);
// Text for stdout; names that are not UTF-8 are replaced, not thrown about.
std::string dump_json(const nlohmann::ordered_json& json);

}  // namespace init
