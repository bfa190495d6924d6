#include "init/environ.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "support/temp_dir.hpp"

namespace init {
namespace {

// Returns the variables as lines NAME=value.
std::string shown_variables(std::string_view text) {
  std::string lines;
  for (const auto& [name, value] : parse_environ(text))
    lines += name + "=" + value + "\n";
  return lines;
}

TEST(Environ, ReadsLinesAsEnrootDoes) {
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"", ""},
      {"A=1\nB=2", "A=1\nB=2\n"},
      {"B=1\nA=1\nA=2\n", "A=2\nB=1\n"},
      {" \t A=1\n", "A=1\n"},
      {"A=\n", "A=\n"},
      {"NCCL_IB_HCA==mlx5_0:1\n", "NCCL_IB_HCA==mlx5_0:1\n"},
      {"#A=1\nA\n=1\n9=1\nA-B=1\nA =1\n\n", ""},
      {"ENROOT_ROOTFS=/\nENROOTED=1\n", "ENROOTED=1\n"},
      {"A=\"a b\"\nB='b'\nC=\"c' \n", "A=a b\nB=b\nC=c\n"},
      {"A=\"\nB=\"b\nC=c\"\nD=\"\"\nE= e \n", "A=\"\nB=\"b\nC=c\"\nD=\nE= e \n"},
      {std::string_view("A=1\0B\nC=1", 9), "C=1\n"}};
  for (const auto& [text, expected] : rows)
    EXPECT_EQ(shown_variables(text), expected) << text;
}

TEST(Environ, RefusesAFileThatIsNotRegular) {
  for (const char* path : {"/dev/zero", "/nonexistent", "/tmp"}) {
    const auto loaded = load_environ(path);
    ASSERT_FALSE(loaded) << path;
    EXPECT_NE(loaded.error().message.find(std::string("`") + path + "`"), std::string::npos) << loaded.error().message;
  }
}

TEST(Environ, ReturnsVariablesOfTheJobThatTheFileLacks) {
  const test_support::TempDir directory;
  const std::string path = directory.path() + "/environment";
  test_support::write_file(path, "NCCL_IB_TC=1\n");
  const char* job[] = {"PATH=/bin", "NCCL_IB_TC=2", "NCCL_IB_SL=3",         "NCCL_DEBUG=",         "UCX_TLS=it's",
                       "HOME=/",    "A=1",          "NCCL_DEBUG_FILE=a\nb", "RDMA_INIT_LOG=quiet", nullptr};
  char** const before = environ;
  environ = const_cast<char**>(job);
  const auto loaded = load_environ(path);
  environ = before;
  ASSERT_TRUE(loaded);
  EXPECT_EQ(*loaded, (Variables{{"NCCL_IB_SL", "3"}, {"RDMA_INIT_LOG", "quiet"}}));
}

TEST(Environ, HidesTheNoteOfTheContainerInWhichTheJobBegan) {
  const test_support::TempDir directory;
  const std::string path = directory.path() + "/environment";
  const auto load = [&](const char* text) {
    test_support::write_file(path, text);
    const char* job[] = {"RDMA_INIT_NOTE=job", nullptr};
    char** const before = environ;
    environ = const_cast<char**>(job);
    const auto loaded = load_environ(path);
    environ = before;
    return loaded ? *loaded : Variables{{"not", "loaded"}};
  };
  EXPECT_EQ(load(""), (Variables{{"RDMA_INIT_NOTE", ""}}));
  EXPECT_EQ(load("RDMA_INIT_NOTE=file\n"), Variables());
}

}  // namespace
}  // namespace init
