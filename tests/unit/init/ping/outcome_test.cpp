#include "init/ping/outcome.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace init::ping;

std::string cells(const Outcome& outcome) {
  std::string text;
  outcome.for_each_cell([&](std::size_t first, std::size_t second, unsigned rail, std::size_t cell) {
    EXPECT_EQ(outcome.cell_of(first, second, rail), cell);
    text += std::to_string(first) + "-" + std::to_string(second) + "/" + std::to_string(rail) + " ";
  });
  return text;
}

TEST(Outcome, HasCellForEachPairAndRail) {
  Outcome outcome;
  EXPECT_EQ(outcome.count_pairs(), 0U);
  outcome.members.resize(3);
  outcome.rails = 2;
  EXPECT_FALSE(outcome.is_sparse());
  EXPECT_EQ(outcome.count_pairs(), 3U);
  EXPECT_EQ(cells(outcome), "0-1/0 0-1/1 0-2/0 0-2/1 1-2/0 1-2/1 ");
}

TEST(Outcome, SparseOneHasCellsOfItsPairsOnly) {
  Outcome outcome;
  outcome.members.resize(5);
  outcome.rails = 1;
  outcome.add_pairs({{1, 4}, {0, 2}, {0, 4}});
  EXPECT_TRUE(outcome.is_sparse());
  EXPECT_EQ(outcome.count_pairs(), 3U);
  EXPECT_EQ(cells(outcome), "0-2/0 0-4/0 1-4/0 ");
  EXPECT_GE(outcome.cell_of(2, 3, 0), outcome.cells.size());
  EXPECT_EQ(outcome.cells, std::vector<Layer>(3, Layer::kUntested));
}

TEST(Outcome, AddedPairsKeepTheResults) {
  Outcome outcome;
  outcome.members.resize(5);
  outcome.rails = 2;
  outcome.add_pairs({{0, 1}, {2, 4}});
  outcome.gbps.resize(outcome.cells.size());
  outcome.cells[outcome.cell_of(2, 4, 1)] = Layer::kGood;
  outcome.gbps[outcome.cell_of(2, 4, 1)] = 300;
  outcome.add_pairs({{1, 2}, {2, 4}});
  EXPECT_EQ(outcome.count_pairs(), 3U);
  EXPECT_EQ(outcome.cells[outcome.cell_of(2, 4, 1)], Layer::kGood);
  EXPECT_FLOAT_EQ(outcome.gbps[outcome.cell_of(2, 4, 1)], 300);
  EXPECT_EQ(outcome.cells[outcome.cell_of(1, 2, 0)], Layer::kUntested);
  EXPECT_EQ(outcome.gbps.size(), outcome.cells.size());
}

}  // namespace
