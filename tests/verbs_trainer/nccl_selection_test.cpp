#include "nccl_selection.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <map>

namespace trainer {
namespace {

TEST(HcaList, ExactNamesDoNotTakeLongerOnes) {
  const auto list = parse_hca_list("=mlx5_1:1,mlx5_2");
  EXPECT_TRUE(selects(list, "mlx5_1", 1));
  EXPECT_FALSE(selects(list, "mlx5_1", 2));
  EXPECT_FALSE(selects(list, "mlx5_10", 1));
  EXPECT_TRUE(selects(list, "mlx5_2", 2));
}

TEST(HcaList, WithoutEqualsSignNamesArePrefixes) {
  const auto list = parse_hca_list("mlx5_1");
  EXPECT_TRUE(selects(list, "mlx5_1", 1));
  EXPECT_TRUE(selects(list, "mlx5_10", 1));
  EXPECT_FALSE(selects(list, "mlx5_2", 1));
}

TEST(HcaList, ExcludeTurnsTheListAround) {
  EXPECT_FALSE(selects(parse_hca_list("^=mlx5_1"), "mlx5_1", 1));
  EXPECT_TRUE(selects(parse_hca_list("^=mlx5_1"), "mlx5_10", 1));
  EXPECT_FALSE(selects(parse_hca_list("^mlx5"), "mlx5_10", 1));
}

TEST(HcaList, OrderOfThePrefixCharactersIsFixed) {
  EXPECT_FALSE(selects(parse_hca_list("=^mlx5_0"), "mlx5_1", 1));
}

TEST(HcaList, EmptyListsTakeAllOrNothing) {
  EXPECT_TRUE(selects(parse_hca_list(""), "mlx5_0", 1));
  EXPECT_TRUE(selects(parse_hca_list("="), "mlx5_0", 1));
  EXPECT_FALSE(selects(parse_hca_list("^"), "mlx5_0", 1));
  EXPECT_FALSE(selects(parse_hca_list("^="), "mlx5_0", 1));
}

TEST(HcaList, PortThatIsNoNumberMatchesNothing) {
  EXPECT_FALSE(selects(parse_hca_list("=mlx5_0:x"), "mlx5_0", 1));
}

TEST(HcaList, NamesAreNotTrimmedAndEmptyEntriesAreSkipped) {
  EXPECT_FALSE(selects(parse_hca_list("=a, b"), "b", 1));
  EXPECT_TRUE(selects(parse_hca_list("=a,,b,"), "b", 1));
}

GidSlot slot(const char* address, std::optional<int> version) {
  GidSlot result;
  result.version = version;
  EXPECT_EQ(inet_pton(AF_INET6, address, result.gid.data()), 1) << address;
  return result;
}

std::map<std::string, std::string> variables;
const char* get_variable(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

GidRules rules_of(std::map<std::string, std::string> environment) {
  variables = std::move(environment);
  return read_gid_rules(get_variable);
}

const std::vector<GidSlot> kForeignFirst = {slot("fe80::1", 2), slot("::ffff:10.1.0.50", 2), slot("fe80::2", 2),
                                            slot("::ffff:10.2.0.1", 2)};

TEST(ChooseGid, FirstIpv4OfTheTableWins) {
  EXPECT_EQ(choose_gid(kForeignFirst, rules_of({})), 1);
}

TEST(ChooseGid, AnIndexIsTakenAsItIs) {
  EXPECT_EQ(choose_gid(kForeignFirst, rules_of({{"NCCL_IB_GID_INDEX", "3"}})), 3);
  EXPECT_EQ(choose_gid(kForeignFirst, rules_of({{"NCCL_IB_GID_INDEX", "0x63"}})), 99);
  EXPECT_EQ(choose_gid(kForeignFirst, rules_of({{"NCCL_IB_GID_INDEX", "auto"}})), 0);
}

TEST(ChooseGid, EmptyAndNegativeIndexMeanChoose) {
  EXPECT_EQ(choose_gid(kForeignFirst, rules_of({{"NCCL_IB_GID_INDEX", ""}})), 1);
  EXPECT_EQ(choose_gid(kForeignFirst, rules_of({{"NCCL_IB_GID_INDEX", "-1"}})), 1);
}

TEST(ChooseGid, RangeLeavesTheOthersOut) {
  EXPECT_EQ(choose_gid(kForeignFirst, rules_of({{"NCCL_IB_ADDR_RANGE", "10.2.0.0/16"}})), 3);
  EXPECT_EQ(choose_gid(kForeignFirst, rules_of({{"NCCL_IB_ADDR_RANGE", "10.2.0.0"}})), 1) << "no length: ignored";
  EXPECT_EQ(choose_gid(kForeignFirst, rules_of({{"NCCL_IB_ADDR_RANGE", "10.2.0.0/33"}})), 1) << "too long: ignored";
}

TEST(ChooseGid, VersionTwoReplacesVersionOne) {
  const std::vector<GidSlot> table = {slot("fe80::1", 1), slot("fe80::1", 2), slot("::ffff:10.0.0.1", 1),
                                      slot("::ffff:10.0.0.1", 2)};
  EXPECT_EQ(choose_gid(table, rules_of({})), 3);
  EXPECT_EQ(choose_gid(table, rules_of({{"NCCL_IB_ROCE_VERSION_NUM", "1"}})), 2);
}

TEST(ChooseGid, Ipv6OnlyNeedsTheFamily) {
  const std::vector<GidSlot> table = {slot("fe80::1", 1), slot("fe80::1", 2), slot("fd00::1", 1), slot("fd00::1", 2)};
  EXPECT_EQ(choose_gid(table, rules_of({})), 0);
  EXPECT_EQ(choose_gid(table, rules_of({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}})), 3);
}

}  // namespace
}  // namespace trainer
