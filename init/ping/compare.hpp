// Compares the HCAs of the ranks before any traffic: NCCL hangs if they differ. Pure.
#pragma once

#include <string>
#include <vector>

#include "init/ping/outcome.hpp"

namespace init::ping {

// Returns one line for each member whose ports differ in number, rate or link layer from those of most members.
std::vector<std::string> compare_members(const std::vector<Member>& members);

// Returns "rank 3 (host-c)" for messages.
std::string name_of(const Member& member);

}  // namespace init::ping
