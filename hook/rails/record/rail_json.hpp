// A rail as a record has it. Internal to hook/rails/record.
#pragma once

#include "fabric/result.hpp"
#include "hook/base/json/json.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

Json rail_json(const Rail& rail);
// Errors: a member that is missing or wrong.
fabric::Result<Rail> parse_rail(const Json& entry);

Json vf_json(const VfAttributes& vf);
fabric::Result<VfAttributes> parse_vf(const Json& entry);

}  // namespace hook
