// Settings of a netdev below a directory that is like its directory in sysfs.
#include "hook/rails/netlink/netdev_settings.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/temp_dir.hpp"

namespace hook {
namespace {

using fabric::sysfs::Directory;
using Strings = std::vector<std::string>;

class SysfsSettingsTest : public testing::Test {
 protected:
  SysfsSettingsTest() {
    write("threaded", "0");
    write("gro_flush_timeout", "20000");
    write("napi_defer_hard_irqs", "2");
    for (const char* queue : {"0", "1", "2"}) {
      write(fmt::format("queues/rx-{}/rps_cpus", queue), "00000000,0000000c");
      write(fmt::format("queues/rx-{}/rps_flow_cnt", queue), "256");
    }
    write("queues/tx-0/xps_cpus", "00000001,00000000");
  }

  void write(const std::string& path, const std::string& value) {
    test_support::write_file(directory_ / path, value + "\n");
  }
  std::string text(const std::string& path) { return test_support::read_file(directory_ / path); }
  SysfsSettings read() { return read_sysfs_settings(*Directory::open(directory_.path()), "eth0", warnings_); }
  Strings restore(const SysfsSettings& before) {
    return restore_sysfs_settings(*Directory::open(directory_.path()), "eth0", before);
  }

  test_support::TempDir directory_;
  Strings warnings_;
};

const SysfsSettings kAsWritten{{{"0"}, {"20000"}, {"2"}, {"c", "c", "c"}, {"256", "256", "256"}, {"1,00000000"}}};

TEST_F(SysfsSettingsTest, ReadsEveryQueue) {
  EXPECT_EQ(read(), kAsWritten);
  EXPECT_EQ(warnings_, Strings());
}

TEST_F(SysfsSettingsTest, LeavesOutSettingsThatTheKernelDoesNotHave) {
  std::filesystem::remove_all(directory_ / "queues");
  std::filesystem::remove(directory_ / "napi_defer_hard_irqs");
  EXPECT_EQ(read(), (SysfsSettings{{{"0"}, {"20000"}, {}, {}, {}, {}}}));
  EXPECT_EQ(warnings_, Strings());
  EXPECT_EQ(restore(read()), Strings());
}

TEST_F(SysfsSettingsTest, WarnsAboutASettingThatCannotBeRead) {
  std::filesystem::remove(directory_ / "queues/rx-1/rps_cpus");
  std::filesystem::create_directory(directory_ / "queues/rx-1/rps_cpus");
  EXPECT_EQ(read()[3], Strings());
  EXPECT_EQ(read()[4].size(), 3U);
  ASSERT_FALSE(warnings_.empty());
  EXPECT_EQ(warnings_[0],
            "cannot read `queues/rx-1/rps_cpus` of `eth0`: Is a directory: what a container changes of it stays");
}

TEST_F(SysfsSettingsTest, RestoresWhatDiffers) {
  write("threaded", "1");
  write("queues/rx-2/rps_cpus", "00000000,00000000");
  write("queues/tx-0/xps_cpus", "00000000,00000001");
  EXPECT_EQ(restore(kAsWritten), Strings());
  EXPECT_EQ(read(), kAsWritten);
  EXPECT_EQ(text("queues/rx-0/rps_cpus"), "00000000,0000000c\n") << "was right already";
}

// A container may have changed the number of channels.
TEST_F(SysfsSettingsTest, QueueThatWasNotThereBeforeGetsNoValue) {
  write("queues/rx-3/rps_cpus", "00000000,0000000f");
  EXPECT_EQ(restore(kAsWritten), Strings());
  EXPECT_EQ(read()[3], (Strings{"c", "c", "c", "0"}));
}

TEST_F(SysfsSettingsTest, ReportsAQueueThatIsGoneOncePerSetting) {
  std::filesystem::remove_all(directory_ / "queues/rx-1");
  std::filesystem::remove_all(directory_ / "queues/rx-2");
  EXPECT_EQ(restore(kAsWritten),
            (Strings{"cannot restore `queues/rx-1/rps_cpus` of `eth0`: No such file or directory; `echo c > "
                     "/sys/class/net/eth0/queues/rx-1/rps_cpus`",
                     "cannot restore `queues/rx-1/rps_flow_cnt` of `eth0`: No such file or directory; `echo 256 > "
                     "/sys/class/net/eth0/queues/rx-1/rps_flow_cnt`"}));
}

TEST(SysfsSettings, ValuesOfARecordAreChecked) {
  for (const char* good : {"0", "20000", "ffffffff,00000000"})
    EXPECT_TRUE(is_sysfs_value(good)) << good;
  for (const char* bad : {"", "../x", "1\n", "-1", "x"})
    EXPECT_FALSE(is_sysfs_value(bad)) << bad;
}

}  // namespace
}  // namespace hook
