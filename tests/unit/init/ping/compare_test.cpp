#include "init/ping/compare.hpp"

#include <gtest/gtest.h>

namespace {

using namespace init::ping;
using Lines = std::vector<std::string>;

std::vector<Member> members_with(const std::vector<std::size_t>& rails) {
  std::vector<Member> members(rails.size());
  for (unsigned rank = 0; rank < members.size(); ++rank) {
    members[rank].rank = rank;
    members[rank].host = "host" + std::to_string(rank);
    members[rank].rails.resize(rails[rank]);
    for (Rail& rail : members[rank].rails)
      rail.rate_mbps = 400'000;
  }
  return members;
}

TEST(CompareMembers, NamesMemberWithFewerPortsIfNoKindHasAMajority) {
  std::vector<Member> members = members_with({2, 1});
  members[1].unused = {"mlx5_1:1: its device node cannot be opened\n"};
  EXPECT_EQ(compare_members(members),
            Lines{"rank 1 (host1) has 1 x RoCE 400 Gb/s, 1 of 2 ranks has 2 x RoCE 400 Gb/s; not used: mlx5_1:1: its "
                  "device node cannot be opened?"});
  EXPECT_EQ(compare_members(members_with({1, 2})),
            Lines{"rank 0 (host0) has 1 x RoCE 400 Gb/s, 1 of 2 ranks has 2 x RoCE 400 Gb/s"});
  EXPECT_EQ(compare_members(members_with({0, 2})),
            Lines{"rank 0 (host0) has no HCA port that NCCL uses, 1 of 2 ranks has 2 x RoCE 400 Gb/s"});
}

TEST(CompareMembers, NamesMembersThatDifferFromMost) {
  EXPECT_EQ(compare_members(members_with({1, 2, 1})),
            Lines{"rank 1 (host1) has 2 x RoCE 400 Gb/s, 2 of 3 ranks have 1 x RoCE 400 Gb/s"});
  EXPECT_EQ(compare_members(members_with({2, 2})), Lines{});
}

}  // namespace
