#include "init/resolve.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "support/inventories.hpp"
#include "support/lines_of.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

namespace fs = std::filesystem;
using namespace fabric;
using namespace init;
using namespace test_support;

// Reading, waiting and deciding together, on file trees that change during the wait.

constexpr const char* kGid = "sys/class/infiniband/mlx5_0/ports/1/gids/3";

class Resolve : public testing::Test {
 protected:
  Resolve() {
    options_.command = init::Command::kEnv;
    options_.root = root_.path();
    options_.wait_seconds = 30;  // longer than any test: every pending resource appears
  }

  init::Resolved resolve(std::vector<const char*> environment = {}) {
    environment.push_back(nullptr);
    auto resolved = init::resolve(options_, environment.data(), init::Log(init::LogLevel::kQuiet));
    EXPECT_TRUE(resolved);
    return std::move(resolved).value();
  }

  // Runs the change in another process, after a short delay.
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

TEST_F(Resolve, WaitsForALateGid) {
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

TEST_F(Resolve, WaitsForALateHcaIfRequired) {
  lay_out(rails(2), root_.path());
  const std::string link = root_ / "sys/class/infiniband/mlx5_1";
  const std::string aside = root_ / "sys/class/mlx5_1";
  fs::rename(link, aside);
  options_.policy.require = 2;
  soon([&] { fs::rename(aside, link); });
  EXPECT_FALSE(resolve().decision.refusal);
}

TEST_F(Resolve, NamesTheResourceThatNeverAppears) {
  lay_out(rails(1), root_.path());
  options_.policy.require = 2;
  options_.wait_seconds = 0.05;
  EXPECT_TRUE(resolve().decision.refusal);
}

// A wait of thirty seconds would be visible: no resource is pending here.
TEST_F(Resolve, DoesNotWaitIfNothingIsPending) {
  lay_out(rails(2), root_.path());
  fs::remove(root_ / kGid);
  EXPECT_EQ(resolve().decision.status, Status::kOkWarn) << "one of two equal rails is not used";
  options_.policy.require = 3;
  options_.wait_seconds = 0;
  EXPECT_TRUE(resolve().decision.refusal);
}

TEST_F(Resolve, ReadsCompleteTablesIfTheDecisionNeedsThem) {
  lay_out(rails(2), root_.path(), {.full = true});
  const auto resolved = resolve({"NCCL_IB_GID_INDEX=200"});
  EXPECT_EQ(resolved.decision.kept.at("NCCL_IB_GID_INDEX").problem,
            "GID 200 of mlx5_0:1 is empty, not a RoCE v2 address of this network namespace");
  EXPECT_FALSE(resolved.decision.needs_full && !resolved.inventory.hcas[0].ports[0].gids_complete);
}

TEST_F(Resolve, ReadsSkippedSlotsIfTheDecisionSimulatesNccl) {
  lay_out(rails(2), root_.path());
  const auto usual = resolve();
  EXPECT_FALSE(usual.decision.needs_skipped);
  EXPECT_TRUE(usual.inventory.hcas[1].ports[0].gids_skipped);
  EXPECT_EQ(usual.decision.ports.at(1).gid_index, 3U);
  const auto simulated = resolve({"NCCL_IB_GID_INDEX=-1"});
  EXPECT_FALSE(simulated.decision.needs_skipped);
  EXPECT_FALSE(simulated.inventory.hcas[1].ports[0].gids_skipped);
  EXPECT_EQ(simulated.decision.ports.at(1).gid_index, 3U);
}

TEST_F(Resolve, ReadsConfFilesBelowTheRoot) {
  lay_out(rails(2), root_.path());
  test_support::write_file(root_ / "etc/nccl.conf", "NCCL_IB_HCA==mlx5_1\n");
  test_support::write_file(root_ / "etc/other.conf", "NCCL_IB_HCA==mlx5_0\n");
  EXPECT_EQ(resolve().decision.kept.at("NCCL_IB_HCA").source, "/etc/nccl.conf");
  EXPECT_EQ(resolve({"NCCL_CONF_FILE=/etc/other.conf"}).decision.kept.at("NCCL_IB_HCA").source, "/etc/other.conf");
  EXPECT_EQ(resolve({"NCCL_IB_HCA==mlx5_1"}).decision.kept.at("NCCL_IB_HCA").source, "environment");
}

TEST_F(Resolve, ReadsTheFilesOfRcclAfterThoseOfNccl) {
  lay_out(rails(2), root_.path());
  test_support::write_file(root_ / "etc/rccl.conf", "NCCL_IB_HCA==mlx5_1\nNCCL_IB_TC=104\n");
  EXPECT_EQ(resolve().decision.kept.at("NCCL_IB_HCA").source, "/etc/rccl.conf");
  test_support::write_file(root_ / "etc/nccl.conf", "NCCL_IB_HCA==mlx5_0\n");
  const auto resolved = resolve({"NCCL_IB_SL=1"});
  EXPECT_EQ(resolved.decision.kept.at("NCCL_IB_HCA").source, "/etc/nccl.conf");
  EXPECT_EQ(resolved.decision.kept.at("NCCL_IB_TC").source, "/etc/rccl.conf");
}

TEST_F(Resolve, SetsTheTopologyFileOfTheNodeIfItIsThere) {
  lay_out(rails(2), root_.path());
  const std::string file = "/run/rdma-init/topology/topology.xml";
  ASSERT_EQ(setenv("RDMA_INIT_SITE", ("NCCL_IB_TC=106;NCCL_TOPO_FILE=" + file).c_str(), 1), 0);
  const auto without = resolve().decision;
  test_support::write_file(root_ / file.substr(1), "<system/>");
  const auto with = resolve().decision;
  ASSERT_EQ(unsetenv("RDMA_INIT_SITE"), 0);
  EXPECT_FALSE(without.kept.contains("NCCL_TOPO_FILE"));
  EXPECT_EQ(without.kept.at("NCCL_IB_TC").value, "106");
  EXPECT_EQ(lines_of(without.warnings), std::vector<std::string>{"NCCL_TOPO_FILE=" + file +
                                                                 " (config.json of the node) is not set: No such file "
                                                                 "or directory"});
  EXPECT_EQ(with.kept.at("NCCL_TOPO_FILE").value, file);
  EXPECT_TRUE(with.warnings.empty());
}

TEST_F(Resolve, ReadsTheFilesOfTheHomeThatTheVersionUses) {
  const char* home = getenv("HOME");
  const std::string former = home ? home : "";
  ASSERT_EQ(setenv("HOME", "/a", 1), 0);
  lay_out(rails(2), root_.path());
  test_support::write_file(root_ / "a/.nccl.conf", "NCCL_IB_TC=1\n");
  const auto warnings = [&](std::vector<const char*> environment) {
    return lines_of(resolve(environment).decision.warnings);
  };
  EXPECT_NE(warnings({}).at(0).find("in the home of /etc/passwd (none), later versions only in $HOME (/a)"),
            std::string::npos);
  test_support::write_file(root_ / "etc/passwd", "u:x:" + std::to_string(getuid()) + ":0::/b:/bin/sh\n");
  test_support::write_file(root_ / "b/.nccl.conf", "NCCL_IB_TC=2\nNCCL_IB_SL=2\n");
  const auto unknown = resolve();
  EXPECT_EQ(unknown.decision.kept.at("NCCL_IB_TC").value, "1");
  EXPECT_EQ(unknown.decision.kept.at("NCCL_IB_SL").value, "2") << "an export would override this value for NCCL 2.29";
  ASSERT_EQ(unknown.decision.warnings.size(), 1U);
  EXPECT_EQ(
      unknown.decision.warnings[0].message,
      "/a/.nccl.conf, /b/.nccl.conf: NCCL before 2.30 reads such a file only in the home of /etc/passwd (/b), later "
      "versions only in $HOME (/a); remedy: name the file in NCCL_CONF_FILE, or the version with --nccl-version");
  const auto known = [&](const char* version) { return resolve({version}).decision; };
  EXPECT_EQ(known("NCCL_VERSION=2.29.7-1").kept.at("NCCL_IB_TC").value, "2");
  EXPECT_EQ(known("NCCL_VERSION=2.30.4-1").kept.at("NCCL_IB_TC").value, "1");
  EXPECT_FALSE(known("NCCL_VERSION=2.30.4-1").kept.contains("NCCL_IB_SL"));
  EXPECT_TRUE(known("NCCL_VERSION=2.29.7-1").warnings.empty());
  options_.policy.nccl_version = nccl::Version{2, 30, 0};
  EXPECT_EQ(known("NCCL_VERSION=2.29.7-1").kept.at("NCCL_IB_TC").value, "1");
  options_.policy.nccl_version.reset();
  ASSERT_EQ(setenv("HOME", "/b", 1), 0);
  EXPECT_TRUE(warnings({}).empty());
  ASSERT_EQ(home ? setenv("HOME", former.c_str(), 1) : unsetenv("HOME"), 0);
}

TEST_F(Resolve, UsesTheSettingsOfTheSnapshot) {
  test_support::write_file(root_ / "s.json", R"({"env": {"NCCL_IB_HCA": "=x"},
    "conf": {"/etc/nccl.conf": "NCCL_IB_TC=1\nNCCL_IB_SL=1\n", "/home/u/.nccl.conf": "NCCL_IB_TC=2\n",
    "/etc/rccl.conf": "NCCL_IB_SL=5\nNCCL_NET=IB\n", "/home/u/.rccl.conf": "NCCL_NET=Socket\n"}})");
  options_.snapshot = root_ / "s.json";
  const auto resolved = resolve({"NCCL_IB_HCA==mine", "NCCL_IB_PKEY=3"});
  EXPECT_EQ(resolved.settings.at("NCCL_IB_HCA").value, "=x");
  EXPECT_EQ(resolved.settings.at("NCCL_IB_TC").source, "/home/u/.nccl.conf");
  EXPECT_EQ(resolved.settings.at("NCCL_IB_SL").source, "/etc/nccl.conf");
  EXPECT_EQ(resolved.settings.at("NCCL_NET").source, "/home/u/.rccl.conf");
  EXPECT_FALSE(resolved.settings.contains("NCCL_IB_PKEY"))
      << "the environment of this process belongs to another machine";
}

}  // namespace
