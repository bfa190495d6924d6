#include "shim/runtime/marker.hpp"
#include "unit/runtime/scene.hpp"

namespace {

using hook::Json;
using shim_scene::kAsking;
using shim_scene::kSilent;
using shim_scene::Prepare;
using shim_scene::status_of;
using test_support::read_file;
using test_support::write_file;

TEST_F(Prepare, AContainerThatAsksIsEdited) {
  write_config(kAsking);
  ASSERT_EQ(::chmod(config_path().c_str(), 0640), 0);
  const auto started = start();
  ASSERT_TRUE(started) << started.error().message;
  const Json edited = config();
  EXPECT_EQ(edited["x-large"].dump(), "18446744073709551615");
  EXPECT_EQ(edited["annotations"]["rdma-init.io/grant"], token_);
  EXPECT_EQ(edited["linux"]["devices"].size(), 1U);
  EXPECT_EQ(edited["process"]["capabilities"]["bounding"].dump(), R"(["CAP_IPC_LOCK"])");
  EXPECT_EQ(edited["hooks"]["createRuntime"][0]["path"], settings_.hook);
  EXPECT_EQ(edited["hooks"]["poststop"][0]["args"][1], "poststop");
  EXPECT_EQ(status_of(config_path()).st_mode & 07777, 0640U);
  EXPECT_EQ(status_of(marker_path()).st_mode & 07777, 0600U);
  EXPECT_NE(::access((directory_ / "log").c_str(), F_OK), 0);  // nothing to say
}

TEST_F(Prepare, WhatRuncItselfTellsNeedsNoHook) {
  Json asking = Json::parse(kAsking);
  asking["linux"]["namespaces"] = {{{"type", "pid"}}, {{"type", "mount"}}};
  runtime_ = "/usr/sbin/runc";
  invocation_.root = directory_ / "bundle";
  write_config(asking.dump());
  ASSERT_TRUE(start());
  EXPECT_TRUE(state_);
  EXPECT_FALSE(config()["hooks"].contains("createRuntime"));
  EXPECT_EQ(config()["hooks"]["poststop"][0]["args"][1], "poststop");
  // The same bundle behind another runtime.
  runtime_ = "/usr/bin/another-runtime";
  ASSERT_TRUE(start());
  EXPECT_FALSE(state_);
  EXPECT_TRUE(config()["hooks"].contains("createRuntime"));
}

// The configuration names no engine, and CRI-O's annotation was not heard then.
TEST_F(Prepare, ACrioPodIsHeardWithoutAnEngineInTheConfiguration) {
  const Json asking = Json::parse(read_file(std::string(RECORDED) + "/crio-annotation.config.json"));
  const auto id = asking["annotations"]["io.kubernetes.cri-o.ContainerID"].get<std::string>();
  settings_.engine.reset();
  invocation_.root = "/run/runc";
  invocation_.bundle = directory_ / "overlay-containers" + ("/" + id) + "/userdata";
  const std::string config = invocation_.bundle + "/config.json";
  write_file(directory_ / "admin.json", R"({"annotations_may_request": ["team-a"]})");
  write_file(config, asking.dump());
  const auto started = start();
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_EQ(booked_, 1);
  EXPECT_EQ(Json::parse(read_file(config))["hooks"]["poststop"][0]["args"][3], "crio");
  // The same annotations, by an image that Podman runs.
  Json forged = asking;
  forged["linux"]["cgroupsPath"] = "/libpod_parent/libpod-" + id;
  write_file(config, forged.dump());
  ASSERT_TRUE(start());
  EXPECT_EQ(booked_, 1);
}

// What it had is booked for nobody after its checkpoint.
TEST_F(Prepare, ARestoredContainerIsBookedByTheHook) {
  Json asking = Json::parse(kAsking);
  asking["linux"]["namespaces"] = {{{"type", "pid"}}};
  runtime_ = "/usr/sbin/runc";
  invocation_.root = directory_ / "bundle";
  write_config(asking.dump());
  ASSERT_TRUE(restore());
  EXPECT_EQ(read_file(config_path()), asking.dump()) << "not ours to edit";
  ASSERT_TRUE(start());
  const Json given = config();
  ASSERT_FALSE(given["hooks"].contains("createRuntime"));
  for (int time = 0; time < 2; ++time) {
    ASSERT_TRUE(restore());
    EXPECT_EQ(config()["hooks"]["createRuntime"].size(), 1U);
    EXPECT_EQ(config()["linux"], given["linux"]);
  }
  ASSERT_TRUE(start());
  EXPECT_EQ(config()["hooks"], given["hooks"]) << "from what it was before all that";
}

// `podman container restore` writes the edited config.json anew; with --import there is no marker beside it.
TEST_F(Prepare, ARestoredContainerIsBookedWhoeverWroteItsConfig) {
  Json asking = Json::parse(kAsking);
  asking["linux"]["namespaces"] = {{{"type", "pid"}}};
  runtime_ = "/usr/sbin/runc";
  invocation_.root = directory_ / "bundle";
  for (const bool is_imported : {false, true}) {
    write_config(asking.dump());
    ASSERT_TRUE(start());
    ASSERT_FALSE(config()["hooks"].contains("createRuntime"));
    write_config(config().dump(1));
    if (is_imported) shim::remove_marker(invocation_.bundle);
    booked_ = 0;
    token_ = "another";
    const auto restored = restore();
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_EQ(booked_, 1);
    EXPECT_FALSE(state_) << "the hook binds it";
    EXPECT_EQ(config()["hooks"]["createRuntime"].size(), 1U);
    EXPECT_EQ(config()["annotations"]["rdma-init.io/grant"], "another");
  }
}

// It runs no hook at restore, also where there is one.
TEST_F(Prepare, BehindCrunARestoredContainerIsBookedWithoutAHook) {
  invocation_.root = directory_ / "bundle";
  for (const bool is_pod_shared : {false, true}) {
    const char* const asking = is_pod_shared ? "{}" : R"({"linux": {"namespaces": [{"type": "pid"}]}})";
    Json document = Json::parse(kAsking);
    document.update(Json::parse(asking));
    write_config(document.dump());
    runtime_ = "/usr/sbin/runc";
    ASSERT_TRUE(start());
    runtime_ = "/usr/bin/crun";
    const std::string before = read_file(config_path());
    booked_ = 0;
    const auto restored = restore(shim::Dialect::kCrun);
    ASSERT_EQ(!restored, is_pod_shared) << "its init says nothing of its other processes";
    if (is_pod_shared) continue;
    EXPECT_EQ(booked_, 1);
    ASSERT_TRUE(state_);
    EXPECT_EQ(state_->kind, hook::RuntimeState::Kind::kCrun);
    EXPECT_EQ(read_file(config_path()), before);
  }
  Json document = Json::parse(kAsking);
  document["linux"]["namespaces"] = {{{"type", "pid"}}};
  write_config(document.dump());
  runtime_ = "/usr/sbin/runc";
  ASSERT_TRUE(start());
  runtime_ = "/usr/bin/crun";
  booked_ = 0;
  // As after a boot.
  invocation_.root = directory_ / "root";
  EXPECT_TRUE(restore(shim::Dialect::kCrun));
  EXPECT_TRUE(std::filesystem::is_directory(invocation_.root));
  EXPECT_EQ(booked_, 1);
  invocation_.root = "relative";
  EXPECT_FALSE(restore(shim::Dialect::kCrun)) << "nothing would tell whether it lives";
  EXPECT_EQ(booked_, 1);
}

TEST_F(Prepare, AContainerThatAsksNothingIsNotTouched) {
  write_config(kSilent);
  const struct stat before = status_of(config_path());
  ASSERT_TRUE(start());
  const struct stat after = status_of(config_path());
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_EQ(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
  EXPECT_EQ(booked_, 0);
  EXPECT_NE(::access(marker_path().c_str(), F_OK), 0);
}

TEST_F(Prepare, AContainerThatIsGivenNothingIsNotTouched) {
  write_config(kAsking);
  answer_ = {};
  ASSERT_TRUE(start());
  EXPECT_EQ(read_file(config_path()), kAsking);
  EXPECT_EQ(booked_, 1);
}

TEST_F(Prepare, ABundleThatIsStartedAgainStartsFromWhatItWas) {
  write_config(kAsking);
  ASSERT_TRUE(start());
  // Another HCA is free now: the first one must not count as given by somebody.
  answer_.nodes[0].path = "/dev/infiniband/uverbs7";
  token_ = "another";
  ASSERT_TRUE(start());
  ASSERT_EQ(config()["linux"]["devices"].size(), 1U);
  EXPECT_EQ(config()["linux"]["devices"][0]["path"], "/dev/infiniband/uverbs7");
  EXPECT_EQ(config()["hooks"]["createRuntime"].size(), 1U);
  EXPECT_EQ(config()["annotations"]["rdma-init.io/grant"], "another");
  answer_ = {};
  ASSERT_TRUE(start());
  EXPECT_EQ(read_file(config_path()), kAsking);
  EXPECT_NE(::access(marker_path().c_str(), F_OK), 0);
}

TEST_F(Prepare, AConfigurationThatTheEngineWroteAnewCounts) {
  write_config(kAsking);
  ASSERT_TRUE(start());
  ASSERT_EQ(::unlink(config_path().c_str()), 0);
  write_config(kSilent);
  ASSERT_TRUE(start());
  EXPECT_EQ(read_file(config_path()), kSilent);
  EXPECT_NE(::access(marker_path().c_str(), F_OK), 0);  // or exec would give what the container has not
}

TEST_F(Prepare, WhatAKilledCallLeftIsSwept) {
  const std::string dead = fmt::format(".rdma-runtime@{}.{}@0123456789abcdef", self_.pid, self_.start_time + 1);
  const std::string live = fmt::format(".rdma-runtime@{}.{}@0123456789abcdef", self_.pid, self_.start_time);
  // Names that nobody gave but others.
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

TEST_F(Prepare, WhatIsNoConfigurationIsTheRuntimesToRefuse) {
  ASSERT_TRUE(start());
  invocation_.bundle = directory_ / "missing";
  ASSERT_TRUE(start());
}

TEST_F(Prepare, AnotherConfiguration) {
  write_file(directory_ / "other/spec.json", kAsking);
  write_config(kSilent);
  invocation_.config_file = directory_ / "other/spec.json";
  const auto started = start();
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_EQ(read_file(config_path()), kSilent);
  EXPECT_TRUE(Json::parse(read_file(directory_ / "other/spec.json"))["hooks"].contains("poststop"));
  EXPECT_EQ(::access(marker_path().c_str(), F_OK), 0);
}

struct RefusedRow {
  const char* name;
  std::string text;
  const char* word;
};

TEST_F(Prepare, RefusalsChangeNothing) {
  const RefusedRow rows[] = {
      {"no JSON", "{", "line 1"},
      {"a key twice", R"({"a": 1, "a": 2})", "twice"},
      {"too deep", std::string(100, '[') + std::string(100, ']'), "nested"},
      {"no object", "[]", "expected an object"},
      {"a wrong type", R"({"annotations": {"rdma-init.io/devices": "1"}, "hooks": []})", "`hooks`"},
      {"a device of another number",
       R"({"annotations": {"rdma-init.io/devices": "1"},
           "linux": {"devices": [{"path": "/dev/infiniband/uverbs0", "type": "c", "major": 1, "minor": 3}]}})",
       "c 1:3"},
  };
  for (const RefusedRow& row : rows) {
    SCOPED_TRACE(row.name);
    write_config(row.text);
    const auto started = start();
    ASSERT_FALSE(started);
    EXPECT_NE(started.error().message.find(row.word), std::string::npos) << started.error().message;
    EXPECT_EQ(read_file(config_path()), row.text);
    EXPECT_NE(::access(marker_path().c_str(), F_OK), 0);
  }
  ASSERT_EQ(::unlink(config_path().c_str()), 0);
  ASSERT_EQ(::symlink("real.json", config_path().c_str()), 0);
  EXPECT_FALSE(start());
}

TEST_F(Prepare, AMissingHookIsRefusedBeforeAnythingIsBooked) {
  write_config(kAsking);
  settings_.hook = directory_ / "missing";
  EXPECT_FALSE(start());
  EXPECT_EQ(booked_, 0);
  EXPECT_EQ(read_file(config_path()), kAsking);
}

TEST_F(Prepare, ASeccompProfileIsLookedAt) {
  Json asking = Json::parse(kAsking);
  asking["linux"]["seccomp"] = {{"defaultAction", "SCMP_ACT_ALLOW"},
                                {"syscalls", {{{"names", {"mbind"}}, {"action", "SCMP_ACT_ERRNO"}}}}};
  write_config(asking.dump());
  ASSERT_TRUE(start());
  EXPECT_NE(read_file(directory_ / "log").find("mbind for libnuma"), std::string::npos);
  EXPECT_EQ(config()["linux"]["seccomp"], asking["linux"]["seccomp"]);
  settings_.allow_system_calls = true;
  ASSERT_TRUE(start());
  EXPECT_EQ(config()["linux"]["seccomp"]["syscalls"].dump(), R"([{"names":["mbind"],"action":"SCMP_ACT_ALLOW"}])");
}

}  // namespace
