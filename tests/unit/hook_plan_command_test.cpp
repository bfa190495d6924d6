// `rdma-hook plan` of a snapshot, as it is called: what it says is what is there after a start.
#include <gtest/gtest.h>

#include "fabric/snapshot.hpp"
#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"
#include "hook/program/commands.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

struct PlanCommand {
  fabric::Inventory node = test_support::rails(2);
  Json container = {{"process", {{"args", {"trainer"}}}},
                    {"root", {{"path", "rootfs"}}},
                    {"annotations", {{"rdma-init.io/devices", "1"}}},
                    {"linux", {{"namespaces", {{{"type", "network"}}}}}}};
  Json config = Json::object();
  test_support::TempDir directory = {};
  std::string said = {};  // on the standard error output

  std::string run(int expected_code, std::vector<std::string> arguments = {}) {
    test_support::write_file(directory / "config.json", container.dump());
    test_support::write_file(directory / "admin.json", config.dump());
    test_support::write_file(directory / "node.json", fabric::write_snapshot(node));
    arguments.insert(arguments.begin(), "plan");
    arguments.insert(arguments.end(), {"--bundle", directory.path(), "--config", directory / "admin.json", "--snapshot",
                                       directory / "node.json", "--ledger", directory / "ledger"});
    std::vector<char*> pointers;
    for (std::string& argument : arguments)
      pointers.push_back(argument.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_command(parse_options(pointers).value()), expected_code);
    said = testing::internal::GetCapturedStderr();
    return testing::internal::GetCapturedStdout();
  }
  Json json(int expected_code = 0) { return Json::parse(run(expected_code, {"--json"})); }
};

TEST(PlanCommand, ARefusalComesWithTheWarnings) {
  PlanCommand command;
  command.container["annotations"]["rdma-init.io/devices"] = "gpu";
  command.container["process"]["env"] = {"NVIDIA_VISIBLE_DEVICES=" + std::string(131072, 'x')};
  const std::string warning = "variable NVIDIA_VISIBLE_DEVICES: 131072 bytes, at most 65536 are read, and is not heard";
  const Json refused = command.json(1);
  EXPECT_EQ(refused["error"], "annotation rdma-init.io/devices: no GPU of the container is known");
  EXPECT_NE(refused["hint"].get<std::string>().find("\"env_may_request\""), std::string::npos);
  EXPECT_NE(refused["hint"].get<std::string>().find("MIG"), std::string::npos);
  EXPECT_EQ(refused["warnings"], Json::array({warning}));
  EXPECT_EQ(command.run(1), "");
  EXPECT_LT(command.said.find("warning: " + warning), command.said.find("error: ")) << command.said;
}

TEST(PlanCommand, ASnapshotWithoutNetdevsIsNotChecked) {
  PlanCommand command;
  command.node.netdevs.clear();
  command.config = {{"networks", {{"a", {{"mode", "shared"}}}}},
                    {"pools", {{{"name", "p"}, {"modes", {"shared"}}, {"network", "a"}}}}};
  const Json plan = command.json();
  EXPECT_EQ(plan["warnings"], Json::array({"the rails were not checked: the snapshot has no netdevs"}));
  EXPECT_EQ(plan["netdevs"], Json::parse(R"([{"host":null,"name":"net1","mode":"shared","hca":"mlx5_0","rail":0}])"));
  EXPECT_EQ(plan["rails"], Json::array());
  EXPECT_NE(command.run(0).find("netdev      net1  shared of ? (mlx5_0, rail 0)\n"), std::string::npos);
}

}  // namespace
}  // namespace hook
