// The changes of config.json, of containerd's base specification, and the CDI file.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/json/json.hpp"
#include "fabric/snapshot.hpp"
#include "hook/apply/base_spec.hpp"
#include "hook/apply/cdi_spec.hpp"
#include "hook/apply/edit_spec.hpp"
#include "hook/program/commands.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/tree.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

using namespace test_support;

constexpr const char* kSpecToken = "00112233445566778899aabbccddeeff";

Plan one_hca() {
  Plan plan;
  plan.hcas = {{"mlx5_0", Mode::kHca, 1, std::nullopt}};
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

// Writes the plan into config.json.
Result<void> apply_to(Json& config, const Plan& plan, const std::optional<Rlimit>& inherited = std::nullopt) {
  return edit_spec(adjust(plan, must(read_container_spec(config)), kSpecToken), config, inherited);
}

Json edited(Json config, const Plan& plan = one_hca()) {
  EXPECT_OK(apply_to(config, plan));
  return config;
}

TEST(EditSpec, FillsEmptySpec) {
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

TEST(EditSpec, IsIdempotentAndKeepsSpecWithoutHcas) {
  const Json once = edited(minimal());
  Plan again = one_hca();
  again.mounts.clear();  // foresee() omits present mounts
  EXPECT_EQ(edited(once, again).dump(), once.dump());
  EXPECT_EQ(edited(minimal(), Plan()), minimal());
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
  EXPECT_EQ(apply_to(config, plan).error().message, "config.json: `linux.resources.rdma` is number, expected object");
}

TEST(EditSpec, AddsAmbientCapabilityForOtherUsers) {
  Json config = minimal();
  config["process"]["user"] = {{"uid", 1000}, {"gid", 1000}};
  config["process"]["capabilities"] = {{"bounding", {"CAP_KILL"}}, {"ambient", Json::array()}};
  const Json capabilities = edited(config)["process"]["capabilities"];
  EXPECT_EQ(capabilities["bounding"].dump(), R"(["CAP_KILL","CAP_IPC_LOCK"])");
  for (const char* set : {"effective", "permitted", "inheritable", "ambient"})
    EXPECT_EQ(capabilities[set].dump(), R"(["CAP_IPC_LOCK"])") << set;
}

// Returns a part of config.json after the plan is applied.
TEST(EditSpec, KeepsPresentEntries) {
  const struct {
    const char* name;
    const char* at;
    const char* before;
    const char* after;  // nullptr: the same
  } cases[] = {
      {"an unknown member", "/x-unknown", R"({"a":18446744073709551615,"b":-9223372036854775807})", nullptr},
      {"an unknown member that is null", "/process/x", "null", nullptr},
      {"a variable that the user set", "/process/env", R"(["RDMA_INIT_REQUIRE=0","PATH=/bin"])", nullptr},
      {"a token, which is overwritten", "/annotations", R"({"rdma-init.io/grant":"somebody else's","a":"b"})",
       R"({"rdma-init.io/grant":"00112233445566778899aabbccddeeff","a":"b"})"},
      {"a device", "/linux/devices", R"([{"path":"/dev/infiniband/uverbs0","type":"c","major":231,"minor":192}])",
       R"([{"path":"/dev/infiniband/uverbs0","type":"c","major":231,"minor":192},)"
       R"({"path":"/dev/infiniband/rdma_cm","type":"c","major":10,"minor":58,"fileMode":438,"uid":0,"gid":0}])"}};
  for (const auto& row : cases) {
    Json config = minimal();
    const Json::json_pointer at(row.at);
    config[at] = Json::parse(row.before);
    EXPECT_EQ(edited(config)[at].dump(), row.after ? row.after : row.before) << row.name;
  }
}

TEST(EditSpec, ReplacesAFactOfTheNode) {
  Json config = minimal();
  config["process"]["env"] = {"RDMA_INIT_SITE=NCCL_IB_TC=3", "RDMA_INIT_SITE=NCCL_IB_TC=1", "PATH=/bin"};
  Plan plan;
  plan.env = {{"RDMA_INIT_SITE", "NCCL_IB_TC=106"}};
  ASSERT_TRUE(apply_to(config, plan));
  // The last entry of a name counts.
  EXPECT_EQ(config["process"]["env"].dump(),
            R"(["RDMA_INIT_SITE=NCCL_IB_TC=3","RDMA_INIT_SITE=NCCL_IB_TC=106","PATH=/bin"])");
}

// The limit of config.json, or the inherited one of a container that lists none.
TEST(EditSpec, RaisesMemlockOnceAndNeverLowersIt) {
  constexpr const char* kRaised = R"([{"type":"RLIMIT_MEMLOCK","hard":4096,"soft":1024}])";
  const std::string low = R"([{"type":"RLIMIT_NOFILE","hard":1024,"soft":1024},)"
                          R"({"type":"RLIMIT_MEMLOCK","hard":4096,"soft":64}])";
  const std::string low_raised = R"([{"type":"RLIMIT_NOFILE","hard":1024,"soft":1024},)"
                                 R"({"type":"RLIMIT_MEMLOCK","hard":4096,"soft":1024}])";
  const std::string twice = R"([{"type":"RLIMIT_MEMLOCK","hard":4096,"soft":2048},)"
                            R"({"type":"RLIMIT_MEMLOCK","hard":4096,"soft":64}])";
  const std::string twice_raised = R"([{"type":"RLIMIT_MEMLOCK","hard":4096,"soft":2048},)"
                                   R"({"type":"RLIMIT_MEMLOCK","hard":4096,"soft":1024}])";
  const std::string unlimited =
      R"([{"type":"RLIMIT_MEMLOCK","hard":18446744073709551615,"soft":18446744073709551615}])";
  const struct {
    const char* name;
    std::optional<std::uint64_t> planned;
    std::string listed;  // "": none
    std::optional<Rlimit> inherited;
    std::string expected;
  } cases[] = {{"too low", 1024, low, {}, low_raised},
               {"two entries, of which the last counts", 1024, twice, {}, twice_raised},
               {"none planned", {}, low, {}, low},
               {"unlimited", 1024, unlimited, {}, unlimited},
               {"an inherited one", 1024, "", Rlimit{512, 4096}, kRaised},
               {"its own counts", 1024, kRaised, Rlimit{1 << 20, 1 << 20}, kRaised}};
  for (const auto& row : cases) {
    SCOPED_TRACE(row.name);
    Json config = minimal();
    if (!row.listed.empty()) config["process"]["rlimits"] = Json::parse(row.listed);
    Plan plan = one_hca();
    plan.memlock = row.planned;
    ASSERT_OK(apply_to(config, plan, row.inherited));
    EXPECT_EQ(config["process"]["rlimits"].dump(), row.expected);
  }
}

TEST(EditSpec, RefusesDeviceWithAnotherNumber) {
  Json config = minimal();
  config["linux"]["devices"] = {{{"path", "/dev/infiniband/uverbs0"}, {"type", "c"}, {"major", 1}, {"minor", 3}}};
  const auto done = apply_to(config, one_hca());
  EXPECT_EQ(error_message(done),
            "config.json: linux.devices has `/dev/infiniband/uverbs0` as c 1:3, but on this node it is c 231:192");
  EXPECT_FALSE(error_hint(done).empty());
}

TEST(EditSpec, AppliesRulesInOrder) {
  // `added`: how many rules are added for two nodes.
  const std::tuple<const char*, const char*, std::size_t> cases[] = {
      {"deny all", R"([{"allow": false, "access": "rwm"}])", 2},
      {"allow all", R"([{"allow": true, "access": "rwm"}])", 0},
      {"allow all of type a", R"([{"allow": true, "type": "a", "access": "rwm"}])", 0},
      {"one allowed", R"([{"allow": true, "type": "c", "major": 231, "minor": 192, "access": "rwm"}])", 1},
      {"the major", R"([{"allow": true, "type": "c", "major": 231, "access": "rwm"}])", 1},
      {"reading only", R"([{"allow": true, "type": "c", "major": 231, "minor": 192, "access": "r"}])", 2},
      {"denied later", R"([{"allow": true, "type": "c", "major": 231, "minor": 192, "access": "rwm"},
                           {"allow": false, "access": "rwm"}])",
       2},
      {"block devices", R"([{"allow": true, "type": "b", "access": "rwm"}])", 2}};
  for (const auto& [name, rules, added] : cases) {
    SCOPED_TRACE(name);
    Json config = minimal();
    config["linux"]["resources"]["devices"] = Json::parse(rules);
    const std::size_t before = config["linux"]["resources"]["devices"].size();
    EXPECT_EQ(edited(config)["linux"]["resources"]["devices"].size(), before + added);
  }
}

TEST(EditSpec, RefusesMemberOfAnotherType) {
  const std::pair<const char*, const char*> cases[] = {
      {"/linux", "config.json: `linux` is string, expected object"},
      {"/linux/devices", "config.json: `linux.devices` is string, expected array"},
      {"/linux/resources/devices", "config.json: `linux.resources.devices` is string, expected array"},
      {"/process", "config.json: `process` is string, expected object"},
      {"/process/capabilities/bounding", "config.json: `process.capabilities.bounding` is string, expected array"},
      {"/process/rlimits", "config.json: `process.rlimits` is string, expected array"},
      {"/process/env", "config.json: `process.env` is string, expected array"},
      {"/mounts", "config.json: `mounts` is string, expected array"},
      {"/annotations", "config.json: `annotations` is string, expected object"}};
  for (const auto& [pointer, message] : cases) {
    SCOPED_TRACE(pointer);
    Json config = minimal();
    config[Json::json_pointer(pointer)] = "text";
    EXPECT_EQ(error_message(edit_spec(adjust(one_hca(), {}, kSpecToken), config)), message);
  }
}

// A part of the output of `ctr oci spec` of containerd 2.1.9.
constexpr const char* kOfContainerd = R"({
 "ociVersion": "1.2.0",
 "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
             "noNewPrivileges": true},
 "root": {"path": "rootfs"},
 "linux": {"resources": {"memory": {"limit": 18446744073709551615}, "devices": [{"allow": false, "access": "rwm"}]}}
})";

Json edited(const char* text, bool verify) {
  Json spec = *parse_json(text, "x");
  const auto done = edit_base_spec("/usr/local/bin/rdma-hook", verify, spec);
  return done ? spec : Json{{"error", done.error().message}, {"hint", done.error().hint}};
}

TEST(BaseSpec, AddsHooksAndLimitOrOnlyVerify) {
  const Json spec = edited(kOfContainerd, false);
  EXPECT_EQ(spec["process"]["rlimits"].dump(),
            R"([{"type":"RLIMIT_MEMLOCK","soft":18446744073709551615,"hard":18446744073709551615}])");
  EXPECT_EQ(spec["linux"]["resources"]["memory"]["limit"].dump(), "18446744073709551615");
  EXPECT_EQ(spec["hooks"].dump(),
            R"({"createRuntime":[{"path":"/usr/local/bin/rdma-hook","args":["rdma-hook","createRuntime","--engine",)"
            R"("containerd"],"env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"timeout":60}],)"
            R"("poststop":[{"path":"/usr/local/bin/rdma-hook","args":["rdma-hook","poststop","--engine","containerd"],)"
            R"("env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"timeout":60}]})");
  std::string keys;
  for (const auto& [name, value] : spec.items())
    keys += name + " ";
  EXPECT_EQ(keys, "ociVersion process root linux hooks ") << "members keep their order";
  const Json verified = edited(kOfContainerd, true);
  EXPECT_FALSE(verified["process"].contains("rlimits"));
  EXPECT_EQ(verified["hooks"].dump(),
            R"({"createRuntime":[{"path":"/usr/local/bin/rdma-hook","args":["rdma-hook","verify","--engine",)"
            R"("containerd"],"env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"timeout":60}]})");
}

TEST(BaseSpec, KeepsForeignLimitsAndHooks) {
  const char* const text =
      R"({"process": {"rlimits": [{"type": "RLIMIT_MEMLOCK", "soft": 1, "hard": 18446744073709551615},)"
      R"({"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 4096}]}})";
  EXPECT_EQ(edited(text, false)["process"]["rlimits"].dump(),
            R"([{"type":"RLIMIT_NOFILE","soft":1024,"hard":4096},)"
            R"({"type":"RLIMIT_MEMLOCK","soft":18446744073709551615,"hard":18446744073709551615}])");
  EXPECT_EQ(edited(text, true)["process"], (*parse_json(text, "x"))["process"]);
  const char* const hooks = R"({"process": {}, "hooks": {"createRuntime": [{"path": "/x"}], "poststop": null}})";
  const Json once = edited(hooks, false);
  EXPECT_EQ(once["hooks"]["createRuntime"].size(), 2U);
  EXPECT_EQ(once["hooks"]["createRuntime"][0]["path"], "/x");
  EXPECT_EQ(edited(once.dump().c_str(), false), once);
  const Json verified = edited(once.dump().c_str(), true);
  EXPECT_EQ(verified["hooks"]["createRuntime"].size(), 2U) << "the earlier form is replaced";
  EXPECT_EQ(verified["hooks"]["createRuntime"][1]["args"][1], "verify");
  EXPECT_TRUE(verified["hooks"]["poststop"].empty());
  Json moved = once;
  ASSERT_TRUE(edit_base_spec("/opt/rdma-hook", false, moved));
  EXPECT_EQ(moved["hooks"]["createRuntime"].size(), 2U);
  EXPECT_EQ(moved["hooks"]["createRuntime"][1]["path"], "/opt/rdma-hook");
}

TEST(BaseSpec, RefusesInvalidSpecification) {
  const std::vector<std::pair<const char*, const char*>> rows = {
      {"[]", "it is not a JSON object"},
      {"{}", "object `process` is missing"},
      {R"({"process": []})", "object `process` is missing"},
      {R"({"process": {"rlimits": {}}})", "`rlimits` is not a list"},
      {R"({"process": {}, "hooks": []})", "`hooks` is not an object"},
      {R"({"process": {}, "hooks": {"poststop": {}}})", "`poststop` is not a list"},
      {R"({"process": {"rlimits": [{"type": "RLIMIT_NOFILE"}, 5]}})", "`process.rlimits[1]` is not an object"},
      {R"({"process": {}, "hooks": {"prestart": [null]}})", "`hooks.prestart[0]` is not an object"},
      {R"({"process": {}, "hooks": {"poststop": [{"path": "/x"}, "y"]}})", "`hooks.poststop[1]` is not an object"}};
  for (const auto& [text, expected] : rows) {
    const Json answer = edited(text, false);
    EXPECT_EQ(answer["error"], fmt::format("cannot edit the specification: {}", expected)) << text;
    EXPECT_EQ(answer["hint"], "run `ctr oci spec | rdma-hook base-spec`") << text;
  }
}

struct Made {
  Json spec;
  std::vector<std::string> warnings;
};

Made made(const fabric::Inventory& inventory, const Config& config = {}) {
  auto made = cdi_spec(inventory, config, {.kind = kCdiKind, .hook = "/usr/bin/rdma-hook", .engine = Engine::kDocker});
  EXPECT_OK(made);
  return made ? Made{std::move(made->first), std::move(made->second)} : Made();
}

// Returns "mlx5_0: /dev/infiniband/uverbs0", one line per device.
std::string annotated_devices(const Json& spec) {
  std::string text;
  for (const Json& device : spec["devices"]) {
    text += device["name"].get<std::string>() + ":";
    for (const Json& node : device["containerEdits"]["deviceNodes"])
      text += " " + node["path"].get<std::string>();
    text += "\n";
  }
  return text;
}

TEST(CdiSpec, HasDevicePerHcaAndOneForAll) {
  const Json spec = made(rails(2)).spec;
  EXPECT_EQ(spec["cdiVersion"], "0.3.0");
  EXPECT_EQ(spec["kind"], "rdma-init.io/hca");
  EXPECT_EQ(annotated_devices(spec),
            "mlx5_0: /dev/infiniband/uverbs0\n"
            "mlx5_1: /dev/infiniband/uverbs1\n"
            "all: /dev/infiniband/uverbs0 /dev/infiniband/uverbs1\n");
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["deviceNodes"][0].dump(),
            R"({"path":"/dev/infiniband/uverbs0","type":"c","fileMode":438,"permissions":"rw","uid":0,"gid":0})");
  const Json& common = spec["containerEdits"];
  ASSERT_EQ(common["deviceNodes"].size(), 1U);
  EXPECT_EQ(common["deviceNodes"][0]["path"], "/dev/infiniband/rdma_cm");
  EXPECT_EQ(common["hooks"][0].dump(), R"({"hookName":"createRuntime","path":"/usr/bin/rdma-hook",)"
                                       R"("args":["rdma-hook","createRuntime","--engine","docker"]})");
  EXPECT_EQ(common["hooks"][1]["hookName"], "poststop");
}

TEST(CdiSpec, HasHcasOfPoolsAndConfiguredNodes) {
  Config config;
  Pool rails_pool;
  rails_pool.name = "rails";
  rails_pool.selectors.if_names = {"rail1"};
  rails_pool.modes = {Mode::kShared};
  config.pools.push_back(rails_pool);
  EXPECT_EQ(annotated_devices(made(rails(3), config).spec),
            "mlx5_1: /dev/infiniband/uverbs1\nall: /dev/infiniband/uverbs1\n");
  Config nodes;
  nodes.nodes.rdma_cm = false;
  nodes.nodes.mode = 0660;
  nodes.nodes.gid = 44;
  nodes.nodes.umad = true;
  auto inventory = rails(1);
  inventory.hcas[0].mad_nodes = {{"umad0", "231:0", 1, ""}, {"issm0", "231:64", 1, ""}};
  const Json spec = made(inventory, nodes).spec;
  EXPECT_EQ(annotated_devices(spec),
            "mlx5_0: /dev/infiniband/uverbs0 /dev/infiniband/umad0\n"
            "all: /dev/infiniband/uverbs0 /dev/infiniband/umad0\n");
  EXPECT_FALSE(spec["containerEdits"].contains("deviceNodes"));
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["deviceNodes"][1]["fileMode"], 0660);
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["deviceNodes"][1]["gid"], 44);
}

TEST(CdiSpec, WarnsOfHcaWithoutNodeOrValidName) {
  auto inventory = rails(3);
  inventory.hcas[0].uverbs.reset();
  inventory.hcas[1].name = "mlx5 1";
  const Made spec = made(inventory);
  EXPECT_EQ(annotated_devices(spec.spec), "mlx5_2: /dev/infiniband/uverbs2\nall: /dev/infiniband/uverbs2\n");
  EXPECT_EQ(spec.warnings, (std::vector<std::string>{"`mlx5_0` is skipped: it has no uverbs node",
                                                     "`mlx5 1` is skipped: CDI does not allow this name"}));
  EXPECT_EQ(error_message(cdi_spec({}, {}, {.kind = kCdiKind, .hook = "/h", .engine = Engine::kPodman})),
            "this node has no HCA for containers");
}

TEST(CdiSpec, HasSiteValuesOfPools) {
  Config config;
  Pool first;
  first.name = "a";
  first.modes = {Mode::kHca};
  first.selectors.if_names = {"rail0"};
  first.env = {{"NCCL_IB_SL", "3"}, {"NCCL_IB_TC", "106"}};
  Pool second = first;
  second.name = "b";
  second.selectors.if_names = {"*"};
  second.env["NCCL_IB_SL"] = "5";
  config.pools = {first, second};
  const Made spec = made(rails(2), config);
  std::string text;
  for (const Json& device : spec.spec["devices"]) {
    const Json& edits = device["containerEdits"];
    text += device["name"].get<std::string>() + " " + (edits.contains("env") ? edits["env"].dump() : "") + "\n";
  }
  EXPECT_EQ(text,
            "mlx5_0 [\"RDMA_INIT_SITE=NCCL_IB_SL=3;NCCL_IB_TC=106\"]\n"
            "mlx5_1 [\"RDMA_INIT_SITE=NCCL_IB_SL=5;NCCL_IB_TC=106\"]\n"
            "all [\"RDMA_INIT_SITE=NCCL_IB_TC=106\"]\n");
  EXPECT_EQ(spec.warnings.size(), 1U) << "the pools have different values for NCCL_IB_SL";
}

TEST(CdiKind, RequiresVendorAndClass) {
  for (const char* good : {"rdma-init.io/hca", "nvidia.com/net-rdma", "a/b", "Vendor_1.x/c_d-e"})
    EXPECT_TRUE(check_cdi_kind(good)) << good;
  for (const char* bad : {"", "hca", "/hca", "v/", "1v/c", "v/1c", "v-/c", "v/c.d", "v/c/d", "v c/d"})
    EXPECT_FALSE(check_cdi_kind(bad)) << bad;
  EXPECT_EQ(check_cdi_kind("a b").error().message, "`a b` is not a CDI kind");
}

TEST(GenerateCdi, ReplacesFileOnlyIfChanged) {
  const TempDir temp;
  Options options;
  options.command = Command::kCdiGenerate;
  options.node.config = {"", "", false};
  options.hook = "/usr/bin/rdma-hook";
  options.node.snapshot = temp / "node.json";
  options.out = temp / "cdi.json";
  const auto generate = [&](const std::string& snapshot) {
    write_file(*options.node.snapshot, snapshot);
    return generate_cdi(options, Log());
  };
  const auto devices = [&] { return parse_json(read_file(*options.out), "it")->at("devices").size(); };
  ASSERT_OK(generate(fabric::write_snapshot(rails(1))));
  EXPECT_EQ(devices(), 2U);
  const std::string text = read_file(*options.out);
  const ino_t first = inode(*options.out);
  EXPECT_EQ(std::filesystem::status(*options.out).permissions(), std::filesystem::perms(0644));
  ASSERT_OK(generate(fabric::write_snapshot(rails(1))));
  EXPECT_EQ(inode(*options.out), first) << "the same text is not written again";
  EXPECT_FALSE(generate("{}"));
  EXPECT_EQ(read_file(*options.out), text) << "an error changes nothing";
  ASSERT_OK(generate(fabric::write_snapshot(rails(2))));
  EXPECT_EQ(devices(), 3U);
  options.out = temp / "missing/cdi.json";
  EXPECT_EQ(error_hint(generate_cdi(options, Log())), "make its directory; engines read /etc/cdi and /var/run/cdi");
}

TEST(CdiFile, RemovesTemporaryOfKilledProcess) {
  const TempDir directory;
  struct stat space {};
  ASSERT_EQ(::stat("/proc/self/ns/pid", &space), 0);
  const auto self = identify(::getpid()).value();
  const auto other = identify(::getppid()).value();
  const std::string dead = fmt::format("{}.{}.{}.tmp", space.st_ino, ::getpid(), self.start_time - 1);
  const std::string left = "a.json.rdma-hook-" + dead;
  const std::string kept[] = {
      fmt::format("a.json.rdma-hook-{}.{}.{}.tmp", space.st_ino, other.pid, other.start_time),
      fmt::format("a.json.rdma-hook-{}.{}.{}.tmp", space.st_ino + 1, self.pid, self.start_time - 1),
      "a.json." + dead,
      "a.json.rdma-hook-" + dead + "x",
      "a.json.rdma-hook-.tmp",
      "a.json.rdma-hook-1.tmp",
      "a.json.123.tmp"};
  write_file(directory / left, "{");
  for (const std::string& name : kept)
    write_file(directory / name, "{");

  Options options;
  options.command = Command::kCdiGenerate;
  lay_out(rails(1), directory / "node");
  options.node.root = directory / "node";
  options.node.config = {"", "", false};
  options.out = directory / "a.json";
  ASSERT_OK(generate_cdi(options, Log()));
  EXPECT_FALSE(std::filesystem::exists(directory / left));
  for (const std::string& name : kept)
    EXPECT_TRUE(std::filesystem::exists(directory / name)) << name;
}

}  // namespace
}  // namespace hook
