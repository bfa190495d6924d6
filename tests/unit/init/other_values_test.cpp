// Values of libraries beside NCCL that are set already.
#include "init/decision.hpp"
#include "init/doctor.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"

namespace {

// Empty: nothing is wrong.
std::string problem(const char* name, const char* value) {
  fabric::Inventory node = test_support::rails(2);
  node.hcas[1].ports[0].state = "1: DOWN";
  const init::Settings settings = {{name, {value, "environment"}}};
  const auto decision = init::decide(node, settings, {});
  const auto checks = init::check_other_values(node, settings, {}, decision);
  if (checks.empty()) return "";
  EXPECT_EQ(checks[0].verdict, init::Verdict::kNote);
  EXPECT_NE(checks[0].remedy.find(name), std::string::npos);
  return checks[0].message;
}

TEST(OtherValues, OneProblemEach) {
  struct Row {
    const char* name;
    const char* value;
    const char* part;  // empty: right
  };
  const std::vector<Row> rows = {
      {"UCX_NET_DEVICES", "mlx5_0:1,eth0", ""},
      {"UCX_NET_DEVICES", "all", ""},
      {"UCX_NET_DEVICES", "^mlx5_1:1", ""},
      {"UCX_NET_DEVICES", "mlx5_[0-3]:1", ""},
      {"UCX_NET_DEVICES", "mlx5_7:1",
       "UCX_NET_DEVICES=mlx5_7:1 (environment): names mlx5_7:1, which is not in this container"},
      {"UCX_NET_DEVICES", "mlx5_0", "without its port (`mlx5_0:1`)"},
      {"UCX_NET_DEVICES", "mlx5_1:1", "names mlx5_1:1, which cannot be used"},
      {"UCX_NET_DEVICES", "mlx5_0:2", "names mlx5_0:2, which is not"},
      {"NVSHMEM_HCA_LIST", "mlx5_0:1", ""},
      {"NVSHMEM_HCA_LIST", "=mlx5_0:1", "names =mlx5_0:1, which is not"},
      {"MSCCLPP_HCA_DEVICES", "mlx5_0", ""},
      {"MSCCLPP_HCA_DEVICES", "mlx5_0:1", "which is not in this container"},
      {"MC_TE_FILTERS", " mlx5_0 , ", ""},
      {"MC_TE_FILTERS", "mlx5_9", "which is not"},
      {"UCCL_IB_HCA", "=mlx5_0", ""},
      {"UCCL_IB_HCA", "=mlx5_9", "selects no port"},
      {"MSCCLPP_IB_GID_INDEX", "3", ""},
      {"MSCCLPP_IB_GID_INDEX", "2", "not a RoCE v2 address"},
      {"MC_GID_INDEX", "0", "not a RoCE v2 address"},
      {"MC_GID_INDEX", "words", ""},
      {"UCCL_IB_GID_INDEX", "-1", ""},
      {"FI_VERBS_GID_IDX", "200", "is empty"},
  };
  for (const Row& row : rows) {
    const std::string found = problem(row.name, row.value);
    EXPECT_EQ(found.empty(), *row.part == '\0') << row.name << "=" << row.value << ": " << found;
    EXPECT_NE(found.find(row.part), std::string::npos) << row.name << "=" << row.value << ": " << found;
  }
}

}  // namespace
