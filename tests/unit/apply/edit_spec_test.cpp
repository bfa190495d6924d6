#include "hook/apply/edit_spec.hpp"

#include <gtest/gtest.h>

#include "hook/base/json/json.hpp"
#include "hook/config/config.hpp"

namespace {

using hook::edit_spec;
using hook::Json;
using hook::Plan;

constexpr const char* kSpecToken = "00112233445566778899aabbccddeeff";

Plan one_hca() {
  Plan plan;
  plan.hcas = {{"mlx5_0", hook::Mode::kHca, 1, std::nullopt}};
  plan.nodes = {{"/dev/infiniband/uverbs0", 231, 192, 0666, 0, 0}, {"/dev/infiniband/rdma_cm", 10, 58, 0666, 0, 0}};
  plan.memlock = UINT64_MAX;
  plan.capabilities = {"CAP_IPC_LOCK"};
  plan.env = {{"RDMA_INIT_REQUIRE", "1"}};
  plan.mounts = {{"/sys/class/infiniband", "/run/rdma-hook/views/x/infiniband", "bind", {"bind", "ro"}}};
  return plan;
}

Json minimal() {
  return Json::parse(R"({"ociVersion": "1.0.2", "process": {"args": ["true"]}, "root": {"path": "rootfs"},
    "mounts": [{"destination": "/sys", "type": "sysfs", "source": "sysfs"}]})");
}

Json edited(Json config, const Plan& plan = one_hca()) {
  const auto done = edit_spec(plan, kSpecToken, config);
  EXPECT_TRUE(done) << done.error().message;
  return config;
}

TEST(EditSpec, AddsEverythingToASpecThatHasNothing) {
  const Json config = edited(minimal());
  EXPECT_EQ(config.dump(), Json::parse(R"({"ociVersion": "1.0.2",
    "process": {"args": ["true"],
      "capabilities": {"bounding": ["CAP_IPC_LOCK"], "effective": ["CAP_IPC_LOCK"], "permitted": ["CAP_IPC_LOCK"]},
      "rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 18446744073709551615, "soft": 18446744073709551615}],
      "env": ["RDMA_INIT_REQUIRE=1"]},
    "root": {"path": "rootfs"},
    "mounts": [{"destination": "/sys", "type": "sysfs", "source": "sysfs"},
      {"destination": "/sys/class/infiniband", "type": "bind", "source": "/run/rdma-hook/views/x/infiniband",
       "options": ["bind", "ro"]}],
    "linux": {
      "devices": [
        {"path": "/dev/infiniband/uverbs0", "type": "c", "major": 231, "minor": 192, "fileMode": 438, "uid": 0, "gid": 0},
        {"path": "/dev/infiniband/rdma_cm", "type": "c", "major": 10, "minor": 58, "fileMode": 438, "uid": 0, "gid": 0}],
      "resources": {"devices": [
        {"allow": true, "type": "c", "major": 231, "minor": 192, "access": "rw"},
        {"allow": true, "type": "c", "major": 10, "minor": 58, "access": "rw"}]}},
    "annotations": {"rdma-init.io/grant": "00112233445566778899aabbccddeeff"}})")
                               .dump());
}

TEST(EditSpec, TwiceIsOnce) {
  const Json once = edited(minimal());
  Plan again = one_hca();
  again.mounts.clear();  // foresee() leaves out what is mounted
  EXPECT_EQ(edited(once, again).dump(), once.dump());
}

TEST(EditSpec, KeepsTheLowerRdmaLimit) {
  Plan plan = one_hca();
  plan.rdma_limits = {{"mlx5_0", {.handles = 8, .objects = 4096}}, {"mlx5_1", {.handles = std::nullopt, .objects = 5}}};
  const auto rdma = [&](const char* listed) {
    Json config = minimal();
    if (*listed != '\0') config["linux"]["resources"]["rdma"] = Json::parse(listed);
    return edited(config, plan)["linux"]["resources"]["rdma"].dump();
  };
  EXPECT_EQ(rdma(""), R"({"mlx5_0":{"hcaHandles":8,"hcaObjects":4096},"mlx5_1":{"hcaObjects":5}})");
  EXPECT_EQ(
      rdma(R"({"mlx5_1":{"hcaHandles":3,"hcaObjects":9},"mlx5_0":{"hcaObjects":17},"x":{"hcaObjects":1}})"),
      R"({"mlx5_1":{"hcaHandles":3,"hcaObjects":5},"mlx5_0":{"hcaObjects":17,"hcaHandles":8},"x":{"hcaObjects":1}})");
  Json config = minimal();
  config["linux"]["resources"]["rdma"] = 7;
  EXPECT_EQ(edit_spec(plan, kSpecToken, config).error().message,
            "config.json: `linux.resources.rdma` is number, expected object");
}

TEST(EditSpec, KeepsUnknownMembersAndLargeIntegers) {
  Json config = minimal();
  config["x-unknown"] = {{"a", 18446744073709551615ULL}, {"b", -9223372036854775807LL}};
  config["process"]["x"] = nullptr;
  const Json result = edited(config);
  EXPECT_EQ(result["x-unknown"].dump(), R"({"a":18446744073709551615,"b":-9223372036854775807})");
  EXPECT_TRUE(result["process"]["x"].is_null());
}

TEST(EditSpec, AUserOtherThanRootGetsTheCapabilityAsAmbient) {
  Json config = minimal();
  config["process"]["user"] = {{"uid", 1000}, {"gid", 1000}};
  config["process"]["capabilities"] = {{"bounding", {"CAP_KILL"}}, {"ambient", Json::array()}};
  const Json capabilities = edited(config)["process"]["capabilities"];
  EXPECT_EQ(capabilities["bounding"].dump(), R"(["CAP_KILL","CAP_IPC_LOCK"])");
  for (const char* set : {"effective", "permitted", "inheritable", "ambient"}) {
    EXPECT_EQ(capabilities[set].dump(), R"(["CAP_IPC_LOCK"])") << set;
  }
}

TEST(EditSpec, ALimitIsRaisedNeverLoweredNorDoubled) {
  Json config = minimal();
  config["process"]["rlimits"] = {{{"type", "RLIMIT_NOFILE"}, {"hard", 1024}, {"soft", 1024}},
                                  {{"type", "RLIMIT_MEMLOCK"}, {"hard", 4096}, {"soft", 64}}};
  Plan plan = one_hca();
  plan.memlock = 1024;
  EXPECT_EQ(edited(config, plan)["process"]["rlimits"].dump(),
            R"([{"type":"RLIMIT_NOFILE","hard":1024,"soft":1024},{"type":"RLIMIT_MEMLOCK","hard":4096,"soft":1024}])");
  plan.memlock.reset();
  EXPECT_EQ(edited(config, plan)["process"]["rlimits"], config["process"]["rlimits"]);
  plan.memlock = 1024;
  config["process"]["rlimits"] = {{{"type", "RLIMIT_MEMLOCK"}, {"hard", UINT64_MAX}, {"soft", UINT64_MAX}}};
  EXPECT_EQ(edited(config, plan)["process"]["rlimits"], config["process"]["rlimits"]);
}

// What a container without a limit of its own inherits.
TEST(EditSpec, AnInheritedLimitIsRaisedNeverLowered) {
  Plan plan = one_hca();
  plan.memlock = 1024;
  Json config = minimal();
  ASSERT_TRUE(edit_spec(plan, "", config, hook::Rlimit{512, 4096}));
  EXPECT_EQ(config["process"]["rlimits"].dump(), R"([{"type":"RLIMIT_MEMLOCK","hard":4096,"soft":1024}])");
  ASSERT_TRUE(edit_spec(plan, "", config, hook::Rlimit{1 << 20, 1 << 20}));
  EXPECT_EQ(config["process"]["rlimits"].dump(), R"([{"type":"RLIMIT_MEMLOCK","hard":4096,"soft":1024}])")
      << "its own counts";
}

TEST(EditSpec, ADeviceThatIsThereIsLeftAsItIs) {
  Json config = minimal();
  config["linux"]["devices"] = {{{"path", "/dev/infiniband/uverbs0"}, {"type", "c"}, {"major", 231}, {"minor", 192}}};
  const Json devices = edited(config)["linux"]["devices"];
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0], config["linux"]["devices"][0]);
}

TEST(EditSpec, ADeviceWithAnotherNumberIsRefusedAndNothingChanges) {
  Json config = minimal();
  config["linux"]["devices"] = {{{"path", "/dev/infiniband/uverbs0"}, {"type", "c"}, {"major", 1}, {"minor", 3}}};
  const Json before = config;
  const auto done = edit_spec(one_hca(), kSpecToken, config);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message,
            "config.json: linux.devices has `/dev/infiniband/uverbs0` as c 1:3, on this node it is c 231:192");
  EXPECT_FALSE(done.error().hint.empty());
  EXPECT_EQ(config, before);
}

struct RuleRow {
  const char* name;
  const char* rules;
  std::size_t added;  // of two nodes
};

TEST(EditSpec, RulesCountInTheirOrder) {
  const std::vector<RuleRow> rows = {
      {"deny all", R"([{"allow": false, "access": "rwm"}])", 2},
      {"allow all", R"([{"allow": true, "access": "rwm"}])", 0},
      {"allow all of type a", R"([{"allow": true, "type": "a", "access": "rwm"}])", 0},
      {"one allowed", R"([{"allow": true, "type": "c", "major": 231, "minor": 192, "access": "rwm"}])", 1},
      {"the major", R"([{"allow": true, "type": "c", "major": 231, "access": "rwm"}])", 1},
      {"reading only", R"([{"allow": true, "type": "c", "major": 231, "minor": 192, "access": "r"}])", 2},
      {"denied later", R"([{"allow": true, "type": "c", "major": 231, "minor": 192, "access": "rwm"},
                           {"allow": false, "access": "rwm"}])",
       2},
      {"block devices", R"([{"allow": true, "type": "b", "access": "rwm"}])", 2},
  };
  for (const RuleRow& row : rows) {
    SCOPED_TRACE(row.name);
    Json config = minimal();
    config["linux"]["resources"]["devices"] = Json::parse(row.rules);
    const std::size_t before = config["linux"]["resources"]["devices"].size();
    EXPECT_EQ(edited(config)["linux"]["resources"]["devices"].size(), before + row.added);
  }
}

TEST(EditSpec, WhatTheUserSetStays) {
  Json config = minimal();
  config["process"]["env"] = {"RDMA_INIT_REQUIRE=0", "PATH=/bin"};
  EXPECT_EQ(edited(config)["process"]["env"], config["process"]["env"]);
}

TEST(EditSpec, AnIncomingTokenIsOverwritten) {
  Json config = minimal();
  config["annotations"] = {{hook::kGrantAnnotation, "somebody else's"}, {"a", "b"}};
  EXPECT_EQ(edited(config)["annotations"].dump(),
            R"({"rdma-init.io/grant":"00112233445566778899aabbccddeeff","a":"b"})");
}

TEST(EditSpec, APlanWithoutHcasChangesNothing) {
  Json config = minimal();
  ASSERT_TRUE(edit_spec(Plan(), kSpecToken, config));
  EXPECT_EQ(config, minimal());
}

TEST(EditSpec, AMemberOfAnotherTypeIsAnErrorThatNamesIt) {
  struct Row {
    const char* pointer;
    const char* message;
  };
  const std::vector<Row> rows = {
      {"/linux", "config.json: `linux` is string, expected object"},
      {"/linux/devices", "config.json: `linux.devices` is string, expected array"},
      {"/linux/resources/devices", "config.json: `linux.resources.devices` is string, expected array"},
      {"/process", "config.json: `process` is string, expected object"},
      {"/process/capabilities/bounding", "config.json: `process.capabilities.bounding` is string, expected array"},
      {"/process/rlimits", "config.json: `process.rlimits` is string, expected array"},
      {"/process/env", "config.json: `process.env` is string, expected array"},
      {"/mounts", "config.json: `mounts` is string, expected array"},
      {"/annotations", "config.json: `annotations` is string, expected object"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.pointer);
    Json config = minimal();
    config[Json::json_pointer(row.pointer)] = "text";
    const Json before = config;
    const auto done = edit_spec(one_hca(), kSpecToken, config);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, row.message);
    EXPECT_EQ(config, before);
  }
}

}  // namespace
