#include "init/settings.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/temp_dir.hpp"

namespace {

using init::add_conf;
using init::Settings;
using test_support::TempDir;
using test_support::write_file;

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
  struct Row {
    const char* name;
    const char* text;
    const char* variable;
    const char* value;
  };
  const std::vector<Row> rows = {
      {"plain", "NCCL_DEBUG=INFO\n", "NCCL_DEBUG", "INFO"},
      {"no final newline", "NCCL_DEBUG=INFO", "NCCL_DEBUG", "INFO"},
      {"value begins with =", "NCCL_IB_HCA==mlx5_0\n", "NCCL_IB_HCA", "=mlx5_0"},
      {"CR", "NCCL_DEBUG=INFO\r\n", "NCCL_DEBUG", "INFO"},
      {"no trimming", "NCCL_DEBUG= INFO \n", "NCCL_DEBUG", " INFO "},
      {"no trimming of the name", " NCCL_DEBUG=INFO\n", "NCCL_DEBUG", "(unset)"},
      {"no quotes", "NCCL_DEBUG=\"INFO\"\n", "NCCL_DEBUG", "\"INFO\""},
      {"comment", "#NCCL_DEBUG=INFO\n", "NCCL_DEBUG", "(unset)"},
      {"comment behind a value is value", "NCCL_DEBUG=INFO # x\n", "NCCL_DEBUG", "INFO # x"},
      {"no equals sign", "NCCL_DEBUG\n", "NCCL_DEBUG", "(unset)"},
      {"empty value", "NCCL_DEBUG=\n", "NCCL_DEBUG", ""},
      {"the first of two", "NCCL_DEBUG=A\nNCCL_DEBUG=B\n", "NCCL_DEBUG", "A"},
      {"not NCCL's", "LD_PRELOAD=x\n", "LD_PRELOAD", "(unset)"},
      {"empty lines", "\n\r\n\nNCCL_DEBUG=A\n", "NCCL_DEBUG", "A"},
  };
  for (const Row& row : rows) {
    Settings settings;
    add_conf(row.text, "/etc/nccl.conf", settings);
    EXPECT_EQ(value_of(settings, row.variable), row.value) << row.name;
  }
}

TEST(NcclConf, ConfLinesKeepsOnlyWhatAddConfReads) {
  EXPECT_EQ(init::conf_lines("HF_TOKEN=secret\n#NCCL_A=1\nNCCL_B=2\r\n words\nNCCL_C\nNCCL_D==x"),
            "NCCL_B=2\r\nNCCL_D==x\n");
  EXPECT_EQ(init::conf_lines(""), "");
}

TEST(NcclConf, EnvironmentBeatsTheFirstFileBeatsTheSecond) {
  Settings settings = from_environment({"NCCL_A=env"});
  add_conf("NCCL_A=user\nNCCL_B=user\n", "/root/.nccl.conf", settings);
  add_conf("NCCL_A=system\nNCCL_B=system\nNCCL_C=system\n", "/etc/nccl.conf", settings);
  EXPECT_EQ(value_of(settings, "NCCL_A"), "env");
  EXPECT_EQ(value_of(settings, "NCCL_B"), "user");
  EXPECT_EQ(value_of(settings, "NCCL_C"), "system");
  EXPECT_EQ(settings.at("NCCL_A").source, "environment");
  EXPECT_EQ(settings.at("NCCL_B").source, "/root/.nccl.conf");
}

TEST(NcclConf, AnEmptyVariableBeatsTheFile) {
  Settings settings = from_environment({"NCCL_IB_HCA="});
  add_conf("NCCL_IB_HCA==mlx5_0\n", "/etc/nccl.conf", settings);
  EXPECT_EQ(value_of(settings, "NCCL_IB_HCA"), "");
}

TEST(NcclConf, EnvironmentKeepsOnlyWhatConcernsTheLibraries) {
  const Settings settings = from_environment({"PATH=/bin", "NCCL_DEBUG=INFO", "NCCL_NOEQUALS", "UCX_TLS=rc", "=odd",
                                              "NVSHMEM_X=1", "NCCL_DEBUG=second", "MC_GID_INDEX=3"});
  EXPECT_EQ(settings.size(), 4U);
  EXPECT_EQ(value_of(settings, "NCCL_DEBUG"), "INFO") << "getenv() takes the first";
  EXPECT_EQ(value_of(settings, "MC_GID_INDEX"), "3");
}

TEST(NcclConf, AMillionLines) {
  std::string text;
  for (int i = 0; i < 1000000; ++i)
    text += "NCCL_X" + std::to_string(i % 5000) + "=" + std::to_string(i) + "\n";
  Settings settings;
  add_conf(text + "NCCL_LAST=1", "/etc/nccl.conf", settings);
  EXPECT_EQ(settings.size(), 5001U);
  EXPECT_EQ(value_of(settings, "NCCL_X1"), "1");
  EXPECT_EQ(value_of(settings, "NCCL_LAST"), "1");
}

TEST(NcclConf, BinaryRubbishIsHarmless) {
  std::string text(100000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(i * 131 % 256);
  Settings settings;
  add_conf(text + "\nNCCL_A=1\n", "x", settings);
  EXPECT_EQ(value_of(settings, "NCCL_A"), "1");
}

TEST(ConfPaths, FollowTheVariableAndTheHome) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(init::conf_paths({}, "/root"), (Paths{"/root/.nccl.conf", "/etc/nccl.conf"}));
  EXPECT_EQ(init::conf_paths({}, ""), (Paths{"/etc/nccl.conf"}));
  EXPECT_EQ(init::conf_paths(from_environment({"NCCL_CONF_FILE=/x"}), "/root"), (Paths{"/x", "/etc/nccl.conf"}));
  EXPECT_EQ(init::conf_paths(from_environment({"NCCL_CONF_FILE="}), "/root"),
            (Paths{"/root/.nccl.conf", "/etc/nccl.conf"}));
}

TEST(ReadConfFiles, SkipsWhatIsNotThere) {
  const TempDir root;
  write_file(root / "etc/nccl.conf", "NCCL_A=1\n");
  ASSERT_EQ(mkfifo((root / "fifo.conf").c_str(), 0600), 0);
  std::vector<std::string> problems;
  const auto files =
      init::read_conf_files({}, {"/root/.nccl.conf", "/etc", "/fifo.conf", "/etc/nccl.conf"}, root.path(), problems);
  EXPECT_EQ(files.at("/etc/nccl.conf"), "NCCL_A=1\n");
  EXPECT_FALSE(files.contains("/root/.nccl.conf"));
  EXPECT_FALSE(files.contains("/etc"));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0], "/etc: Is a directory; nothing of it is known");
}

TEST(ReadConfFiles, SaysWhatOfTheNamedFileIsNotRead) {
  const TempDir root;
  std::vector<std::string> problems;
  const Settings settings = {{"NCCL_CONF_FILE", {"/none.conf", "environment"}}};
  init::read_conf_files(settings, init::conf_paths(settings, ""), root.path(), problems);
  ASSERT_EQ(problems.size(), 1U) << "/etc/nccl.conf need not be there";
  EXPECT_EQ(problems[0], "NCCL_CONF_FILE=/none.conf: No such file or directory; nothing of it is known");
  write_file(root / "none.conf", "");
  ASSERT_EQ(::truncate((root / "none.conf").c_str(), (64 << 20) + 1), 0);
  init::read_conf_files(settings, {"/none.conf"}, root.path(), problems);
  EXPECT_NE(problems.back().find("has more than 64 MiB"), std::string::npos) << problems.back();
}

}  // namespace
