// What the tests of alignments share: ports of the kernel's model with a rail's address on each.
#pragma once

#include <random>
#include <vector>

#include "hook/rails/align/align.hpp"
#include "unit/rails/kernel_gid_model.hpp"

namespace test_support {

using Random = std::mt19937;
// 0 to limit - 1.
unsigned below(Random& random, unsigned limit);

fabric::Address own_address(std::size_t rail);
fabric::Address others_address(unsigned netdev);

// A port of other containers' GIDs, the rail's address behind them.
KernelGidTable port_with(unsigned length, unsigned types, unsigned others_before, std::uint8_t rail);
// "rail0" and so on, one a port, whole tables.
std::vector<hook::AlignRail> rails_of(const std::vector<KernelGidTable>& ports);
// The slots without those of the container itself.
std::vector<KernelGidTable::Slot> foreign(const KernelGidTable& port);

}  // namespace test_support
