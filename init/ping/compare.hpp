// Compares the ports of the ranks before any traffic. Pure.
#pragma once

#include <string>
#include <vector>

#include "init/ping/outcome.hpp"

namespace init::ping {

// Returns one line for each member whose ports differ in number, rate or link layer from those of most members, because
// NCCL hangs on such a difference. If no kind of ports has a majority, the members with more ports are the usual ones.
std::vector<std::string> compare_members(const std::vector<Member>& members);

}  // namespace init::ping
