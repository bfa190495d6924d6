#include "init/rail_place.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "init/doctor.hpp"
#include "init/format_env.hpp"
#include "init/topo.hpp"
#include "support/inventories.hpp"

namespace {

using init::Decision;
using init::Policy;

TEST(Rails, ReadsTextOfTheNodeOrNone) {
  EXPECT_EQ(init::parse_rails("mlx5_4=0,mlx5_9=1.0"), (init::Rails{{"mlx5_4", {0, std::nullopt}}, {"mlx5_9", {1, 0}}}));
  // The node writes none of these, so an image did.
  for (const std::string text : {"", "mlx5_0", "mlx5_0=", "=1", "mlx5_0=1,", "mlx5_0=x", "mlx5_0=-1", "mlx5_0=1.",
                                 "mlx5_0=1.x", "mlx5_0=1.2.3", "mlx5_0=10000", "mlx5_0=1.99999999999",
                                 "mlx5_0=0,mlx5_0=1", "a b=1", "^mlx5_0=1", "mlx5_0:1=0", "mlx5_0=0\n", "\x1b[2J=0"})
    EXPECT_EQ(init::parse_rails(text), std::nullopt) << text;
  EXPECT_EQ(init::parse_rails(std::string(64, 'a') + "=0"), std::nullopt) << "longer than a name can be";
}

std::string list_of(const Decision& decision) {
  for (const auto& [name, value] : decision.env)
    if (name == "NCCL_IB_HCA") return value;
  return "";
}

TEST(Rails, AreInTheListOnlyForAVersionThatReadsThem) {
  const fabric::Inventory node = test_support::rails(3);
  Policy policy;
  policy.rails = *init::parse_rails("mlx5_0=0.0,mlx5_1=0.1,mlx5_9=7");
  const std::string plain = "=mlx5_0:1,mlx5_1:1,mlx5_2:1";
  const std::string with_rails = "=mlx5_0:1:0:0,mlx5_1:1:0:1,mlx5_2:1";
  EXPECT_EQ(list_of(init::decide(node, {}, policy)), plain) << "no version is stated";
  const std::pair<const char*, const std::string*> rows[] = {
      {"2.30.4", &plain}, {"2.30.5", &with_rails}, {"2.31.0", &with_rails}, {"x", &plain}};
  for (const auto& [version, list] : rows)
    EXPECT_EQ(list_of(init::decide(node, {{"NCCL_VERSION", {version, "environment"}}}, policy)), *list) << version;
  policy.nccl_version = init::nccl::kReadsRails;
  EXPECT_EQ(list_of(init::decide(node, {}, policy)), with_rails);
  policy.rails.clear();
  EXPECT_EQ(list_of(init::decide(node, {}, policy)), plain) << "the node states none";
}

TEST(Rails, AreInTopoAndDoctor) {
  const fabric::Inventory node = test_support::rails(2);
  Policy policy;
  const auto has = [&](const std::string& text) {
    const Decision decision = init::decide(node, {}, policy);
    const std::string all = init::topo_text(node, decision) + init::topo_json(node, decision) +
                            std::regex_replace(init::doctor_text(decision, {}), std::regex("\\s+"), " ") +
                            init::format_json(decision);
    return all.find(text) != std::string::npos;
  };
  EXPECT_FALSE(has("\"rail")) << "the node states none";
  EXPECT_FALSE(has("plane"));
  policy.rails = *init::parse_rails("mlx5_0=5,mlx5_1=6.3");
  for (const char* text :
       {"rail 5\n", "rail 6, plane 3\n", "; rail 6, plane 3", "\"rails\": {\n  \"mlx5_0\"", "\"plane\": 3"})
    EXPECT_TRUE(has(text)) << text;
}

}  // namespace
