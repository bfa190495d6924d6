// FileEvents: each change in a directory is an event.
#include "shim/kubelet/file_events.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace shim {
namespace {

class FileEventsTest : public testing::Test {
 protected:
  // Returns true if there is an event. inotify(7) queues an event before the call that causes it returns.
  bool has_event() { return events_.take(); }
  test_support::TempDir temp_;
  FileEvents events_;
};

TEST_F(FileEventsTest, ReportsChangesInDirectory) {
  const std::string file = temp_ / "config.json";
  ASSERT_TRUE(events_.watch({temp_ / "."}));
  EXPECT_FALSE(has_event());
  test_support::write_file(file, "{}");
  EXPECT_TRUE(has_event());
  EXPECT_FALSE(has_event());
  test_support::write_file(file, "{ }");
  EXPECT_TRUE(has_event());
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  EXPECT_TRUE(has_event());
  std::filesystem::rename(file, file + "2");
  EXPECT_TRUE(has_event());
  std::filesystem::remove(file + "2");
  EXPECT_TRUE(has_event());
}

TEST_F(FileEventsTest, ReportsMissingDirectoryWhenItIsMade) {
  const std::string directory = temp_ / "conf.d";
  ASSERT_TRUE(events_.watch({directory}));
  std::filesystem::create_directory(directory);
  EXPECT_TRUE(has_event());
  ASSERT_TRUE(events_.watch({directory}));
  test_support::write_file(directory + "/a.json", "{}");
  EXPECT_TRUE(has_event());
}

TEST_F(FileEventsTest, ReportsThatNothingIsWatched) {
  EXPECT_FALSE(events_.watch({temp_ / "missing/conf.d"}));
  EXPECT_TRUE(events_.watch({temp_ / "."}));
}

}  // namespace
}  // namespace shim
