#include "shim/runtime/exec_grant.hpp"

#include "hook/apply/memlock.hpp"
#include "support/results.hpp"
#include "unit/shim/runtime/scene.hpp"

namespace {

using base::Json;
using namespace shim_scene;
using namespace test_support;

TEST_F(Prepare, EditsContainerThatRequestsHcas) {
  write_config(kAsking);
  ASSERT_EQ(::chmod(config_path().c_str(), 0640), 0);
  test_support::must(start());
  const Json edited = config();
  EXPECT_EQ(edited["x-large"].dump(), "18446744073709551615");
  EXPECT_EQ(hook::token_owner(edited["annotations"]["rdma-init.io/grant"].get<std::string>()).key,
            grants().at(0).owner.key);
  EXPECT_EQ(edited["linux"]["devices"].size(), 1U);
  EXPECT_EQ(edited["process"]["capabilities"]["bounding"].dump(), R"(["CAP_IPC_LOCK"])");
  EXPECT_EQ(edited["hooks"]["createRuntime"][0]["path"], settings_.hook);
  EXPECT_EQ(edited["hooks"]["poststop"][0]["args"][1], "poststop");
  EXPECT_EQ(status_of(config_path()).st_mode & 07777, 0640U);
  EXPECT_EQ(status_of(exec_grant_path()).st_mode & 07777, 0600U);
  EXPECT_FALSE(has_log());  // no messages
}

TEST_F(Prepare, OmitsHookWhenRuntimeStateIsKnown) {
  write_config_for_runc();
  ASSERT_TRUE(start());
  EXPECT_TRUE(state());
  EXPECT_FALSE(config()["hooks"].contains("createRuntime"));
  EXPECT_EQ(config()["hooks"]["poststop"][0]["args"][1], "poststop");
  // The same bundle with another runtime.
  end_grants();
  invocation_.runtime = "/usr/bin/another-runtime";
  ASSERT_TRUE(start());
  EXPECT_FALSE(state());
  EXPECT_TRUE(config()["hooks"].contains("createRuntime"));
}

// CRI-O's annotation must count although the configuration names no engine.
TEST_F(Prepare, AcceptsCrioPodWithoutConfiguredEngine) {
  const Json requesting = Json::parse(read_file(std::string(RECORDED) + "/crio-annotation.config.json"));
  const auto id = requesting["annotations"]["io.kubernetes.cri-o.ContainerID"].get<std::string>();
  settings_.engine.reset();
  invocation_.root = "/run/runc";
  invocation_.bundle = directory_ / "overlay-containers" + ("/" + id) + "/userdata";
  const std::string config = invocation_.bundle + "/config.json";
  write_file(directory_ / "admin.json", R"({"annotations_may_request": ["team-a"]})");
  write_file(config, requesting.dump());
  use_node("two", 2, 0);
  test_support::must(start());
  EXPECT_EQ(grants().size(), 1U);
  EXPECT_EQ(Json::parse(read_file(config))["hooks"]["poststop"][0]["args"][3], "crio");
  // The same annotations, from an image that Podman runs.
  Json forged = requesting;
  forged["linux"]["cgroupsPath"] = "/libpod_parent/libpod-" + id;
  write_file(config, forged.dump());
  ASSERT_TRUE(start());
  EXPECT_EQ(grants().size(), 1U);
}

// Its grant ended with the checkpoint.
TEST_F(Prepare, BooksRestoredContainerForHook) {
  const std::string requesting = write_config_for_runc();
  ASSERT_TRUE(restore());
  EXPECT_EQ(read_file(config_path()), requesting) << "a container without a grant stays unchanged";
  ASSERT_TRUE(start());
  const Json original = config();
  ASSERT_FALSE(original["hooks"].contains("createRuntime"));
  end_grants();
  for (int time = 0; time < 2; ++time) {
    ASSERT_TRUE(restore());
    EXPECT_EQ(config()["hooks"]["createRuntime"].size(), 1U);
    EXPECT_EQ(config()["linux"], original["linux"]);
  }
  ASSERT_TRUE(start());
  EXPECT_EQ(config()["hooks"], original["hooks"]) << "the edit starts from the original";
}

// `podman container restore` writes the edited config.json again. With --import there is no exec_grant.
TEST_F(Prepare, BooksRestoredContainerWithRewrittenConfig) {
  for (const bool is_imported : {false, true}) {
    write_config_for_runc();
    ASSERT_TRUE(start());
    ASSERT_FALSE(config()["hooks"].contains("createRuntime"));
    write_config(config().dump(1));
    if (is_imported) shim::remove_exec_grant(invocation_.bundle);
    end_grants();
    test_support::must(restore());
    EXPECT_EQ(grants().size(), 1U);
    EXPECT_FALSE(state()) << "the hook binds it";
    EXPECT_EQ(config()["hooks"]["createRuntime"].size(), 1U);
    EXPECT_EQ(hook::token_owner(config()["annotations"]["rdma-init.io/grant"].get<std::string>()).key,
              grants().at(0).owner.key);
  }
}

// crun runs no hooks at restore, even if config.json has some.
TEST_F(Prepare, BooksContainerRestoredByCrunWithoutHook) {
  for (const bool is_pod_shared : {false, true}) {
    write_config_for_runc();
    if (is_pod_shared) write_config(kAsking);
    ASSERT_TRUE(start());
    invocation_.runtime = "/usr/bin/crun";
    const std::string before = read_file(config_path());
    end_grants();
    ASSERT_EQ(!restore(shim::Dialect::kCrun), is_pod_shared) << "its processes may outlive its init";
    if (is_pod_shared) continue;
    EXPECT_EQ(grants().size(), 1U);
    ASSERT_TRUE(state());
    EXPECT_EQ(state()->kind, hook::RuntimeState::Kind::kCrun);
    EXPECT_EQ(read_file(config_path()), before);
  }
  write_config_for_runc();
  ASSERT_TRUE(start());
  invocation_.runtime = "/usr/bin/crun";
  end_grants();
  // As after a boot of the node.
  invocation_.root = directory_ / "root";
  EXPECT_TRUE(restore(shim::Dialect::kCrun));
  EXPECT_TRUE(std::filesystem::is_directory(invocation_.root));
  EXPECT_EQ(grants().size(), 1U);
  invocation_.root = "relative";
  EXPECT_FALSE(restore(shim::Dialect::kCrun)) << "without a known root its state cannot be read";
  EXPECT_EQ(grants().size(), 1U);
}

// A container that has the node of an HCA and requests none. The HCA is booked, but not granted.
Json without_hcas() {
  Json config = Json::parse(kAsking);
  config["annotations"]["rdma-init.io/devices"] = "none";
  config["linux"]["devices"] = {{{"path", "/dev/infiniband/uverbs0"}, {"type", "c"}, {"major", 231}, {"minor", 192}}};
  return config;
}

TEST_F(Prepare, LeavesContainerWithoutGrantUnchanged) {
  write_config(kSilent);
  const struct stat before = status_of(config_path());
  ASSERT_TRUE(start());
  const struct stat after = status_of(config_path());
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_EQ(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
  EXPECT_TRUE(grants().empty());
  EXPECT_FALSE(has_exec_grant());
  // A container that can open an HCA and gets none.
  write_config(without_hcas().dump());
  ASSERT_TRUE(start());
  EXPECT_EQ(read_file(config_path()), without_hcas().dump());
  EXPECT_EQ(grants().size(), 1U);
}

TEST_F(Prepare, SetsNoteAboutAnnotationWithoutEffect) {
  Json silent = Json::parse(kSilent);
  silent["annotations"]["rdma-init.io/device"] = "8";
  write_config(silent.dump());
  const std::string note =
      "RDMA_INIT_NOTE=ignoring unknown annotation rdma-init.io/device: known are rdma-init.io/devices, "
      "rdma-init.io/mode and rdma-init.io/network";
  for (int time = 0; time < 2; ++time) {
    test_support::must(start());
    Json expected = silent;
    expected["process"]["env"] = Json{note};
    EXPECT_EQ(config(), expected) << "nothing else is added";
  }
  EXPECT_TRUE(grants().empty());
  EXPECT_TRUE(has_exec_grant());
  // The container can open an HCA and gets none, but the note.
  Json asking = without_hcas();
  asking["annotations"]["rdma-init.io/device"] = "8";
  write_config(asking.dump());
  ASSERT_TRUE(start());
  asking["process"]["env"] = Json{note};
  EXPECT_EQ(config(), asking) << "without a grant, neither hooks nor token";
  // The container's own variable stays.
  silent["process"]["env"] = Json{"RDMA_INIT_NOTE=own"};
  write_config(silent.dump());
  ASSERT_TRUE(start());
  EXPECT_EQ(config(), silent);
}

TEST_F(Prepare, EditsOriginalWhenBundleIsStartedAgain) {
  write_file(directory_ / "admin.json", R"({"default_devices": "1", "nodes": {"rdma_cm": false}})");
  write_config(kSilent);
  ASSERT_TRUE(start());
  const Json token = config()["annotations"]["rdma-init.io/grant"];
  // Another HCA is free now: the first one must not count as part of the engine's file.
  use_node("another", 1, 7);
  ASSERT_TRUE(start());
  ASSERT_EQ(config()["linux"]["devices"].size(), 1U);
  EXPECT_EQ(config()["linux"]["devices"][0]["path"], "/dev/infiniband/uverbs7");
  EXPECT_EQ(config()["hooks"]["createRuntime"].size(), 1U);
  EXPECT_NE(config()["annotations"]["rdma-init.io/grant"], token);
  write_file(directory_ / "admin.json", "{}");
  ASSERT_TRUE(start());
  EXPECT_EQ(read_file(config_path()), kSilent);
  EXPECT_FALSE(has_exec_grant());
}

TEST_F(Prepare, UsesConfigThatEngineWroteAgain) {
  write_config(kAsking);
  ASSERT_TRUE(start());
  ASSERT_EQ(::unlink(config_path().c_str()), 0);
  write_config(kSilent);
  ASSERT_TRUE(start());
  EXPECT_EQ(read_file(config_path()), kSilent);
  EXPECT_FALSE(has_exec_grant());  // exec must not get limits that the container lacks
}

TEST_F(Prepare, RemovesTemporaryFilesOfKilledCalls) {
  const std::string dead = fmt::format(".rdma-runtime@{}.{}@0123456789abcdef", self_.pid, self_.start_time + 1);
  const std::string live = fmt::format(".rdma-runtime@{}.{}@0123456789abcdef", self_.pid, self_.start_time);
  // Names that this program does not create.
  const std::vector<std::string> kept = {live,
                                         dead + "0",
                                         ".rdma-runtime@1.1@0123456789abcde",
                                         ".rdma-runtime@-1.1@0123456789abcdef",
                                         ".rdma-runtime@1@0123456789abcdef",
                                         "rdma-runtime@1.1@0123456789abcdef",
                                         ".config.json.0123456789abcdef"};
  for (const char* config : {kAsking, kSilent}) {
    for (const std::string& name : kept)
      write_file(directory_ / ("bundle/" + name), "x");
    write_file(directory_ / ("bundle/" + dead), "x");
    write_config(config);
    ASSERT_TRUE(start());
    EXPECT_NE(::access((directory_ / ("bundle/" + dead)).c_str(), F_OK), 0);
    for (const std::string& name : kept)
      EXPECT_EQ(::access((directory_ / ("bundle/" + name)).c_str(), F_OK), 0) << name;
  }
}

TEST_F(Prepare, EditsFileOfConfigOption) {
  write_file(directory_ / "other/spec.json", kAsking);
  write_config(kSilent);
  invocation_.config_file = directory_ / "other/spec.json";
  test_support::must(start());
  EXPECT_EQ(read_file(config_path()), kSilent);
  EXPECT_TRUE(Json::parse(read_file(directory_ / "other/spec.json"))["hooks"].contains("poststop"));
  EXPECT_TRUE(has_exec_grant());
}

TEST_F(Prepare, ChangesNothingAfterRefusal) {
  ASSERT_TRUE(start()) << "the runtime reports a missing config.json";
  const std::tuple<const char*, std::string, const char*> rows[] = {
      {"no JSON", "{", "line 1"},
      {"a key twice", R"({"a": 1, "a": 2})", "twice"},
      {"too deep", std::string(100, '[') + std::string(100, ']'), "nested"},
      {"no object", "[]", "expected an object"},
      {"a wrong type", R"({"annotations": {"rdma-init.io/devices": "1"}, "hooks": []})", "`hooks`"},
      {"a device of another number",
       R"({"annotations": {"rdma-init.io/devices": "1"},
           "linux": {"devices": [{"path": "/dev/infiniband/uverbs0", "type": "c", "major": 1, "minor": 3}]}})",
       "c 1:3"}};
  for (const auto& [name, text, word] : rows) {
    SCOPED_TRACE(name);
    write_config(text);
    const std::string message = start().error().message;
    EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_EQ(read_file(config_path()), text);
    EXPECT_FALSE(has_exec_grant());
  }
  ASSERT_EQ(::unlink(config_path().c_str()), 0);
  ASSERT_EQ(::symlink("real.json", config_path().c_str()), 0);
  EXPECT_FALSE(start());
  invocation_.bundle = directory_ / "missing";
  EXPECT_TRUE(start());
}

TEST_F(Prepare, RefusesMissingHookBeforeBooking) {
  write_config(kAsking);
  settings_.hook = directory_ / "missing";
  EXPECT_FALSE(start());
  EXPECT_TRUE(grants().empty());
  EXPECT_EQ(read_file(config_path()), kAsking);
}

TEST_F(Prepare, WarnsAboutSeccompProfileOrEditsIt) {
  Json requesting = Json::parse(kAsking);
  requesting["linux"]["seccomp"] = {{"defaultAction", "SCMP_ACT_ALLOW"},
                                    {"syscalls", {{{"names", {"mbind"}}, {"action", "SCMP_ACT_ERRNO"}}}}};
  write_config(requesting.dump());
  ASSERT_TRUE(start());
  EXPECT_NE(read_file(directory_ / "log").find("mbind for libnuma"), std::string::npos);
  EXPECT_EQ(config()["linux"]["seccomp"], requesting["linux"]["seccomp"]);
  settings_.allow_system_calls = true;
  ASSERT_TRUE(start());
  EXPECT_EQ(config()["linux"]["seccomp"]["syscalls"].dump(), R"([{"names":["mbind"],"action":"SCMP_ACT_ALLOW"}])");
}

TEST_F(Prepare, EditsExecOfEditedContainer) {
  write_config(kAsking);
  ASSERT_TRUE(start());
  write_state(directory_ / "bundle");
  const std::string file = directory_ / "process.json";
  write_file(file, R"({"args": ["sh"], "capabilities": {}})");
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  exec(file);
  const Json process = Json::parse(read_file(file));
  EXPECT_EQ(process["capabilities"]["effective"].dump(), R"(["CAP_IPC_LOCK"])");
  const hook::Rlimit raised = hook::raised_memlock(4096, hook::memlock_of(0));  // raised from the limit of this process
  EXPECT_EQ(process["rlimits"],
            Json::array({{{"type", "RLIMIT_MEMLOCK"}, {"hard", raised.hard}, {"soft", raised.soft}}}));
  EXPECT_EQ(status_of(file).st_mode & 07777, 0600U);
  const struct stat before = status_of(file);
  exec(file);
  EXPECT_EQ(status_of(file).st_ino, before.st_ino);
  EXPECT_FALSE(has_log());
}

TEST_F(Prepare, LeavesExecOfOtherContainerUnchanged) {
  const std::string file = directory_ / "process.json";
  write_file(file, R"({"capabilities": {}})");
  exec(file);  // no state
  write_state(directory_ / "bundle");
  exec(file);  // no such bundle
  write_config(R"({"annotations": {"rdma-init.io/grant": "0123456789abcdef0123456789abcdef"}})");
  exec(file);  // an annotation is no exec grant
  write_config(kAsking);
  invocation_.id = "ID";
  ASSERT_TRUE(start());
  invocation_.id = "OTHER";
  write_file(directory_ / "root/OTHER/state.json", read_file(directory_ / "root/ID/state.json"));
  exec(file);  // the bundle of another container
  EXPECT_EQ(read_file(file), R"({"capabilities": {}})");
  EXPECT_FALSE(has_log());
}

TEST_F(Prepare, ContinuesExecWithInvalidProcessFile) {
  write_config(kAsking);
  ASSERT_TRUE(start());
  write_state(directory_ / "bundle");
  const std::string file = directory_ / "process.json";
  exec(file);  // missing
  EXPECT_FALSE(has_log());
  write_file(file, "no JSON");
  exec(file);
  EXPECT_EQ(read_file(file), "no JSON");
  const Json line = Json::parse(read_file(directory_ / "log"));
  EXPECT_EQ(line["level"], "warning");
  EXPECT_NE(line["msg"].get<std::string>().find("`ID`"), std::string::npos);
}

}  // namespace
