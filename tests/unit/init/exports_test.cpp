#include "init/exports.hpp"
#include "init/decision.hpp"

#include <gtest/gtest.h>

#include "support/inventories.hpp"

namespace {

using fabric::Inventory;
using init::decide;
using init::Variables;
using test_support::rails;

class Exports : public testing::Test {
 protected:
  Exports() : node_(rails(2)) {
    node_.hcas[0].pci = "0000:99:00.0";  // behind mlx5_1 in PCI order
    candidates_ = init::find_candidates(node_, {});
    input_.ports = {{&candidates_[0], "rail0"}, {&candidates_[1], "rail1"}};
    input_.index = 3;
    input_.default_netdev = "eth0";
  }
  Inventory node_;
  std::vector<init::Candidate> candidates_;
  init::ExportInput input_;
};

TEST_F(Exports, EachLibraryHasItsOwnSyntax) {
  struct Row {
    const char* library;
    Variables variables;
  };
  const std::vector<Row> rows = {
      {"nccl", {}},
      {"ucx", {{"UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1,rail0,rail1,eth0"}, {"UCX_IB_GID_INDEX", "3"}}},
      {"nvshmem", {{"NVSHMEM_HCA_LIST", "mlx5_0:1,mlx5_1:1"}, {"NVSHMEM_IB_GID_INDEX", "3"}}},
      {"mscclpp", {{"MSCCLPP_HCA_DEVICES", "mlx5_1,mlx5_0"}, {"MSCCLPP_IB_GID_INDEX", "3"}}},
      {"gloo", {{"GLOO_SOCKET_IFNAME", "eth0"}}},
      {"bootstrap", {{"NCCL_SOCKET_IFNAME", "=eth0"}}},
      {"uccl", {{"UCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"}, {"UCCL_IB_GID_INDEX", "3"}}},
      {"mooncake", {{"MC_TE_FILTERS", "mlx5_0,mlx5_1"}, {"MC_GID_INDEX", "3"}}},
      {"openmpi", {{"OMPI_MCA_btl_openib_if_include", "mlx5_0:1,mlx5_1:1"}, {"OMPI_MCA_btl_openib_gid_index", "3"}}},
      {"libfabric", {{"FI_VERBS_GID_IDX", "3"}}},
      {"unknown", {}},
  };
  for (const Row& row : rows)
    EXPECT_EQ(library_variables(row.library, input_), row.variables) << row.library;
  EXPECT_EQ(nccl_hca_value(input_.ports), "=mlx5_0:1,mlx5_1:1");
}

TEST_F(Exports, NoIndexWhereThePortsDiffer) {
  input_.index.reset();
  for (const std::string_view library : init::export_names()) {
    for (const auto& [name, value] : library_variables(library, input_))
      EXPECT_EQ(name.find("GID_I"), std::string::npos) << name;
  }
}

TEST_F(Exports, NeverAnEmptyValue) {
  input_.default_netdev.clear();
  input_.ports[0].netdev.clear();
  input_.ports[1].netdev.clear();
  input_.index.reset();
  for (const std::string_view library : init::export_names()) {
    for (const auto& [name, value] : library_variables(library, input_))
      EXPECT_FALSE(value.empty()) << name;
  }
  EXPECT_EQ(library_variables("ucx", input_), (Variables{{"UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1"}}));
  EXPECT_TRUE(library_variables("gloo", input_).empty());
  EXPECT_TRUE(library_variables("bootstrap", input_).empty());
}

TEST_F(Exports, UcxNamesANetdevOnce) {
  input_.ports[1].netdev = "rail0";
  input_.default_netdev = "rail0";
  EXPECT_EQ(library_variables("ucx", input_)[0].second, "mlx5_0:1,mlx5_1:1,rail0");
}

TEST_F(Exports, Ipv6IsSaidToNvshmem) {
  input_.ipv6 = true;
  EXPECT_EQ(library_variables("nvshmem", input_).back(),
            (std::pair<std::string, std::string>{"NVSHMEM_IB_ADDR_FAMILY", "AF_INET6"}));
}

TEST(ParseExports, KnowsTheLibraries) {
  using Libraries = std::vector<std::string>;
  EXPECT_EQ(*init::parse_exports("nccl, gloo"), (Libraries{"nccl", "gloo"}));
  EXPECT_EQ(*init::parse_exports("none"), Libraries{});
  const std::string known = "nccl, ucx, nvshmem, mscclpp, gloo, uccl, mooncake, openmpi, libfabric, bootstrap or none";
  EXPECT_EQ(init::parse_exports("nccl,rccl").error().message, "`rccl` is no library that --export knows: " + known);
  EXPECT_EQ(init::parse_exports("").error().message, "`` is no library that --export knows: " + known);
  EXPECT_FALSE(init::parse_exports("nccl,none"));
}

TEST(DecisionEnv, IsWhatNcclMustReadAndNoMore) {
  const auto decision = decide(rails(2), {}, {});
  EXPECT_EQ(decision.env, (Variables{{"NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"},
                                     {"NCCL_IB_GID_INDEX", "3"},
                                     {"UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1,rail0,rail1"},
                                     {"UCX_IB_GID_INDEX", "3"},
                                     {"NVSHMEM_HCA_LIST", "mlx5_0:1,mlx5_1:1"},
                                     {"NVSHMEM_IB_GID_INDEX", "3"}}));
}

TEST(DecisionEnv, InfinibandHasNoIndex) {
  Inventory node = rails(1);
  node.hcas[0].ports[0] = test_support::infiniband_port();
  init::Policy policy;
  policy.exports = {"nccl", "ucx", "nvshmem", "mscclpp", "uccl", "mooncake", "openmpi", "libfabric"};
  for (const auto& [name, value] : decide(node, {}, policy).env)
    EXPECT_EQ(name.find("GID"), std::string::npos) << name;
}

TEST(DecisionEnv, Ipv6SaysItsFamily) {
  Inventory node = rails(1);
  node.netdevs[1] = test_support::netdev("rail0", {"fd00::1"});
  node.hcas[0].ports[0].gids = {test_support::v2(4, "fd00::1")};
  const auto decision = decide(node, {}, {});
  EXPECT_EQ(decision.env[1], (std::pair<std::string, std::string>{"NCCL_IB_GID_INDEX", "4"}));
  EXPECT_EQ(decision.env[2], (std::pair<std::string, std::string>{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}));
}

TEST(DecisionEnv, NothingWithoutAPort) {
  EXPECT_TRUE(decide(Inventory{}, {}, {}).env.empty());
  init::Policy policy;
  policy.exports = {};
  const auto none = decide(rails(1), {}, policy);
  EXPECT_TRUE(none.env.empty());
  EXPECT_EQ(none.status, init::Status::kOk) << "there are ports, and nothing was to be written";
}

}  // namespace
