// Variables that a site sets: which lines and files count.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/rooted.hpp"
#include "init/settings.hpp"
#include "support/temp_dir.hpp"

namespace {

using init::Rooted;
using init::Settings;
using init::SitePolicy;
using test_support::write_file;

std::string values(const Settings& settings) {
  std::string text;
  for (const auto& [name, setting] : settings)
    text += name + "=" + setting.value + ";";
  return text;
}

TEST(SitePolicy, Lines) {
  SitePolicy policy;
  init::add_policy(
      "# comment\n\nNCCL_IB_TC=106\r\nUCX_TLS=rc,self\nNCCL_IB_HCA==mlx5_0\nNCCL_IB_TC=1\nPATH=/x\nLD_PRELOAD=x\n"
      "RDMA_INIT_LOG=quiet\nwords\nNCCL_A B=1\n=x\nFI_PROVIDER=efa\n",
      "/f", policy);
  EXPECT_EQ(values(policy.settings), "FI_PROVIDER=efa;NCCL_IB_HCA==mlx5_0;NCCL_IB_TC=106;UCX_TLS=rc,self;");
  ASSERT_EQ(policy.problems.size(), 6U);
  EXPECT_EQ(policy.problems[0], "/f:7: PATH is no variable of a library that a policy may set; not set");
  EXPECT_EQ(policy.problems[3], "/f:10: no NAME=value line of a library's variable; not set");
  SitePolicy with_null;
  init::add_policy(std::string_view("NCCL_X=a\0b", 10), "/f", with_null);
  EXPECT_TRUE(with_null.settings.empty());
}

TEST(SitePolicy, ProblemsQuoteNoValueAndNoRawLine) {
  SitePolicy policy;
  init::add_policy(
      "HF_TOKEN=hf_secret\nhf_secret\nsecret=\nSECRET234567=\nSECRET23456==\nMIIsecret/+==\n-----BEGIN secret-----\n"
      "export TOKEN=secret\nroot:$6$secret:19000:0:::::\n9SECRET=x\n" +
          std::string(65, 'S') + "=x\n",
      "/f", policy);
  EXPECT_TRUE(policy.settings.empty());
  ASSERT_EQ(policy.problems.size(), 11U);
  EXPECT_EQ(policy.problems[0], "/f:1: HF_TOKEN is no variable of a library that a policy may set; not set");
  for (std::size_t i = 1; i < policy.problems.size(); ++i)
    EXPECT_EQ(policy.problems[i],
              "/f:" + std::to_string(i + 1) + ": no NAME=value line of a library's variable; not set");
}

TEST(SitePolicy, CountsWhereNothingIsSet) {
  SitePolicy policy;
  init::add_policy("NCCL_A=1\nNCCL_B=2\nNCCL_C=3\n", "/f", policy);
  Settings settings = {{"NCCL_A", {"x", "environment"}}, {"NCCL_B", {"", "environment"}}};
  EXPECT_EQ(values(init::apply_policy(policy, settings)), "NCCL_B=2;NCCL_C=3;");
  EXPECT_EQ(values(settings), "NCCL_A=x;NCCL_B=2;NCCL_C=3;");
  EXPECT_EQ(settings["NCCL_C"].source, "/f");
}

TEST(SitePolicy, Files) {
  const test_support::TempDir root;
  const Rooted files(root.path());
  EXPECT_TRUE(init::read_site_policy(files, "", true).problems.empty()) << "no folder";
  write_file(root / "etc/rdma-init/env.d/20-b.conf", "NCCL_A=b\nNCCL_B=b\n");
  write_file(root / "etc/rdma-init/env.d/10-a.conf", "NCCL_A=a\n");
  write_file(root / "etc/rdma-init/env.d/README", "NCCL_Z=1\n");
  auto policy = init::read_site_policy(files, "", false);
  EXPECT_EQ(values(policy.settings), "NCCL_A=a;NCCL_B=b;");
  EXPECT_TRUE(policy.problems.empty());

  ASSERT_EQ(::mkfifo((root / "etc/rdma-init/env.d/30.conf").c_str(), 0644), 0);
  ASSERT_EQ(::mkdir((root / "etc/rdma-init/env.d/40.conf").c_str(), 0755), 0);
  write_file(root / "etc/rdma-init/env.d/50.conf", std::string((64 << 10) + 1, '#'));
  policy = init::read_site_policy(files, "", false);
  EXPECT_EQ(values(policy.settings), "NCCL_A=a;NCCL_B=b;");
  ASSERT_EQ(policy.problems.size(), 3U);
  EXPECT_EQ(policy.problems[0], "/etc/rdma-init/env.d/30.conf is no regular file: nothing of it is set");
  EXPECT_NE(policy.problems[1].find("40.conf is no regular file"), std::string::npos);
  EXPECT_NE(policy.problems[2].find("has more than 64 KiB"), std::string::npos);

  ASSERT_EQ(::chmod((root / "etc/rdma-init/env.d/10-a.conf").c_str(), 0666), 0);
  policy = init::read_site_policy(files, "", true);
  EXPECT_NE(policy.problems[0].find("10-a.conf can be written by others than root and this user"), std::string::npos)
      << policy.problems[0];

  write_file(root / "mine", "NCCL_MINE=1\n");
  policy = init::read_site_policy(files, "/mine", true);
  EXPECT_EQ(values(policy.settings), "NCCL_MINE=1;") << "named by the user, who may set variables anyway";
  ASSERT_EQ(::symlink("mine", (root / "link").c_str()), 0);
  policy = init::read_site_policy(files, "/link", true);
  EXPECT_EQ(values(policy.settings), "NCCL_MINE=1;") << "as each file of a mounted ConfigMap is";
  policy = init::read_site_policy(files, "/none", true);
  EXPECT_EQ(policy.problems.size(), 1U);
}

TEST(SitePolicy, FollowsNoLinkOfTheFolder) {
  const test_support::TempDir root;
  write_file(root / "secrets", "NCCL_A=1\nroot:$6$hash:19000\n");
  write_file(root / "etc/rdma-init/env.d/20.conf", "NCCL_B=2\n");
  ASSERT_EQ(::symlink("/secrets", (root / "etc/rdma-init/env.d/10.conf").c_str()), 0);
  for (const bool only_trusted : {false, true}) {
    const auto policy = init::read_site_policy(Rooted(root.path()), "", only_trusted);
    EXPECT_EQ(values(policy.settings), "NCCL_B=2;");
    ASSERT_EQ(policy.problems.size(), 1U);
    EXPECT_EQ(policy.problems[0], "/etc/rdma-init/env.d/10.conf is a symbolic link: nothing of it is set");
  }
}

TEST(SitePolicy, TakesNothingOfAFolderThatIsALink) {
  const test_support::TempDir root;
  write_file(root / "opt/10.conf", "NCCL_A=1\n");
  write_file(root / "etc/rdma-init/README", "");
  ASSERT_EQ(::symlink("/opt", (root / "etc/rdma-init/env.d").c_str()), 0);
  const auto policy = init::read_site_policy(Rooted(root.path()), "", false);
  EXPECT_TRUE(policy.settings.empty());
  ASSERT_EQ(policy.problems.size(), 1U);
  EXPECT_EQ(policy.problems[0], "/etc/rdma-init/env.d is a symbolic link: nothing of it is set");
}

TEST(SitePolicy, TakesNothingOfAFolderThatOthersCanWriteTo) {
  const test_support::TempDir root;
  const Rooted files(root.path());
  write_file(root / "etc/rdma-init/env.d/10.conf", "NCCL_A=1\n");
  const std::string folder = root / "etc/rdma-init/env.d";
  const auto is_refused = [&] {
    const auto policy = init::read_site_policy(files, "", true);
    return policy.settings.empty() &&
           policy.problems == std::vector<std::string>{
                                  "/etc/rdma-init/env.d can be written by others than root and "
                                  "this user: nothing of it is set"};
  };
  EXPECT_FALSE(is_refused());
  for (const mode_t mode : {0775U, 0757U, 01777U}) {
    ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
    EXPECT_TRUE(is_refused()) << mode;
  }
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(folder.c_str(), 1234, 1234), 0);
  EXPECT_TRUE(is_refused()) << "another user's";
}

}  // namespace
