#include <gtest/gtest.h>

#include "shim/runtime/exec_grant.hpp"
#include "support/results.hpp"
#include "unit/shim/runtime/scene.hpp"

namespace {

using base::Json;
using namespace shim;
using test_support::must;

const HookCommand kCommand{"/usr/bin/rdma-hook", hook::Engine::kContainerd, {"--ledger", "/l"}};

Json with_hooks(Json config) {
  const auto done = shim::add_hooks(kCommand, HookStages::kBoth, config);
  EXPECT_TRUE(done) << done.error().message;
  return config;
}

TEST(AddHooks, AddsBothHooksToSpecWithoutHooks) {
  const Json config = with_hooks(Json::parse(R"({"ociVersion": "1.0.2", "x": 18446744073709551615, "hooks": null})"));
  EXPECT_EQ(config.dump(), Json::parse(R"({"ociVersion": "1.0.2", "x": 18446744073709551615, "hooks": {
    "createRuntime": [{"path": "/usr/bin/rdma-hook",
      "args": ["rdma-hook", "createRuntime", "--engine", "containerd", "--ledger", "/l"],
      "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "timeout": 60}],
    "poststop": [{"path": "/usr/bin/rdma-hook",
      "args": ["rdma-hook", "poststop", "--engine", "containerd", "--ledger", "/l"],
      "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "timeout": 60}]}})")
                               .dump());
}

TEST(AddHooks, AddsPoststopOnlyOnce) {
  const Json once = with_hooks(Json::object());
  EXPECT_EQ(with_hooks(once).dump(), once.dump());
  Json config = Json::object();
  ASSERT_TRUE(shim::add_hooks(kCommand, HookStages::kPoststop, config));
  EXPECT_EQ(config["hooks"].size(), 1U);
  EXPECT_EQ(config["hooks"]["poststop"][0]["args"][1], "poststop");
  EXPECT_FALSE(shim::has_create_hook(kCommand, config));
  EXPECT_TRUE(shim::has_create_hook(kCommand, with_hooks(config)));
}

TEST(AddHooks, AppendsToOtherHooksButNotToItself) {
  const Json config = with_hooks(Json::parse(R"({"hooks": {
    "prestart": [{"path": "/usr/bin/rdma-hook", "args": ["rdma-hook", "prestart"]}],
    "poststop": [{"path": "/bin/other", "x": 1}], "startContainer": [1]}})"));
  EXPECT_FALSE(config["hooks"].contains("createRuntime"));
  ASSERT_EQ(config["hooks"]["poststop"].size(), 2U);
  EXPECT_EQ(config["hooks"]["poststop"][0].dump(), R"({"path":"/bin/other","x":1})");
  EXPECT_EQ(config["hooks"]["startContainer"].dump(), "[1]");
}

// A base specification has the hook before all other hooks.
TEST(AddHooks, AddsHookBesideOtherProgramOrStage) {
  const Json config = with_hooks(Json::parse(R"({"hooks": {
    "createRuntime": [{"path": "/usr/bin/rdma-hook", "args": ["rdma-hook", "verify"]}],
    "prestart": [{"path": "/usr/bin/rdma-hook"}, {"path": "/usr/bin/rdma-hook", "args": ["createRuntime"]},
                 {"path": "/opt/rdma-hook", "args": ["rdma-hook", "createRuntime"]}],
    "poststop": [{"path": "/usr/bin/rdma-hook", "args": ["rdma-hook", "createRuntime"]}]}})"));
  ASSERT_EQ(config["hooks"]["createRuntime"].size(), 2U);
  EXPECT_EQ(config["hooks"]["createRuntime"][1]["args"][1], "createRuntime");
  ASSERT_EQ(config["hooks"]["poststop"].size(), 2U);
  EXPECT_EQ(config["hooks"]["poststop"][1]["args"][1], "poststop");
}

TEST(AddHooks, FindsItsProgramUnderAnotherPath) {
  const test_support::TempDir directory;
  const std::string program = shim_scene::program(directory / "rdma-hook");
  ASSERT_EQ(::symlink(program.c_str(), (directory / "link").c_str()), 0);
  Json config{{"hooks", {{"poststop", {{{"path", directory / "link"}, {"args", {"rdma-hook", "poststop"}}}}}}}};
  ASSERT_TRUE(shim::add_hooks({program, hook::Engine::kContainerd, {}}, HookStages::kBoth, config));
  EXPECT_EQ(config["hooks"]["poststop"].size(), 1U);
  EXPECT_EQ(config["hooks"]["createRuntime"].size(), 1U);
}

TEST(AddHooks, RefusesWrongTypes) {
  for (const char* text : {R"([])", R"({"hooks": []})", R"({"hooks": {"createRuntime": {}}})",
                           R"({"hooks": {"createRuntime": [1, {"path": 7}], "poststop": "x"}})"}) {
    Json config = Json::parse(text);
    EXPECT_FALSE(shim::add_hooks(kCommand, HookStages::kBoth, config)) << text;
  }
}

constexpr ProcessGrant kGrant{true, UINT64_MAX};

TEST(ExecProcess, GetsCapabilityAndLimitOfContainer) {
  // `after` is nullptr if the process stays unchanged.
  const std::tuple<const char*, ProcessGrant, const char*, const char*> rows[] = {
      {"root's", kGrant,
       R"({"args": ["sh"], "user": {"uid": 0}, "capabilities": {"bounding": ["CAP_KILL"], "effective": [], "permitted": null},
           "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 5, "soft": 5}], "x-new": 18446744073709551615})",
       R"({"args": ["sh"], "user": {"uid": 0},
           "capabilities": {"bounding": ["CAP_KILL", "CAP_IPC_LOCK"], "effective": ["CAP_IPC_LOCK"],
                            "permitted": ["CAP_IPC_LOCK"]},
           "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 5, "soft": 5},
                       {"type": "RLIMIT_MEMLOCK", "hard": 18446744073709551615, "soft": 18446744073709551615}],
           "x-new": 18446744073709551615})"},
      {"a user's", kGrant, R"({"user": {"uid": 1000}, "capabilities": {}, "rlimits": []})",
       R"({"user": {"uid": 1000},
           "capabilities": {"bounding": ["CAP_IPC_LOCK"], "effective": ["CAP_IPC_LOCK"], "permitted": ["CAP_IPC_LOCK"],
                            "inheritable": ["CAP_IPC_LOCK"], "ambient": ["CAP_IPC_LOCK"]},
           "rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 18446744073709551615, "soft": 18446744073709551615}]})"},
      {"capabilities that are the container's stay so", kGrant, R"({"args": ["sh"]})",
       R"({"args": ["sh"],
           "rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 18446744073709551615, "soft": 18446744073709551615}]})"},
      {"null is missing", {true, std::nullopt}, R"({"capabilities": null, "rlimits": null})", nullptr},
      {"a limit is raised, not doubled",
       {false, 4096},
       R"({"rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 8192, "soft": 64}]})",
       R"({"rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 8192, "soft": 4096}]})"},
      {"nothing is granted", {false, std::nullopt}, R"({"capabilities": {}})", nullptr},
      {"it is there already",
       {true, 4096},
       R"({"capabilities": {"bounding": ["CAP_IPC_LOCK"], "effective": ["CAP_IPC_LOCK"], "permitted": ["CAP_IPC_LOCK"]},
           "rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 4096, "soft": 4096}]})",
       nullptr}};
  for (const auto& [name, grant, before, after] : rows) {
    SCOPED_TRACE(name);
    Json process = Json::parse(before);
    EXPECT_EQ(must(shim::edit_process(grant, process)), after != nullptr);
    EXPECT_EQ(process.dump(), Json::parse(after ? after : before).dump());
    EXPECT_FALSE(must(shim::edit_process(grant, process))) << "second edit";
  }
  // An inherited limit is not lowered.
  Json process = Json::parse(R"({"args": ["sh"]})");
  ASSERT_TRUE(*shim::edit_process({false, 4096}, process, hook::Rlimit{8192, 8192}));
  EXPECT_EQ(process["rlimits"].dump(), R"([{"type":"RLIMIT_MEMLOCK","hard":8192,"soft":8192}])");
}

TEST(ExecProcess, RefusesWrongTypesWithoutChange) {
  for (const char* text : {"[]", "7", R"({"capabilities": []})", R"({"capabilities": {"bounding": "x"}})",
                           R"({"capabilities": {}, "rlimits": {}})"}) {
    Json process = Json::parse(text);
    const Json before = process;
    EXPECT_FALSE(shim::edit_process(kGrant, process).has_value()) << text;
    EXPECT_EQ(process, before) << text;
  }
}

TEST(ExecProcess, TakesGrantFromPlan) {
  hook::Plan plan;
  EXPECT_EQ(shim::process_grant(plan), (ProcessGrant{false, std::nullopt}));
  plan.capabilities = {"CAP_IPC_LOCK"};
  plan.memlock = 4096;
  EXPECT_EQ(shim::process_grant(plan), (ProcessGrant{true, 4096}));
}

}  // namespace
