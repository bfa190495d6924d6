#include "fabric/management_slots.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"

namespace {

using fabric::Hca;

std::vector<Hca> functions(unsigned number, const char* slot, const char* device_id) {
  std::vector<Hca> hcas;
  for (unsigned i = 0; i < number; ++i) {
    hcas.push_back(test_support::hca("mlx5_" + std::to_string(i), i, {test_support::infiniband_port()}));
    hcas.back().pci = std::string(slot) + "." + std::to_string(i);
    hcas.back().device_id = device_id;
  }
  return hcas;
}

std::vector<const Hca*> pointers(const std::vector<Hca>& hcas) {
  std::vector<const Hca*> all;
  for (const Hca& hca : hcas)
    all.push_back(&hca);
  return all;
}

TEST(ManagementSlots, FourFunctionsOfOneSlotAreManagement) {
  for (const unsigned number : {1U, 2U, 3U, 4U, 5U}) {
    const auto hcas = functions(number, "0000:0c:00", "0x1021");
    const auto found = fabric::management_slots(pointers(hcas));
    EXPECT_EQ(found.has(hcas.front()), number >= 4) << number;
    EXPECT_FALSE(found.needs_models);
  }
}

TEST(ManagementSlots, FunctionsWithVfAreRails) {
  const auto hcas = functions(8, "0000:0c:00", "0x101e");
  EXPECT_FALSE(fabric::management_slots(pointers(hcas)).has(hcas.front()));
}

TEST(ManagementSlots, UnknownModelIsReported) {
  auto hcas = functions(4, "0000:0c:00", "0x1021");
  hcas[2].device_id.reset();
  EXPECT_TRUE(fabric::management_slots(pointers(hcas)).needs_models);
}

}  // namespace
