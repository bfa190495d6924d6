#include "base/proc.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.hpp"
#include "support/temp_dir.hpp"

namespace base {
namespace {

TEST(Proc, ParsesCgroupsOfAProcess) {
  const std::tuple<const char*, const char*, CgroupPaths> rows[] = {
      {"v2", "0::/system.slice/x.scope\n", {std::nullopt, "/system.slice/x.scope"}},
      {"hybrid", "5:devices:/docker/ab\n4:memory:/other\n0::/docker/cd\n", {"/docker/ab", "/docker/cd"}},
      {"v1, joined controllers", "7:cpu,devices,cpuacct:/a\n1:name=systemd:/b\n", {"/a", std::nullopt}},
      {"a longer name", "7:mydevices:/a\n8:devicesx:/b\n", {std::nullopt, std::nullopt}},
      {"rdma of v1", "9:rdma:/docker/ab\n0::/docker/cd\n", {std::nullopt, "/docker/cd", "/docker/ab"}},
      {"colons in the path", "0::/k8s:cri:id\n", {std::nullopt, "/k8s:cri:id"}},
      {"outside the namespace", "0::/../../x\n", {std::nullopt, "/../../x"}},
      {"garbage", "\n::\n0:\n0::\n0::relative\nx\n", {std::nullopt, std::nullopt}}};
  for (const auto& [name, text, expected] : rows)
    EXPECT_EQ(parse_proc_cgroup(text), expected) << name;
}

TEST(Proc, ReadsCgroupsOfAProcess) {
  const auto own = read_proc_cgroup(::getpid());
  const auto read = read_file("/proc/self/cgroup", kMostText);
  ASSERT_TRUE(own);
  EXPECT_EQ(*own, value_or(read, std::string("?")));
  EXPECT_EQ(read_proc_cgroup(0).error().code, ENOENT);
  const test_support::TempDir root;
  test_support::write_file(root / "proc/self/cgroup", "0::/a\n");
  EXPECT_EQ(read_proc_cgroup(root / "proc", "self").value(), "0::/a\n");
}

TEST(Proc, ReadsReleaseBelowARootAndTheNumberOfTheBoot) {
  const test_support::TempDir root;
  EXPECT_EQ(error_of(read_kernel_release(root.path())), ENOENT);
  test_support::write_file(root / "proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  EXPECT_EQ(value_or(read_kernel_release(root.path()), std::string()), "6.1.0-18-amd64");
  EXPECT_EQ(value_or(read_boot_id(), std::string()).size(), 36U);
}

}  // namespace
}  // namespace base
