// What of a container matters to a trainer beside its HCAs.
#include <gtest/gtest.h>

#include "init/decision.hpp"
#include "init/surroundings.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"

namespace {

using init::Check;
using init::Surroundings;
using init::Verdict;
using test_support::write_file;

std::vector<Check> check(const fabric::Inventory& node, const Surroundings& around) {
  return init::check_surroundings(node, init::decide(node, {}, {}), around);
}

TEST(SurroundingsCheck, OneFindingEach) {
  struct Row {
    const char* name;
    Surroundings around;
    std::size_t gpus;
    const char* found;  // nullptr: nothing
    Verdict verdict;
    const char* part;
  };
  const auto with = [](auto set) {
    Surroundings around;
    set(around);
    return around;
  };
  const std::vector<Row> rows = {
      {"nothing known", {}, 8, nullptr, Verdict::kGood, ""},
      {"64 MiB", with([](auto& a) { a.shared_memory = 64 << 20; }), 2, "shm", Verdict::kNote, "64 MiB beside 2 GPUs"},
      {"64 MiB for one GPU", with([](auto& a) { a.shared_memory = 64 << 20; }), 1, nullptr, Verdict::kGood, ""},
      {"1 GiB", with([](auto& a) { a.shared_memory = 1 << 30; }), 2, nullptr, Verdict::kGood, ""},
      {"no limit", with([](auto& a) { a.shared_memory = 0; }), 2, nullptr, Verdict::kGood, ""},
      {"few files", with([](auto& a) { a.open_files = a.open_files_hard = 1024; }), 0, "nofile", Verdict::kNote,
       "RLIMIT_NOFILE is 1024"},
      {"many files", with([](auto& a) { a.open_files = 1 << 20; }), 0, nullptr, Verdict::kGood, ""},
      {"no handle", with([](auto& a) { a.rdma_limits["mlx5_0"].handles = 0; }), 0, "rdma.max", Verdict::kBad,
       "mlx5_0 hca_handle=0 hca_object=max: it cannot be opened"},
      {"few objects", with([](auto& a) { a.rdma_limits["mlx5_0"].objects = 100; }), 0, "rdma.max", Verdict::kNote,
       "hca_handle=max hca_object=100"},
      {"many objects", with([](auto& a) { a.rdma_limits["mlx5_0"].objects = 100000; }), 0, nullptr, Verdict::kGood, ""},
      {"another HCA", with([](auto& a) { a.rdma_limits["mlx5_9"].handles = 0; }), 0, nullptr, Verdict::kGood, ""},
      {"seccomp", with([](auto& a) { a.refused = {"ioctl"}; }), 0, "seccomp", Verdict::kBad, "refuses ioctl"},
      {"peermem", with([](auto& a) { a.nvidia = a.peer_memory = true; }), 1, "gpudirect", Verdict::kGood,
       "nvidia_peermem is loaded"},
      {"DMA-BUF", with([](auto& a) { a.nvidia = a.open_module = true, a.kernel = "5.12.0"; }), 1, "gpudirect",
       Verdict::kGood, "by DMA-BUF (Linux 5.12.0"},
      {"too old for DMA-BUF", with([](auto& a) { a.nvidia = a.open_module = true, a.kernel = "5.4.0-150"; }), 1,
       "gpudirect", Verdict::kNote, "no GPUDirect RDMA"},
      {"closed module", with([](auto& a) { a.nvidia = true, a.kernel = "6.1"; }), 1, "gpudirect", Verdict::kNote,
       "through the memory of the host"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    fabric::Inventory node = test_support::rails(1);
    node.gpus.emplace(row.gpus);
    const auto found = check(node, row.around);
    ASSERT_EQ(found.size(), row.found ? 1U : 0U);
    if (!row.found) continue;
    EXPECT_EQ(found[0].name, row.found);
    EXPECT_EQ(found[0].verdict, row.verdict);
    EXPECT_NE(found[0].message.find(row.part), std::string::npos) << found[0].message;
    EXPECT_EQ(found[0].remedy.empty(), row.verdict == Verdict::kGood);
  }
}

TEST(SurroundingsRead, FilesBelowARoot) {
  const test_support::TempDir root;
  write_file(root / "proc/self/cgroup", "0::/pod/trainer\n");
  write_file(root / "sys/fs/cgroup/rdma.max", "mlx5_0 hca_handle=7 hca_object=max\n");
  write_file(root / "sys/fs/cgroup/pod/rdma.max", "mlx5_0 hca_handle=max hca_object=9\nmlx5_1 hca_handle=x\n");
  write_file(root / "sys/fs/cgroup/pod/trainer/rdma.max", "mlx5_0 hca_handle=2 hca_object=2000\n\nmlx5_2\n");
  write_file(root / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64\n");
  write_file(root / "proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  auto around = init::read_surroundings(root.path());
  EXPECT_EQ(around.rdma_limits["mlx5_0"].handles, 2U);
  EXPECT_EQ(around.rdma_limits["mlx5_0"].objects, 9U);
  EXPECT_EQ(around.rdma_limits["mlx5_1"].handles, std::nullopt);
  EXPECT_FALSE(around.rdma_limits.contains("mlx5_2"));
  EXPECT_TRUE(around.nvidia && around.open_module);
  EXPECT_FALSE(around.peer_memory);
  EXPECT_EQ(around.kernel, "6.1.0-18-amd64");
  EXPECT_FALSE(around.shared_memory) << "not of another machine";
  write_file(root / "sys/module/nvidia_peermem/version", "535");
  write_file(root / "proc/self/cgroup", "3:rdma:/a\n2:cpu:/b\n");
  write_file(root / "sys/fs/cgroup/rdma/a/rdma.max", "mlx5_3 hca_handle=1 hca_object=1\n");
  around = init::read_surroundings(root.path());
  EXPECT_TRUE(around.peer_memory);
  EXPECT_EQ(around.rdma_limits["mlx5_3"].objects, 1U);
  EXPECT_FALSE(around.rdma_limits.contains("mlx5_0"));
}

TEST(SurroundingsRead, ThisMachine) {
  const auto around = init::read_surroundings("");
  EXPECT_TRUE(around.open_files);
  EXPECT_TRUE(around.refused.empty()) << "the tests run where both are allowed";
}

}  // namespace
