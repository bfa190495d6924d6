// A bundle, a runtime's state, a node with one HCA and its ledger, for tests of prepare_new() and prepare_exec().
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json/json.hpp"
#include "hook/config/read_config.hpp"
#include "hook/ledger/ledger.hpp"
#include "shim/runtime/prepare.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

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
    test_support::write_file(directory_ / "admin.json", R"({"memlock": 4096, "nodes": {"rdma_cm": false}})");
    use_node("node", 1, 0);
    settings_.node.ledger = directory_ / "ledger";
    settings_.hook = program(directory_ / "rdma-hook");
    settings_.engine = hook::Engine::kRunc;
    settings_.node.config = {directory_ / "admin.json", "", true};
    invocation_.bundle = directory_ / "bundle";
    invocation_.id = "ID";
    invocation_.log = directory_ / "log";
    invocation_.json_log = true;
    invocation_.runtime = "/usr/bin/another-runtime";
  }

  void write_config(const std::string& text) { test_support::write_file(config_path(), text); }
  // A container with its own PID namespace that requests HCAs, behind runc, which has a state directory.
  std::string write_config_for_runc() {
    base::Json requesting = base::Json::parse(kAsking);
    requesting["linux"]["namespaces"] = {{{"type", "pid"}}, {{"type", "mount"}}};
    invocation_.runtime = "/usr/sbin/runc";
    invocation_.root = directory_ / "bundle";
    write_config(requesting.dump());
    return requesting.dump();
  }
  std::string config_path() const { return directory_ / "bundle/config.json"; }
  base::Json config() const { return base::Json::parse(test_support::read_file(config_path())); }
  std::string exec_grant_path() const { return directory_ / "bundle/rdma-runtime.json"; }
  bool has_log() const { return ::access((directory_ / "log").c_str(), F_OK) == 0; }
  bool has_exec_grant() const { return ::access(exec_grant_path().c_str(), F_OK) == 0; }

  // Lays out a node with `count` HCAs: mlx5_0 has uverbsN, N is `uverbs`.
  void use_node(const std::string& name, unsigned count, unsigned uverbs) {
    auto inventory = test_support::rails(count, 4);
    for (fabric::Hca& hca : inventory.hcas) {
      *hca.uverbs += uverbs;
      hca.uverbs_dev = fmt::format("231:{}", 192 + *hca.uverbs);
    }
    settings_.node.root = directory_ / name;
    test_support::lay_out(inventory, settings_.node.root);
  }
  // The grants of the container.
  std::vector<hook::Grant> grants() const {
    auto grants = test_support::must(test_support::must(hook::Ledger::open(settings_.node.ledger)).find_by_id("ID"));
    for (const hook::Grant& grant : grants)
      EXPECT_EQ(grant.users.at(0).process, self_);
    return grants;
  }
  // The runtime's state that the grant names.
  std::optional<hook::RuntimeState> state() const { return grants().at(0).users.at(0).state; }
  // As poststop does.
  void end_grants() const { std::filesystem::remove_all(settings_.node.ledger); }

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
    invocation_.dialect = dialect;
    return shim::prepare_new(invocation_, settings_, self_, shim::RuntimeLog(invocation_));
  }

  void exec(const std::string& file) {
    invocation_.process_file = file;
    invocation_.root = directory_ / "root";
    invocation_.dialect = shim::Dialect::kRunc;
    shim::prepare_exec(invocation_, self_, shim::RuntimeLog(invocation_));
  }

  void write_state(const std::string& bundle) {
    test_support::write_file(directory_ / "root/ID/state.json",
                             base::Json{{"config", {{"labels", {"bundle=" + bundle}}}}}.dump());
  }

  const base::ProcessIdentity self_ = base::identify(::getpid()).value();
  test_support::TempDir directory_;
  shim::Settings settings_;
  shim::Invocation invocation_;
};

}  // namespace shim_scene
