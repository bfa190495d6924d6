// Names of rails inside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hook/rails/plan/rail.hpp"

namespace hook {

// pattern: "net%d", config.json's "netdev_names". taken: what the namespace has already. Each rail gets the first free
// number from 1 on, in their order.
void name_rails(std::string_view pattern, std::vector<std::string> taken, std::vector<Rail>& rails);

}  // namespace hook
