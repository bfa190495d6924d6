// A bundle, a runtime's state, and a substitute for the grant, for tests of prepare_new() and prepare_exec().
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "base/json/json.hpp"
#include "hook/apply/edit_spec.hpp"
#include "hook/config/read_config.hpp"
#include "shim/runtime/prepare.hpp"
#include "support/temp_dir.hpp"

namespace shim_scene {

inline constexpr const char* kAsking = R"({"ociVersion": "1.0.2", "x-large": 18446744073709551615,
  "process": {"args": ["true"], "capabilities": {"bounding": []}, "rlimits": []},
  "annotations": {"rdma-init.io/devices": "1", "rdma-init.io/grant": "forged"}})";
inline constexpr const char* kSilent = R"({"ociVersion": "1.0.2", "process": {"args": ["true"]}})";

// Creates an executable file and returns its path.
inline std::string program(const std::string& path) {
  test_support::write_file(path, "#!/bin/sh\n");
  EXPECT_EQ(::chmod(path.c_str(), 0755), 0);
  return path;
}

inline struct stat status_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status;
}

class Prepare : public testing::Test {
 protected:
  Prepare() {
    test_support::write_file(directory_ / "admin.json", "{}");
    settings_.hook = program(directory_ / "rdma-hook");
    settings_.engine = hook::Engine::kRunc;
    settings_.node.config = {directory_ / "admin.json", "", true};
    invocation_.bundle = directory_ / "bundle";
    invocation_.id = "ID";
    invocation_.log = directory_ / "log";
    invocation_.json_log = true;
  }

  void write_config(const std::string& text) { test_support::write_file(config_path(), text); }
  // A container with its own PID namespace that requests HCAs, behind runc, which has a state directory.
  std::string write_config_for_runc() {
    base::Json requesting = base::Json::parse(kAsking);
    requesting["linux"]["namespaces"] = {{{"type", "pid"}}, {{"type", "mount"}}};
    runtime_ = "/usr/sbin/runc";
    invocation_.root = directory_ / "bundle";
    write_config(requesting.dump());
    return requesting.dump();
  }
  std::string config_path() const { return directory_ / "bundle/config.json"; }
  base::Json config() const { return base::Json::parse(test_support::read_file(config_path())); }
  std::string marker_path() const { return directory_ / "bundle/rdma-runtime.json"; }
  bool has_log() const { return ::access((directory_ / "log").c_str(), F_OK) == 0; }
  bool has_marker() const { return ::access(marker_path().c_str(), F_OK) == 0; }

  // A substitute for hook::grant_in_spec().
  base::Result<void> grant(hook::ContainerRequest& requesting, const base::ProcessIdentity& requester, hook::Call& call,
                           const hook::Publish& publish) {
    ++booked_;
    EXPECT_EQ(requester, self_);
    EXPECT_EQ(call.container, "ID");
    EXPECT_TRUE(requesting.request);
    state_ = call.state;
    TRY_VOID(hook::edit_spec(hook::adjust(answer_, requesting.spec, token_), *requesting.document));
    return publish(answer_, *requesting.document);
  }
  shim::GrantInSpec granting() {
    return [this](auto& requesting, const auto& requester, auto& call, const auto& publish) {
      return grant(requesting, requester, call, publish);
    };
  }

  base::Result<void> start() {
    invocation_.action = shim::Action::kStart;
    return prepare(shim::Dialect::kRunc);
  }

  base::Result<void> restore(shim::Dialect dialect = shim::Dialect::kRunc) {
    invocation_.action = shim::Action::kRestore;
    return prepare(dialect);
  }

  base::Result<void> prepare(shim::Dialect dialect) {
    settings_.admin = hook::read_config(settings_.node.config);
    const shim::RuntimeLog log(invocation_, dialect);
    return shim::prepare_new({runtime_, invocation_, dialect}, settings_, granting(), self_, log);
  }

  void exec(const std::string& file) {
    invocation_.process_file = file;
    invocation_.root = directory_ / "root";
    shim::prepare_exec(invocation_, shim::Dialect::kRunc, self_, shim::RuntimeLog(invocation_, shim::Dialect::kRunc));
  }

  void write_state(const std::string& bundle) {
    test_support::write_file(directory_ / "root/ID/state.json",
                             base::Json{{"config", {{"labels", {"bundle=" + bundle}}}}}.dump());
  }

  static hook::Plan plan() {
    hook::Plan plan;
    plan.hcas = {{"mlx5_0", hook::Mode::kHca, 1, std::nullopt}};
    plan.nodes = {{"/dev/infiniband/uverbs0", 231, 192, 0666, 0, 0}};
    plan.memlock = 4096;
    plan.capabilities = {"CAP_IPC_LOCK"};
    return plan;
  }

  const base::ProcessIdentity self_ = base::identify(::getpid()).value();
  test_support::TempDir directory_;
  shim::Settings settings_;
  shim::Invocation invocation_;
  std::string runtime_ = "/usr/bin/another-runtime";
  hook::Plan answer_ = plan();
  std::string token_ = "0123456789abcdef0123456789abcdef";
  int booked_ = 0;
  std::optional<hook::RuntimeState> state_;  // of the last grant
};

}  // namespace shim_scene
