// The report of `rdma-init doctor`. Pure.
#pragma once

#include <string>
#include <vector>

#include "init/checkup.hpp"
#include "init/decision.hpp"

namespace init {

std::string doctor_text(const Decision& decision, const std::vector<Check>& checks);
std::string doctor_json(const Decision& decision, const std::vector<Check>& checks);

}  // namespace init
