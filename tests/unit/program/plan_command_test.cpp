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
  command.config = {{"networks", {{"a", {{"mode", "shared"}, {"addresses", {{{"subnet", "10.9.0.0/16"}}}}}}}},
                    {"pools", {{{"name", "p"}, {"modes", {"shared"}}, {"network", "a"}}}}};
  const Json plan = command.json();
  EXPECT_EQ(plan["warnings"], Json::array({"the rails were not checked: the snapshot has no netdevs"}));
  EXPECT_EQ(plan["netdevs"], Json::parse(R"([{"host":null,"name":"net1","mode":"shared","hca":"mlx5_0","rail":0}])"));
  EXPECT_EQ(plan["rails"], Json::array());
  command.config["pools"][0]["modes"] = {"exclusive"};
  command.config["networks"]["a"] = {{"mode", "exclusive"}};
  EXPECT_EQ(command.json()["env"], (Json{{"RDMA_INIT_REQUIRE", "1"}}));
  EXPECT_NE(command.run(0).find("netdev      net1  exclusive of ? (mlx5_0, rail 0)\n"), std::string::npos);
}

TEST(PlanCommand, TheLimitIsTheOneThatIsThereAfterwards) {
  struct Row {
    const char* name;
    Json wanted;
    std::uint64_t soft;
    std::uint64_t hard;
    Json expected;
    bool warns;
  };
  constexpr std::uint64_t kMiB = 1 << 20;
  const Row rows[] = {
      {"unlimited is listed", kMiB, UINT64_MAX, UINT64_MAX, "unlimited", false},
      {"more is listed", kMiB, 8 * kMiB, 8 * kMiB, 8 * kMiB, false},
      {"the hard limit is higher", kMiB, 65536, 8 * kMiB, 65536, true},
      {"less is listed", "unlimited", 65536, 65536, 65536, true},
  };
  PlanCommand command;
  command.container["process"]["env"] = {"RDMA_INIT_REQUIRE=1"};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    command.config["memlock"] = row.wanted;
    command.container["process"]["rlimits"] =
        Json::array({Json{{"type", "RLIMIT_MEMLOCK"}, {"soft", row.soft}, {"hard", row.hard}}});
    const Json plan = command.json();
    EXPECT_EQ(plan["memlock"], row.expected);
    EXPECT_EQ(plan["warnings"].size(), row.warns ? 1U : 0U) << plan["warnings"];
  }
  EXPECT_EQ(
      command.json()["warnings"][0],
      "with crun, rdma-runtime or rdma-nri RLIMIT_MEMLOCK is unlimited; else: cannot set RLIMIT_MEMLOCK to unlimited "
      "at createRuntime: the runtime sets the 65536 bytes of config.json after this hook; take the limit out of the "
      "engine's options, raise it there (process.rlimits of config.json), or use rdma-runtime");
}

TEST(PlanCommand, WhatTheContainerSetsItselfStays) {
  PlanCommand command;
  command.container["annotations"]["rdma-init.io/devices"] = "all";
  const auto warnings_of = [&](const std::string& own) {
    command.container["process"]["env"] = {"RDMA_INIT_REQUIRE=" + own};
    const Json plan = command.json();
    EXPECT_EQ(plan["env"], (Json{{"RDMA_INIT_REQUIRE", own}}));
    return plan["warnings"];
  };
  for (const bool host_network : {false, true}) {
    SCOPED_TRACE(host_network);
    if (host_network) command.container["linux"]["namespaces"] = Json::array();
    for (const char* own : {"2", "0", "02", ""})
      EXPECT_EQ(warnings_of(own), Json::array()) << own << ": nobody has to set it";
    for (const char* own : {"abc", "8 ", "-1", "99999999999"}) {
      EXPECT_EQ(
          warnings_of(own),
          Json::array({fmt::format("the container's own RDMA_INIT_REQUIRE `{}` is no number of HCAs, and rdma-init "
                                   "will not start the trainer: make it one in the pod, or take it out",
                                   own)}));
    }
  }
  const std::string start = "the container's own RDMA_INIT_REQUIRE 3 is above the ";
  const std::string rest =
      " that it can use, and rdma-init will not start the trainer: lower it in the pod, or ask for more HCAs";
  EXPECT_EQ(warnings_of("3"), Json::array({start + "2 HCAs" + rest}));
  command.node.hcas[0].ports[0].state = "1: DOWN";
  EXPECT_EQ(warnings_of("3").back(), start + "1 HCA" + rest + " (of others no port is ACTIVE)");
}

}  // namespace
}  // namespace hook
