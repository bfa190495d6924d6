// Trees in the layout of sysfs: reading the GID table of a port, settings of a netdev, the number of a VF.
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/unique_fd.hpp"
#include "hook/rails/add.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/vf.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace fabric;
using base::Directory;
using namespace test_support;
using Strings = std::vector<std::string>;

const Address kOwn = address("10.1.0.2");
const std::string kPort = "class/infiniband/mlx5_0/ports/1/";

class GidTableTree : public testing::Test {
 protected:
  // Makes a table of empty slots as the kernel shows it.
  void make_table(unsigned length) {
    for (unsigned index = 0; index < length; ++index)
      write_gid(index, Address{});
    fs::create_directories(root_ / (kPort + "gid_attrs/types"));
  }
  void write_gid(unsigned index, const Address& gid) {
    write_file(root_ / fmt::format("{}gids/{}", kPort, index), to_gid_string(gid) + "\n");
  }
  void set(unsigned index, const Address& gid, const char* type) {
    write_gid(index, gid);
    write_file(root_ / fmt::format("{}gid_attrs/types/{}", kPort, index), fmt::format("{}\n", type));
  }
  // Makes a table with a link-local and an own address in both types, at 0 and 4.
  void make_usual(unsigned length) {
    make_table(length);
    set(0, address("fe80::1"), "IB/RoCE v1");
    set(1, address("fe80::1"), "RoCE v2");
    set(4, kOwn, "IB/RoCE v1");
    set(5, kOwn, "RoCE v2");
    set(9, address("10.1.0.9"), "RoCE v2");
  }
  Result<GidTable> read(const std::vector<Address>& wanted, unsigned at_least = 0, const std::string& hca = "mlx5_0") {
    const base::UniqueFd sysfs(open(root_.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return read_gid_table(sysfs.get(), hca, 1, wanted, at_least);
  }
  std::string error(const std::vector<Address>& wanted = {kOwn}, const std::string& hca = "mlx5_0") {
    return error_message(read(wanted, 0, hca));
  }

  TempDir root_;
};

TEST_F(GidTableTree, ReadsUpToTheAddress) {
  make_usual(256);
  const auto table = must(read({kOwn}));
  EXPECT_EQ(table.length, 256U);
  EXPECT_EQ(table.read, 6U);
  const std::vector<GidSlot> expected = {
      {0, address("fe80::1"), false}, {1, address("fe80::1"), true}, {4, kOwn, false}, {5, kOwn, true}};
  EXPECT_EQ(table.slots, expected);
  EXPECT_EQ(v2_index(table, kOwn), 5U);
  EXPECT_EQ(gid_types(table), 2U);
}

TEST_F(GidTableTree, ReadsAtLeast) {
  make_usual(16);
  EXPECT_EQ(read({kOwn}, 3)->read, 6U);
  EXPECT_EQ(read({kOwn}, 9)->read, 9U);
  EXPECT_EQ(read({}, 5)->read, 5U);
  EXPECT_EQ(read({}, 0)->read, 0U);
  EXPECT_EQ(read({kOwn, address("10.1.0.9")})->read, 10U);
  EXPECT_EQ(read({kOwn}, 1000)->read, 16U);
  EXPECT_EQ(read({address("10.1.0.77")})->read, 16U) << "to the end";
}

TEST_F(GidTableTree, FindsLengthWithoutReadingAllSlots) {
  for (const unsigned length : {6U, 7U, 8U, 16U, 17U, 128U, 255U, 1024U}) {
    fs::remove_all(root_ / "class");
    make_table(length);
    set(5, kOwn, "RoCE v2");
    EXPECT_EQ(read({kOwn})->length, length);
    EXPECT_EQ(read({})->length, length);
    EXPECT_EQ(*read({}, 5000), *read({}, length));
  }
  fs::remove_all(root_ / "class");
  write_file(root_ / (kPort + "gids/x"), "");
  make_table(0);
  EXPECT_EQ(read({kOwn})->length, 0U);
}

TEST_F(GidTableTree, ReadsGidWithoutTypeAndBehindALink) {
  make_usual(16);
  write_gid(7, address("10.1.0.8"));
  EXPECT_EQ(must(read({}, 8)).slots.back(), (GidSlot{7, address("10.1.0.8"), true})) << "counts as v2";
  // /sys/class has links to HCAs. They work in a detached mount because they are relative.
  fs::create_directories(root_ / "devices/pci0/infiniband");
  fs::rename(root_ / "class/infiniband/mlx5_0", root_ / "devices/pci0/infiniband/mlx5_0");
  ASSERT_EQ(symlink("../../devices/pci0/infiniband/mlx5_0", (root_ / "class/infiniband/mlx5_0").c_str()), 0);
  EXPECT_EQ(read({kOwn})->read, 6U);
}

TEST_F(GidTableTree, NamesFileThatCannotBeRead) {
  EXPECT_EQ(error(), "cannot open `class/infiniband/mlx5_0/ports/1`: No such file or directory");
  EXPECT_EQ(error_code(read({kOwn})), ENOENT);
  for (const char* name : {"", ".", "..", "../../kernel", "a/b", "mlx5 0", "mlx5\n0"})
    EXPECT_TRUE(error({kOwn}, name).starts_with("cannot use HCA `")) << name;
  EXPECT_EQ(error({kOwn}, std::string(64, 'a')),
            "cannot use HCA `" + std::string(64, 'a') + "`: the name is not 1 to 63 of [A-Za-z0-9_.-]");
  make_table(4);
  const std::string gid = root_ / (kPort + "gids/2");
  write_file(gid, "none\n");
  EXPECT_EQ(error(), "cannot use `class/infiniband/mlx5_0/ports/1/gids/2`: it holds no GID");
  fs::remove(gid);
  ASSERT_EQ(mkfifo(gid.c_str(), 0600), 0);
  EXPECT_EQ(error(), "cannot use `class/infiniband/mlx5_0/ports/1/gids/2`: it holds no GID")
      << "does not wait for a writer";
  fs::remove(gid);
  fs::create_directory(gid);
  EXPECT_EQ(error(), "cannot read `class/infiniband/mlx5_0/ports/1/gids/2`: Is a directory");
  fs::remove_all(root_ / (kPort + "gid_attrs"));
  EXPECT_EQ(error(), "cannot open `class/infiniband/mlx5_0/ports/1/gid_attrs/types`: No such file or directory");
}

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

  void write(const std::string& path, const std::string& value) { write_file(directory_ / path, value + "\n"); }
  std::string text(const std::string& path) { return read_file(directory_ / path); }
  SysfsSettings read() { return read_sysfs_settings(*Directory::open(directory_.path()), "eth0", warnings_); }
  Strings restore(const SysfsSettings& before) {
    return restore_sysfs_settings(*Directory::open(directory_.path()), "eth0", before);
  }

  TempDir directory_;
  Strings warnings_;
};

const SysfsSettings kAsWritten{{{"0"}, {"20000"}, {"2"}, {"c", "c", "c"}, {"256", "256", "256"}, {"1,00000000"}}};

TEST_F(SysfsSettingsTest, ReadsEveryQueue) {
  EXPECT_EQ(read(), kAsWritten);
  EXPECT_EQ(warnings_, Strings());
}

TEST_F(SysfsSettingsTest, SkipsSettingsThatTheKernelDoesNotHave) {
  fs::remove_all(directory_ / "queues");
  fs::remove(directory_ / "napi_defer_hard_irqs");
  EXPECT_EQ(read(), (SysfsSettings{{{"0"}, {"20000"}, {}, {}, {}, {}}}));
  EXPECT_EQ(warnings_, Strings());
  EXPECT_EQ(restore(read()), Strings());
}

TEST_F(SysfsSettingsTest, WarnsAboutASettingThatCannotBeRead) {
  fs::remove(directory_ / "queues/rx-1/rps_cpus");
  fs::create_directory(directory_ / "queues/rx-1/rps_cpus");
  EXPECT_EQ(read()[3], Strings());
  EXPECT_EQ(read()[4].size(), 3U);
  ASSERT_FALSE(warnings_.empty());
  EXPECT_EQ(warnings_[0], "cannot read `queues/rx-1/rps_cpus` of `eth0`: Is a directory: it will not be restored");
}

TEST_F(SysfsSettingsTest, RestoresValuesThatDiffer) {
  write("threaded", "1");
  write("queues/rx-2/rps_cpus", "00000000,00000000");
  write("queues/tx-0/xps_cpus", "00000000,00000001");
  EXPECT_EQ(restore(kAsWritten), Strings());
  EXPECT_EQ(read(), kAsWritten);
  EXPECT_EQ(text("queues/rx-0/rps_cpus"), "00000000,0000000c\n") << "not written, because the value is the same";
  write("queues/rx-3/rps_cpus", "00000000,0000000f");
  EXPECT_EQ(restore(kAsWritten), Strings());
  EXPECT_EQ(read()[3], (Strings{"c", "c", "c", "0"})) << "a container can change the number of channels";
}

TEST_F(SysfsSettingsTest, ReportsAMissingQueueOncePerSetting) {
  fs::remove_all(directory_ / "queues/rx-1");
  fs::remove_all(directory_ / "queues/rx-2");
  EXPECT_EQ(
      restore(kAsWritten),
      (Strings{"cannot restore `queues/rx-1/rps_cpus` of `eth0`: No such file or directory; remedy: run `echo c > "
               "/sys/class/net/eth0/queues/rx-1/rps_cpus`",
               "cannot restore `queues/rx-1/rps_flow_cnt` of `eth0`: No such file or directory; remedy: run "
               "`echo 256 > /sys/class/net/eth0/queues/rx-1/rps_flow_cnt`"}));
}

TEST(SysfsSettings, RefuseInvalidValuesOfARecord) {
  for (const char* good : {"0", "20000", "ffffffff,00000000"})
    EXPECT_TRUE(is_sysfs_value(good)) << good;
  for (const char* bad : {"", "../x", "1\n", "-1", "x"})
    EXPECT_FALSE(is_sysfs_value(bad)) << bad;
}

constexpr const char* kPf = "0000:1a:00.0";

class FindVfPlace : public testing::Test {
 protected:
  FindVfPlace() { fs::create_directories(devices_ + "/" + kPf + "/net"); }
  void netdev(const std::string& name) { fs::create_directory(devices_ + "/" + kPf + "/net/" + name); }
  void link(const std::string& name, const std::string& target) {
    fs::create_symlink(target, devices_ + "/" + kPf + "/" + name);
  }
  // Returns "NETDEV N" or "none".
  std::string place(const std::string& vf, const std::string& pf = kPf) const {
    const auto found = find_vf_slot(temp_.path(), vf, pf);
    return found ? found->pf + " " + std::to_string(found->vf) : "none";
  }
  TempDir temp_;
  std::string devices_ = temp_ / "bus/pci/devices";
};

TEST_F(FindVfPlace, FindsVfByTheLinksOfItsFunction) {
  netdev("eth0");
  link("virtfn0", "../0000:1a:00.1");
  link("virtfn2", "../0000:1a:00.3");
  link("virtfn11", "../0000:1a:01.4");
  EXPECT_EQ(place("0000:1a:00.1"), "eth0 0");
  EXPECT_EQ(place("0000:1a:00.3"), "eth0 2");
  EXPECT_EQ(place("0000:1a:01.4"), "eth0 11");
  EXPECT_EQ(place("0000:1a:00.2"), "none") << "a VF of another function";
  EXPECT_EQ(place("1a:00.1"), "none") << "the end of an address is no address";
  EXPECT_EQ(place(""), "none");
  EXPECT_EQ(place("0000:1a:00.1", "0000:1b:00.0"), "none") << "no such function";
}

TEST_F(FindVfPlace, IgnoresOtherLinks) {
  netdev("eth0");
  for (const char* name : {"virtfn", "virtfnx", "virtfn1x", "virtfn-1", "physfn"})
    link(name, "../0000:1a:00.1");
  fs::create_directory(devices_ + "/" + kPf + "/virtfn3");
  EXPECT_EQ(place("0000:1a:00.1"), "none");
  link("virtfn4", "0000:1a:00.1");
  EXPECT_EQ(place("0000:1a:00.1"), "eth0 4");
}

// In switchdev mode, whatever the order of names in the directory.
TEST_F(FindVfPlace, IgnoresRepresentors) {
  link("virtfn0", "../0000:1a:00.1");
  for (const auto& [name, port] : {std::pair("eth1", "pf0vf0\n"), {"eth2", "pf0vf1\n"}, {"eth3", "pf0sf88\n"}}) {
    netdev(name);
    write_file(devices_ + "/" + kPf + "/net/" + name + "/phys_port_name", port);
  }
  EXPECT_EQ(place("0000:1a:00.1"), "none");
  netdev("eth0");
  write_file(devices_ + "/" + kPf + "/net/eth0/phys_port_name", "p0\n");
  EXPECT_EQ(place("0000:1a:00.1"), "eth0 0");
}

TEST_F(FindVfPlace, FindsNothingWithoutNetdev) {
  link("virtfn0", "../0000:1a:00.1");
  EXPECT_EQ(place("0000:1a:00.1"), "none") << "its netdev is in another namespace";
  fs::remove(devices_ + "/" + kPf + "/net");
  EXPECT_EQ(place("0000:1a:00.1"), "none") << "its driver has none";
}

}  // namespace
}  // namespace hook
