#include "unit/rails/align_scene.hpp"

#include "support/inventories.hpp"

namespace test_support {

using fabric::Address;
using hook::AlignRail;

unsigned below(Random& random, unsigned limit) {
  return static_cast<unsigned>(random()) % limit;
}

Address own_address(std::size_t rail) {
  return address(fmt::format("10.1.{}.2", rail));
}

Address others_address(unsigned netdev) {
  return address(fmt::format("10.9.{}.{}", netdev / 256, netdev % 256));
}

KernelGidTable port_with(unsigned length, unsigned types, unsigned others_before, std::uint8_t rail) {
  KernelGidTable port(length, types, rail);
  for (unsigned i = 0; i < others_before; ++i)
    port.add(others_address(i + 10), i + 10);
  port.add(own_address(rail), kOwnNetdev);
  return port;
}

std::vector<AlignRail> rails_of(const std::vector<KernelGidTable>& ports) {
  std::vector<AlignRail> rails;
  for (unsigned rail = 0; rail < ports.size(); ++rail)
    rails.push_back({rail, fmt::format("rail{}", rail), own_address(rail), ports[rail].read(ports[rail].length())});
  return rails;
}

std::vector<KernelGidTable::Slot> foreign(const KernelGidTable& port) {
  auto slots = port.slots();
  for (auto& slot : slots)
    if (slot.netdev == kOwnNetdev) slot = {};
  return slots;
}

}  // namespace test_support
