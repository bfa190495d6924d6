// Texts of messages. Names and details come from other ranks, so they are made printable. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "init/ping/outcome.hpp"

namespace init::ping {

// Returns "3, 5 and 6" for at most eight ranks, with the number of further ranks. ranks: at least one.
std::string name_ranks(const std::vector<unsigned>& ranks);
// Returns the ranks of members, given as ascending positions, as at most 12 ranges: "0-2, 7, and 4 more".
std::string name_members(const Outcome& outcome, const std::vector<std::size_t>& positions);
// Returns "rank 3 (host-c)".
std::string name_of(const Member& member);
// Returns "mlx5_0:1 (netdev eth0, GID index 3 10.0.0.1)".
std::string describe(const Member& member, unsigned rail);
// Returns "gid: DETAIL".
std::string describe(const Failure& failure);
// Returns "1 cause" or "2 causes".
std::string count_of(std::size_t count, std::string_view noun);

}  // namespace init::ping
