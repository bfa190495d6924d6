#include "base/replace_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "support/temp_dir.hpp"

namespace {

using namespace base;
using namespace test_support;

class ReplaceFile : public testing::Test {
 protected:
  NameAt at(const char* name) const { return {AT_FDCWD, dir_ / name}; }
  std::size_t entries() const {
    const std::filesystem::directory_iterator all(dir_.path());
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  mode_t mode_of(const char* name) const {
    struct stat status {};
    EXPECT_EQ(::stat((dir_ / name).c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  TempDir dir_;
};

TEST_F(ReplaceFile, ReplacesTextAndModeWhateverTheUmask) {
  const mode_t before = ::umask(077);
  write_file(dir_ / "file", "old");
  EXPECT_FALSE(replace_file(at("new"), at("file"), "text", {.mode = 0644, .is_synced = true}));
  ::umask(before);
  EXPECT_EQ(read_file(dir_ / "file"), "text");
  EXPECT_EQ(mode_of("file"), 0644U);
  EXPECT_EQ(entries(), 1U);
  EXPECT_FALSE(replace_file(at("new"), at("file"), "text"));
  EXPECT_EQ(mode_of("file"), 0600U);
}

TEST_F(ReplaceFile, ReplacesTheTemporaryOfAKilledProcessButFollowsNoLink) {
  write_file(dir_ / "foreign", "foreign");
  ASSERT_EQ(::symlink("foreign", (dir_ / "new").c_str()), 0);
  EXPECT_FALSE(replace_file(at("new"), at("file"), "text"));
  EXPECT_EQ(read_file(dir_ / "foreign"), "foreign");
  EXPECT_EQ(read_file(dir_ / "file"), "text");
}

TEST_F(ReplaceFile, NamesTheStepThatFailedAndLeavesNoTemporary) {
  const auto failed = replace_file(at("missing/new"), at("file"), "text");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->step, FileFailure::Step::kCreate);
  EXPECT_EQ(failed->code, ENOENT);
  ASSERT_EQ(::mkdir((dir_ / "directory").c_str(), 0700), 0);
  const auto renamed = replace_file(at("new"), at("directory"), "text");
  ASSERT_TRUE(renamed);
  EXPECT_EQ(renamed->step, FileFailure::Step::kRename);
  EXPECT_EQ(renamed->code, EISDIR);
  EXPECT_EQ(entries(), 1U);
  EXPECT_EQ(replace_file(at("directory"), at("file"), "text")->step, FileFailure::Step::kCreate)
      << "a directory is not removed";
}

TEST_F(ReplaceFile, RemovesANewFileThatIsNeitherPutNorKept) {
  NewFile::write(at("new"), "text");
  EXPECT_EQ(entries(), 0U);
  EXPECT_TRUE(NewFile::write(at("new"), "text").keep().ok());
  EXPECT_EQ(read_file(dir_ / "new"), "text");
}

TEST_F(ReplaceFile, ReplacesALinkAndRemovesItsTemporaryAfterAnError) {
  const auto target = [&] { return std::filesystem::read_symlink(dir_ / "link").string(); };
  ASSERT_EQ(::symlink("left", (dir_ / "new").c_str()), 0);
  EXPECT_EQ(replace_link(at("new"), at("link"), "first"), 0);
  EXPECT_EQ(replace_link(at("new"), at("link"), "second"), 0);
  EXPECT_EQ(target(), "second");
  ASSERT_EQ(::mkdir((dir_ / "directory").c_str(), 0700), 0);
  EXPECT_EQ(replace_link(at("new"), at("directory"), "third"), EISDIR);
  EXPECT_EQ(replace_link(at("new"), at("missing/link"), "third"), ENOENT);
  EXPECT_EQ(entries(), 2U);
}

}  // namespace
