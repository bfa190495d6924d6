// The decision as JSON, shared by `env --format json` and `doctor --json`.
#pragma once

#include <nlohmann/json.hpp>

#include "init/decision.hpp"

namespace init {

nlohmann::ordered_json decision_json(const Decision& decision);

// Text for stdout; names that are not UTF-8 are replaced, not thrown about.
std::string dump_json(const nlohmann::ordered_json& json);

}  // namespace init
