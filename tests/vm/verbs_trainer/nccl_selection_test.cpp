#include "nccl_selection.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <map>

namespace trainer {
namespace {

TEST(HcaList, SelectsAsNcclDoes) {
  const struct {
    const char *name, *list, *hca;
    int port;
    bool is_selected;
  } cases[] = {
      {"exact, with a port", "=mlx5_1:1,mlx5_2", "mlx5_1", 1, true},
      {"another port", "=mlx5_1:1,mlx5_2", "mlx5_1", 2, false},
      {"exact names do not take longer ones", "=mlx5_1:1,mlx5_2", "mlx5_10", 1, false},
      {"any port", "=mlx5_1:1,mlx5_2", "mlx5_2", 2, true},
      {"without `=` names are prefixes", "mlx5_1", "mlx5_1", 1, true},
      {"a prefix selects longer names", "mlx5_1", "mlx5_10", 1, true},
      {"a prefix selects no other name", "mlx5_1", "mlx5_2", 1, false},
      {"`^` inverts the list", "^=mlx5_1", "mlx5_1", 1, false},
      {"`^=` excludes exact names", "^=mlx5_1", "mlx5_10", 1, true},
      {"`^` excludes by prefix", "^mlx5", "mlx5_10", 1, false},
      {"the order of the prefix characters is fixed", "=^mlx5_0", "mlx5_1", 1, false},
      {"an empty list selects all", "", "mlx5_0", 1, true},
      {"`=` selects all", "=", "mlx5_0", 1, true},
      {"`^` selects nothing", "^", "mlx5_0", 1, false},
      {"`^=` selects nothing", "^=", "mlx5_0", 1, false},
      {"a port that is not a number", "=mlx5_0:x", "mlx5_0", 1, false},
      {"names are not trimmed", "=a, b", "b", 1, false},
      {"empty entries are skipped", "=a,,b,", "b", 1, true},
  };
  for (const auto& one : cases)
    EXPECT_EQ(selects(parse_hca_list(one.list), one.hca, one.port), one.is_selected) << one.name;
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

TEST(ChooseGid, ChoosesAsNcclDoes) {
  const std::vector<GidSlot> foreign_first = {slot("fe80::1", 2), slot("::ffff:10.1.0.50", 2), slot("fe80::2", 2),
                                              slot("::ffff:10.2.0.1", 2)};
  const std::vector<GidSlot> both_versions = {slot("fe80::1", 1), slot("fe80::1", 2), slot("::ffff:10.0.0.1", 1),
                                              slot("::ffff:10.0.0.1", 2)};
  const std::vector<GidSlot> ipv6 = {slot("fe80::1", 1), slot("fe80::1", 2), slot("fd00::1", 1), slot("fd00::1", 2)};
  const struct {
    const char* name;
    const std::vector<GidSlot>& table;
    std::map<std::string, std::string> environment;
    int index;
  } cases[] = {
      {"the first IPv4 of the table", foreign_first, {}, 1},
      {"an index is used unchanged", foreign_first, {{"NCCL_IB_GID_INDEX", "3"}}, 3},
      {"an index beyond the table is used", foreign_first, {{"NCCL_IB_GID_INDEX", "0x63"}}, 99},
      {"a word is index 0", foreign_first, {{"NCCL_IB_GID_INDEX", "auto"}}, 0},
      {"NCCL chooses with an empty index", foreign_first, {{"NCCL_IB_GID_INDEX", ""}}, 1},
      {"NCCL chooses with a negative index", foreign_first, {{"NCCL_IB_GID_INDEX", "-1"}}, 1},
      {"a range excludes other addresses", foreign_first, {{"NCCL_IB_ADDR_RANGE", "10.2.0.0/16"}}, 3},
      {"a range without length is ignored", foreign_first, {{"NCCL_IB_ADDR_RANGE", "10.2.0.0"}}, 1},
      {"a range with a wrong length is ignored", foreign_first, {{"NCCL_IB_ADDR_RANGE", "10.2.0.0/33"}}, 1},
      {"version 2 replaces version 1", both_versions, {}, 3},
      {"version 1 on request", both_versions, {{"NCCL_IB_ROCE_VERSION_NUM", "1"}}, 2},
      {"IPv6 without its family", ipv6, {}, 0},
      {"IPv6 with its family", ipv6, {{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}}, 3},
  };
  for (const auto& one : cases)
    EXPECT_EQ(choose_gid(one.table, rules_of(one.environment)), one.index) << one.name;
}

}  // namespace
}  // namespace trainer
