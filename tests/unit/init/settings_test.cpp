#include "init/settings.hpp"
#include "base/rooted.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "support/lines_of.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace init;
using namespace test_support;
using Problems = std::vector<std::string>;

Settings from_environment(std::vector<const char*> entries) {
  entries.push_back(nullptr);
  Settings settings;
  init::add_environment(entries.data(), settings);
  return settings;
}

std::string value_of(const Settings& settings, const char* name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "(unset)" : found->second.value;
}

TEST(NcclConf, ReadsLinesAsNcclDoes) {
  const struct {
    const char *name, *text, *variable, *value;
  } rows[] = {{"plain", "NCCL_DEBUG=INFO\n", "NCCL_DEBUG", "INFO"},
              {"no final newline", "NCCL_DEBUG=INFO", "NCCL_DEBUG", "INFO"},
              {"value begins with =", "NCCL_IB_HCA==mlx5_0\n", "NCCL_IB_HCA", "=mlx5_0"},
              {"CR", "NCCL_DEBUG=INFO\r\n", "NCCL_DEBUG", "INFO"},
              {"no trimming", "NCCL_DEBUG= INFO \n", "NCCL_DEBUG", " INFO "},
              {"no trimming of the name", " NCCL_DEBUG=INFO\n", "NCCL_DEBUG", "(unset)"},
              {"no quotes", "NCCL_DEBUG=\"INFO\"\n", "NCCL_DEBUG", "\"INFO\""},
              {"comment", "#NCCL_DEBUG=INFO\n", "NCCL_DEBUG", "(unset)"},
              {"a comment after a value is part of the value", "NCCL_DEBUG=INFO # x\n", "NCCL_DEBUG", "INFO # x"},
              {"no equals sign", "NCCL_DEBUG\n", "NCCL_DEBUG", "(unset)"},
              {"empty value", "NCCL_DEBUG=\n", "NCCL_DEBUG", ""},
              {"the first of two", "NCCL_DEBUG=A\nNCCL_DEBUG=B\n", "NCCL_DEBUG", "A"},
              {"not NCCL's", "LD_PRELOAD=x\n", "LD_PRELOAD", "(unset)"},
              {"empty lines", "\n\r\n\nNCCL_DEBUG=A\n", "NCCL_DEBUG", "A"}};
  for (const auto& row : rows) {
    Settings settings;
    add_conf(row.text, "/etc/nccl.conf", settings);
    EXPECT_EQ(value_of(settings, row.variable), row.value) << row.name;
  }
}

TEST(NcclConf, ConfLinesKeepsOnlyLinesThatAddConfReads) {
  EXPECT_EQ(init::conf_lines("HF_TOKEN=secret\n#NCCL_A=1\nNCCL_B=2\r\n words\nNCCL_C\nNCCL_D==x"),
            "NCCL_B=2\r\nNCCL_D==x\n");
  EXPECT_EQ(init::conf_lines(""), "");
}

TEST(NcclConf, PrefersTheEnvironmentThenTheFirstFile) {
  Settings settings = from_environment({"NCCL_A=env", "NCCL_D="});
  add_conf("NCCL_A=user\nNCCL_B=user\n", "/root/.nccl.conf", settings);
  add_conf("NCCL_A=system\nNCCL_B=system\nNCCL_C=system\nNCCL_D=system\n", "/etc/nccl.conf", settings);
  EXPECT_EQ(value_of(settings, "NCCL_A"), "env");
  EXPECT_EQ(value_of(settings, "NCCL_B"), "user");
  EXPECT_EQ(value_of(settings, "NCCL_C"), "system");
  EXPECT_EQ(value_of(settings, "NCCL_D"), "") << "an empty variable counts as set for NCCL";
  EXPECT_EQ(settings.at("NCCL_A").source, "environment");
  EXPECT_EQ(settings.at("NCCL_B").source, "/root/.nccl.conf");
}

TEST(NcclConf, KeepsOnlyLibraryVariablesOfTheEnvironment) {
  const Settings settings = from_environment({"PATH=/bin", "NCCL_DEBUG=INFO", "NCCL_NOEQUALS", "UCX_TLS=rc", "=odd",
                                              "NVSHMEM_X=1", "NCCL_DEBUG=second", "MC_GID_INDEX=3"});
  EXPECT_EQ(settings.size(), 4U);
  EXPECT_EQ(value_of(settings, "NCCL_DEBUG"), "INFO") << "getenv() returns the first entry";
  EXPECT_EQ(value_of(settings, "MC_GID_INDEX"), "3");
}

TEST(NcclConf, ReadsAMillionLinesAndBinaryData) {
  std::string text;
  for (int i = 0; i < 1000000; ++i)
    text += "NCCL_X" + std::to_string(i % 5000) + "=" + std::to_string(i) + "\n";
  Settings settings;
  add_conf(text + "NCCL_LAST=1", "/etc/nccl.conf", settings);
  EXPECT_EQ(settings.size(), 5001U);
  EXPECT_EQ(value_of(settings, "NCCL_X1"), "1");
  EXPECT_EQ(value_of(settings, "NCCL_LAST"), "1");
  std::string rubbish(100000, '\0');
  for (std::size_t i = 0; i < rubbish.size(); ++i)
    rubbish[i] = static_cast<char>(i * 131 % 256);
  add_conf(rubbish + "\nNCCL_A=1\n", "x", settings);
  EXPECT_EQ(value_of(settings, "NCCL_A"), "1");
}

TEST(ConfPaths, FollowTheVariableAndTheHome) {
  using Paths = std::vector<std::string>;
  const Paths of_root = {"/root/.nccl.conf", "/etc/nccl.conf", "/root/.rccl.conf", "/etc/rccl.conf"};
  EXPECT_EQ(init::conf_paths({}, {"/root"}), of_root);
  EXPECT_EQ(init::conf_paths({}, {}), (Paths{"/etc/nccl.conf", "/etc/rccl.conf"}));
  EXPECT_EQ(init::conf_paths({}, {"/a", "/b"}), (Paths{"/a/.nccl.conf", "/b/.nccl.conf", "/etc/nccl.conf",
                                                       "/a/.rccl.conf", "/b/.rccl.conf", "/etc/rccl.conf"}));
  EXPECT_EQ(init::conf_paths(from_environment({"NCCL_CONF_FILE=/x"}), {"/root"}),
            (Paths{"/x", "/etc/nccl.conf", "/etc/rccl.conf"}));
  EXPECT_EQ(init::conf_paths(from_environment({"NCCL_CONF_FILE="}), {"/root"}), of_root);
}

TEST(ConfHomes, FollowTheVersion) {
  using Homes = std::vector<std::string>;
  const nccl::Version old{2, 29, 7};
  const nccl::Version fresh{2, 30, 3};
  EXPECT_EQ(init::conf_homes(old, "/home", "/passwd"), Homes{"/passwd"});
  EXPECT_EQ(init::conf_homes(fresh, "/home", "/passwd"), Homes{"/home"});
  EXPECT_EQ(init::conf_homes({}, "/home", "/passwd"), (Homes{"/home", "/passwd"}));
  EXPECT_EQ(init::conf_homes({}, "/root", "/root"), Homes{"/root"});
  EXPECT_EQ(init::conf_homes(old, "/root", "/root"), Homes{"/root"});
  EXPECT_EQ(init::conf_homes({}, "", "/passwd"), Homes{"/passwd"});
  EXPECT_EQ(init::conf_homes({}, "/home", ""), Homes{"/home"});
  EXPECT_EQ(init::conf_homes(old, "/home", ""), Homes{});
}

TEST(PasswdHome, IsThatOfTheFirstEntryOfTheUser) {
  const char* text =
      "root:x:0:0:root:/root:/bin/sh\n#x:x:5:5::/no:\nbad:x:7\nu:x:1000:1000:,,:/home/u:\nv:x:1000:1::/v:\n"
      "w:x:8:8::/w";
  EXPECT_EQ(init::passwd_home(text, 0), "/root");
  EXPECT_EQ(init::passwd_home(text, 1000), "/home/u");
  EXPECT_EQ(init::passwd_home(text, 8), "/w");
  for (const uid_t user : {1U, 7U, 100U, 10001U})
    EXPECT_EQ(init::passwd_home(text, user), "") << user;
  EXPECT_EQ(init::passwd_home("", 0), "");
}

TEST(NcclConf, CutsLongValuesAsNcclDoes) {
  const std::string fits(1023, 'x');
  Settings settings = from_environment({"NCCL_ENV=e"});
  add_conf(
      "NCCL_FITS=" + fits + "\r\nNCCL_LONG=" + fits + "y\nNCCL_CR=" + fits.substr(1) + "\r\nNCCL_ENV=" + fits + "z",
      "/etc/rccl.conf", settings);
  EXPECT_EQ(settings.at("NCCL_FITS").value, fits);
  EXPECT_EQ(settings.at("NCCL_LONG").value, fits);
  EXPECT_FALSE(settings.at("NCCL_FITS").had_cr) << "the buffer has no room for the CR";
  EXPECT_TRUE(settings.at("NCCL_CR").had_cr);
  EXPECT_EQ(lines_of(init::cut_values(settings)),
            Problems{"NCCL_LONG (/etc/rccl.conf): NCCL reads only the first 1023 bytes of "
                     "this value; the environment has no such limit"});
}

TEST(ReadConfFiles, SkipsMissingFiles) {
  const TempDir root;
  write_file(root / "etc/nccl.conf", "NCCL_A=1\n");
  ASSERT_EQ(mkfifo((root / "fifo.conf").c_str(), 0600), 0);
  const auto [paths, files, problems] =
      init::read_conf_files({}, {"/root/.nccl.conf", "/etc", "/fifo.conf", "/etc/nccl.conf"}, root.path());
  EXPECT_EQ(files.at("/etc/nccl.conf"), "NCCL_A=1\n");
  EXPECT_FALSE(files.contains("/root/.nccl.conf"));
  EXPECT_FALSE(files.contains("/etc"));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0], "/etc: is no regular file; its values are unknown");
  EXPECT_EQ(problems[1], "/fifo.conf: is no regular file; its values are unknown");
}

TEST(ReadConfFiles, ReportsAnUnreadableNamedFile) {
  const TempDir root;
  const Settings settings = {{"NCCL_CONF_FILE", {"/none.conf", "environment"}}};
  auto problems = init::read_conf_files(settings, init::conf_paths(settings, {}), root.path()).problems;
  ASSERT_EQ(problems.size(), 1U) << "/etc/nccl.conf is optional";
  EXPECT_EQ(problems[0], "NCCL_CONF_FILE=/none.conf: No such file or directory; its values are unknown");
  write_file(root / "none.conf", "");
  ASSERT_EQ(::truncate((root / "none.conf").c_str(), (64 << 20) + 1), 0);
  problems = init::read_conf_files(settings, {"/none.conf"}, root.path()).problems;
  EXPECT_NE(problems.back().find("has more than 64 MiB"), std::string::npos) << problems.back();
}

// Variables that a site sets: the lines and files that are used.

std::string values(const Settings& settings) {
  std::string text;
  for (const auto& [name, setting] : settings)
    text += name + "=" + setting.value + ";";
  return text;
}

TEST(SitePolicy, SetsLibraryVariablesOnly) {
  SitePolicy policy;
  init::add_policy(
      "# comment\n\nNCCL_IB_TC=106\r\nUCX_TLS=rc,self\nNCCL_IB_HCA==mlx5_0\nNCCL_IB_TC=1\nPATH=/x\nLD_PRELOAD=x\n"
      "RDMA_INIT_LOG=quiet\nwords\nNCCL_A B=1\n=x\nFI_PROVIDER=efa\n",
      "/f", policy);
  EXPECT_EQ(values(policy.settings), "FI_PROVIDER=efa;NCCL_IB_HCA==mlx5_0;NCCL_IB_TC=106;UCX_TLS=rc,self;");
  ASSERT_EQ(policy.problems.size(), 6U);
  EXPECT_EQ(policy.problems[0], "/f:7: PATH belongs to no library whose variables may be set here; not set");
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
  EXPECT_EQ(policy.problems[0], "/f:1: HF_TOKEN belongs to no library whose variables may be set here; not set");
  for (std::size_t i = 1; i < policy.problems.size(); ++i)
    EXPECT_EQ(policy.problems[i],
              "/f:" + std::to_string(i + 1) + ": no NAME=value line of a library's variable; not set");
}

TEST(SitePolicy, SetsOnlyUnsetVariables) {
  SitePolicy policy;
  init::add_policy("NCCL_A=1\nNCCL_B=2\nNCCL_C=3\n", "/f", policy);
  Settings settings = {{"NCCL_A", {"x", "environment"}}, {"NCCL_B", {"", "environment"}}};
  settings = init::with_policy(std::move(settings), policy);
  EXPECT_EQ(values(settings), "NCCL_A=x;NCCL_B=2;NCCL_C=3;");
  EXPECT_FALSE(settings["NCCL_A"].of_policy);
  EXPECT_TRUE(settings["NCCL_B"].of_policy && settings["NCCL_C"].of_policy);
  EXPECT_EQ(settings["NCCL_C"].source, "/f");
}

TEST(SitePolicy, ReadsValuesOfTheNodeOrNone) {
  EXPECT_EQ(values(init::read_node_values("NCCL_IB_TC=106;UCX_IB_SL=3").settings), "NCCL_IB_TC=106;UCX_IB_SL=3;");
  EXPECT_TRUE(init::read_node_values("").problems.empty());
  // The node writes none of these, so an image did.
  for (const char* text : {"NCCL_IB_TC=106;LD_PRELOAD=/x", "NCCL_IB_TC", "NCCL_IB_TC=", "NCCL_IB_TC=1\n2", ";",
                           "RDMA_INIT_HCA=x", "NCCL_IB_TC=1;"}) {
    const SitePolicy policy = init::read_node_values(text);
    EXPECT_TRUE(policy.settings.empty()) << text;
    EXPECT_EQ(policy.problems.size(), 1U) << text;
  }
}

TEST(SitePolicy, NeverReplacesAValueOfTheEnvironment) {
  const std::vector<std::string> names = {"NCCL_IB_TC",   "UCX_IB_SL",    "FI_PROVIDER",   "FI_EFA_X", "OMPI_MCA_btl",
                                          "HCCL_RDMA_TC", "RCCL_SETTING", "NVSHMEM_IB_SL", "MC_IB_TC", "UCCL_IB_TC"};
  for (const std::string& name : names) {
    const Settings settings =
        init::with_policy(from_environment({(name + "=user").c_str()}), init::read_node_values(name + "=site"));
    EXPECT_FALSE(settings.at(name).of_policy) << name;
    EXPECT_EQ(value_of(settings, name.c_str()), "user");
  }
}

TEST(SitePolicy, ReadsTrustedFilesInOrder) {
  const test_support::TempDir root;
  const base::Rooted files(root.path());
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
  EXPECT_EQ(policy.problems[0], "/etc/rdma-init/env.d/30.conf is not a regular file: ignored");
  EXPECT_NE(policy.problems[1].find("40.conf is not a regular file"), std::string::npos);
  EXPECT_NE(policy.problems[2].find("has more than 64 KiB"), std::string::npos);

  ASSERT_EQ(::chmod((root / "etc/rdma-init/env.d/10-a.conf").c_str(), 0666), 0);
  policy = init::read_site_policy(files, "", true);
  EXPECT_NE(policy.problems[0].find("10-a.conf can be written by users other than root and this user"),
            std::string::npos)
      << policy.problems[0];

  write_file(root / "mine", "NCCL_MINE=1\n");
  policy = init::read_site_policy(files, "/mine", true);
  EXPECT_EQ(values(policy.settings), "NCCL_MINE=1;") << "the user named the file, and may set variables in any case";
  ASSERT_EQ(::symlink("mine", (root / "link").c_str()), 0);
  policy = init::read_site_policy(files, "/link", true);
  EXPECT_EQ(values(policy.settings), "NCCL_MINE=1;") << "each file of a mounted ConfigMap is a link";
  policy = init::read_site_policy(files, "/none", true);
  EXPECT_EQ(policy.problems.size(), 1U);
}

TEST(SitePolicy, RefusesSymbolicLinks) {
  const test_support::TempDir root;
  write_file(root / "secrets", "NCCL_A=1\nroot:$6$hash:19000\n");
  write_file(root / "etc/rdma-init/env.d/20.conf", "NCCL_B=2\n");
  ASSERT_EQ(::symlink("/secrets", (root / "etc/rdma-init/env.d/10.conf").c_str()), 0);
  for (const bool only_trusted : {false, true}) {
    const auto policy = init::read_site_policy(base::Rooted(root.path()), "", only_trusted);
    EXPECT_EQ(values(policy.settings), "NCCL_B=2;");
    EXPECT_EQ(policy.problems, Problems{"/etc/rdma-init/env.d/10.conf is a symbolic link: ignored"});
  }
  write_file(root / "opt/10.conf", "NCCL_A=1\n");
  std::filesystem::remove_all(root / "etc/rdma-init/env.d");
  ASSERT_EQ(::symlink("/opt", (root / "etc/rdma-init/env.d").c_str()), 0);
  const auto policy = init::read_site_policy(base::Rooted(root.path()), "", false);
  EXPECT_TRUE(policy.settings.empty());
  EXPECT_EQ(policy.problems, Problems{"/etc/rdma-init/env.d is a symbolic link: ignored"});
}

TEST(SitePolicy, IgnoresAFolderThatOtherUsersCanWrite) {
  const test_support::TempDir root;
  const base::Rooted files(root.path());
  write_file(root / "etc/rdma-init/env.d/10.conf", "NCCL_A=1\n");
  const std::string folder = root / "etc/rdma-init/env.d";
  const auto is_refused = [&] {
    const auto policy = init::read_site_policy(files, "", true);
    return policy.settings.empty() &&
           policy.problems ==
               Problems{"/etc/rdma-init/env.d can be written by users other than root and this user: ignored"};
  };
  EXPECT_FALSE(is_refused());
  for (const mode_t mode : {0775U, 0757U, 01777U}) {
    ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
    EXPECT_TRUE(is_refused()) << mode;
  }
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(folder.c_str(), 1234, 1234), 0);
  EXPECT_TRUE(is_refused()) << "another user owns the file";
}

}  // namespace
