// Reading, waiting and deciding together, on file trees that change meanwhile.
#include "init/resolve.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

namespace fs = std::filesystem;

using init::Options;
using init::Status;
using test_support::lay_out;
using test_support::rails;
using test_support::TempDir;

constexpr const char* kGid = "sys/class/infiniband/mlx5_0/ports/1/gids/3";

class Resolve : public testing::Test {
 protected:
  Resolve() {
    options_.command = init::Command::kEnv;
    options_.root = root_.path();
    options_.wait_seconds = 30;  // more than any test takes: what is waited for comes
  }

  init::Resolved resolve(std::vector<const char*> environment = {}) {
    environment.push_back(nullptr);
    auto resolved = init::resolve(options_, environment.data(), init::Log(init::LogLevel::kQuiet), false);
    EXPECT_TRUE(resolved);
    return std::move(resolved).value();
  }

  // Does it in another process, a little later.
  void soon(const std::function<void()>& change) {
    child_ = fork();
    if (child_ == 0) {
      usleep(100000);
      change();
      _exit(0);
    }
  }

  void TearDown() override {
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }

  TempDir root_;
  Options options_;
  pid_t child_ = -1;
};

TEST_F(Resolve, AGidThatComesLateIsWaitedFor) {
  lay_out(rails(2), root_.path());
  const std::string gid = fs::canonical(root_ / kGid);
  const std::string aside = root_ / "gid";
  fs::rename(gid, aside);
  options_.policy.gids.cidrs = {*fabric::parse_cidr("10.1.0.0/16")};
  soon([&] { fs::rename(aside, gid); });
  const auto resolved = resolve();
  EXPECT_EQ(resolved.decision.status, Status::kOk);
  EXPECT_TRUE(resolved.decision.ports.at(0).used);
  EXPECT_EQ(resolved.decision.ports.at(0).gid_index, 3U);
}

TEST_F(Resolve, AnHcaThatComesLateIsWaitedForWhenRequired) {
  lay_out(rails(2), root_.path());
  const std::string link = root_ / "sys/class/infiniband/mlx5_1";
  const std::string aside = root_ / "sys/class/mlx5_1";
  fs::rename(link, aside);
  options_.policy.require = 2;
  soon([&] { fs::rename(aside, link); });
  EXPECT_FALSE(resolve().decision.refusal);
}

TEST_F(Resolve, WhatNeverComesIsNamed) {
  lay_out(rails(1), root_.path());
  options_.policy.require = 2;
  options_.wait_seconds = 0.05;
  EXPECT_TRUE(resolve().decision.refusal);
}

// Thirty seconds would show: nothing is pending here, and without a wait nothing is waited for.
TEST_F(Resolve, NothingPendingCostsNothing) {
  lay_out(rails(2), root_.path());
  fs::remove(root_ / kGid);
  EXPECT_EQ(resolve().decision.status, Status::kOk);
  options_.policy.require = 3;
  options_.wait_seconds = 0;
  EXPECT_TRUE(resolve().decision.refusal);
}

TEST_F(Resolve, ReadsTheTablesToTheEndWhenTheDecisionNeedsThem) {
  lay_out(rails(2), root_.path(), {.full = true});
  const auto resolved = resolve({"NCCL_IB_GID_INDEX=200"});
  EXPECT_EQ(resolved.decision.kept.at("NCCL_IB_GID_INDEX").problem,
            "GID 200 of mlx5_0:1 is empty, not a RoCE v2 address of this network namespace");
  EXPECT_FALSE(resolved.decision.needs_full && !resolved.inventory.hcas[0].ports[0].gids_complete);
}

TEST_F(Resolve, ConfFilesBelowTheRootAreRead) {
  lay_out(rails(2), root_.path());
  test_support::write_file(root_ / "etc/nccl.conf", "NCCL_IB_HCA==mlx5_1\n");
  test_support::write_file(root_ / "etc/other.conf", "NCCL_IB_HCA==mlx5_0\n");
  EXPECT_EQ(resolve().decision.kept.at("NCCL_IB_HCA").source, "/etc/nccl.conf");
  EXPECT_EQ(resolve({"NCCL_CONF_FILE=/etc/other.conf"}).decision.kept.at("NCCL_IB_HCA").source, "/etc/other.conf");
  EXPECT_EQ(resolve({"NCCL_IB_HCA==mlx5_1"}).decision.kept.at("NCCL_IB_HCA").source, "environment");
}

TEST_F(Resolve, ASnapshotBringsItsOwnSettings) {
  test_support::write_file(root_ / "s.json", R"({"env": {"NCCL_IB_HCA": "=x"},
    "conf": {"/etc/nccl.conf": "NCCL_IB_TC=1\nNCCL_IB_SL=1\n", "/home/u/.nccl.conf": "NCCL_IB_TC=2\n"}})");
  options_.snapshot = root_ / "s.json";
  const auto resolved = resolve({"NCCL_IB_HCA==mine", "NCCL_IB_PKEY=3"});
  EXPECT_EQ(resolved.settings.at("NCCL_IB_HCA").value, "=x");
  EXPECT_EQ(resolved.settings.at("NCCL_IB_TC").source, "/home/u/.nccl.conf");
  EXPECT_EQ(resolved.settings.at("NCCL_IB_SL").source, "/etc/nccl.conf");
  EXPECT_FALSE(resolved.settings.contains("NCCL_IB_PKEY")) << "this process's environment is another machine's";
}

}  // namespace
