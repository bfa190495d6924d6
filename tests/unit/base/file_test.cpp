#include "base/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/pci_sysfs.hpp"
#include "fabric/read_inventory.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace fabric;
using base::Directory;
using namespace test_support;

int code_of(const Attr<std::string>& attr) {
  const auto* failed = std::get_if<Unreadable>(&attr);
  return failed ? failed->code : 0;
}

class SysfsDirectory : public testing::Test {
 protected:
  Directory open() const { return *Directory::open(dir_.path()); }
  TempDir dir_;
};

TEST_F(SysfsDirectory, ReadsAtMostAPageWithoutTheLineEnd) {
  write_file(dir_ / "state", "4: ACTIVE\n");
  write_file(dir_ / "carrier", "\n");
  write_file(dir_ / "numa_node", "-1\n");
  write_file(dir_ / "odd", "1 2\n");
  write_file(dir_ / "long", std::string(100000, 'x'));
  EXPECT_EQ(open().read("state"), Attr<std::string>("4: ACTIVE"));
  EXPECT_EQ(open().read_text("state"), "4: ACTIVE");
  EXPECT_EQ(open().read("carrier"), Attr<std::string>(""));
  EXPECT_FALSE(open().read_text("carrier")) << "an empty attribute is a value, but not a text";
  EXPECT_FALSE(open().read_int("carrier"));
  EXPECT_EQ(open().read_int("numa_node"), -1);
  EXPECT_FALSE(open().read_int("odd")) << "a number must be the complete text";
  EXPECT_EQ(std::get<std::string>(open().read("long")).size(), 4096U);
}

TEST_F(SysfsDirectory, ReturnsTheErrnoOfAFailure) {
  EXPECT_EQ(code_of(open().read("missing")), ENOENT);
  mkdir((dir_ / "dir").c_str(), 0755);
  EXPECT_EQ(code_of(open().read("dir")), EISDIR);
  ASSERT_EQ(symlink("loop", (dir_ / "loop").c_str()), 0);
  EXPECT_EQ(code_of(open().read("loop")), ELOOP);
  EXPECT_FALSE(Directory::open(dir_ / "missing"));
  EXPECT_EQ(errno, ENOENT);
  write_file(dir_ / "file", "");
  EXPECT_FALSE(Directory::open(dir_ / "file"));
  EXPECT_EQ(errno, ENOTDIR);
}

TEST_F(SysfsDirectory, ReturnsEaccesWithoutPermission) {
  write_file(dir_ / "secret", "x");
  write_file(dir_ / "open", "x");
  ASSERT_EQ(chmod((dir_ / "secret").c_str(), 0), 0);
  ASSERT_EQ(chmod(dir_.path().c_str(), 0755), 0);
  const Directory directory = open();
  // Root may read every file, so root reads as another user of the file system.
  const int user = setfsuid(geteuid() == 0 ? 65534 : geteuid());
  const auto readable = directory.read("open");
  const auto secret = directory.read("secret");
  setfsuid(static_cast<uid_t>(user));
  EXPECT_EQ(readable, Attr<std::string>("x"));
  EXPECT_EQ(code_of(secret), EACCES);
}

// The author of a container's /sys must not be able to block its start.
TEST_F(SysfsDirectory, DoesNotBlockOnAFifo) {
  ASSERT_EQ(mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(open().read("fifo"), Attr<std::string>(""));
  EXPECT_FALSE(open().open_at("fifo"));
  EXPECT_EQ(base::read_file(dir_ / "fifo", 100), Attr<std::string>(""));
}

TEST_F(SysfsDirectory, ReturnsTheLastComponentOfALink) {
  ASSERT_EQ(symlink("../../bus/pci/drivers/mlx5_core", (dir_ / "driver").c_str()), 0);
  ASSERT_EQ(symlink("plain", (dir_ / "short").c_str()), 0);
  EXPECT_EQ(open().read_link("driver"), "../../bus/pci/drivers/mlx5_core");
  EXPECT_EQ(open().read_link_name("driver"), "mlx5_core");
  EXPECT_EQ(open().read_link_name("short"), "plain");
  EXPECT_FALSE(open().read_link_name("missing"));
  EXPECT_FALSE(open().contains("driver")) << "its target does not exist";
}

TEST_F(SysfsDirectory, ListsInNaturalOrder) {
  for (const char* name : {"mlx5_10", "mlx5_9", "mlx5_1"})
    mkdir((dir_ / name).c_str(), 0755);
  EXPECT_EQ(open().list(), (std::vector<std::string>{"mlx5_1", "mlx5_9", "mlx5_10"}));
  EXPECT_EQ(open().list().size(), 3U) << "a second listing has the same entries";
}

TEST_F(SysfsDirectory, RefusesAFileAboveTheLimit) {
  write_file(dir_ / "file", std::string(1000, 'x'));
  EXPECT_EQ(code_of(base::read_file(dir_ / "file", 999)), EFBIG);
  EXPECT_EQ(std::get<std::string>(base::read_file(dir_ / "file", 1000)).size(), 1000U);
  EXPECT_EQ(code_of(base::read_file(dir_.path(), 1000)), EISDIR);
  EXPECT_EQ(code_of(base::read_file(dir_ / "missing", 1000)), ENOENT);
}

TEST_F(SysfsDirectory, LeavesNoDescriptorOpen) {
  const auto count = [] { return Directory::open("/proc/self/fd")->list().size(); };
  write_file(dir_ / "a", "1");
  const std::size_t before = count();
  for (int i = 0; i < 10; ++i) {
    const Directory dir = open();
    (void)dir.list();
    (void)dir.read("a");
    (void)dir.read("missing");
    (void)base::read_file(dir_ / "a", 10);
  }
  EXPECT_EQ(count(), before);
}

TEST(PciAddress, IsRecognizedInTextAndPaths) {
  for (const char* text : {"0000:0c:00.0", "10000:e1:00.7", "ffffffff:00:1f.3"})
    EXPECT_TRUE(fabric::pci::is_address(text)) << text;
  for (const char* text : {"", "0c:00.0", "0000:0c:00", "0000:0c:00.00", "000g:0c:00.0", "0000-0c-00.0", "pci0000:00",
                           "000:0c:00.0", "mlx5_core.sf.2", "0000:0c:00.g", "fffffffff:00:1f.3"})
    EXPECT_FALSE(fabric::pci::is_address(text)) << text;
  EXPECT_EQ(fabric::pci::slot_of("0000:0c:00.3"), "0000:0c:00");
  using Path = std::vector<std::string>;
  EXPECT_EQ(fabric::pci::addresses_in_path("../../devices/pci0000:00/0000:00:01.0/0000:0c:00.0/infiniband/mlx5_0"),
            (Path{"0000:00:01.0", "0000:0c:00.0"}));
  EXPECT_EQ(fabric::pci::addresses_in_path(""), Path{});
}

TEST(Gpus, AreAcceleratorsOfNvidiaAndAmdOnly) {
  const TempDir root;
  struct Row {
    const char *address, *pci_class, *vendor;
    bool gpu;
  };
  const std::vector<Row> rows = {{"0000:1a:00.0", "0x030200", "0x10de", true},    // H100
                                 {"0000:1b:00.0", "0x038000", "0x1002", true},    // MI300X, display other
                                 {"0000:1c:00.0", "0x120000", "0x1002", true},    // processing accelerator
                                 {"0000:1d:00.0", "0x030000", "0x1a03", false},   // ASPEED board controller
                                 {"0000:1e:00.0", "0x020000", "0x10de", false},   // NVIDIA network function
                                 {"0000:1f:00.0", "0x068000", "0x10de", false}};  // NVSwitch bridge
  for (const Row& row : rows) {
    const std::string dir = root / "sys/devices/pci0000:00/0000:00:01.0/" + row.address;
    write_file(dir + "/class", row.pci_class);
    write_file(dir + "/vendor", row.vendor);
    write_file(dir + "/numa_node", "1\n");
    write_file(root / "sys/bus/pci/devices/keep", "");
    ASSERT_EQ(symlink((std::string("../../../devices/pci0000:00/0000:00:01.0/") + row.address).c_str(),
                      (root / "sys/bus/pci/devices/" + row.address).c_str()),
              0);
  }
  const auto gpus = fabric::pci::read_gpus(root.path());
  ASSERT_EQ(gpus.size(), 3U);
  std::size_t found = 0;
  for (const Row& row : rows) {
    if (!row.gpu) continue;
    EXPECT_EQ(gpus[found].pci, row.address);
    EXPECT_EQ(gpus[found].numa_node, 1);
    EXPECT_EQ(gpus[found].pci_path, (std::vector<std::string>{"0000:00:01.0"}));
    ++found;
  }
  EXPECT_TRUE(fabric::pci::read_gpus(root / "nothing").empty());
  EXPECT_FALSE(fabric::pci::read_path(root.path(), "0000:99:00.0"));
}

TEST(TreeNetdevs, AreReadWithTheirAddresses) {
  const TempDir root;
  write_file(root / "sys/class/net/bond0/carrier", "1\n");
  write_file(root / "sys/class/net/bond0/bonding/slaves", "eth1 eth2\n");
  write_file(root / "sys/class/net/eth1/carrier", "");
  write_file(root / "sys/class/net/bonding_masters", "bond0\n");  // the kernel has this file among the netdevs
  write_file(root / "addrs.txt",
             "bond0 inet 10.0.0.1/24\nbond0 inet6 fe80::1/64\nnobody inet 10.9.9.9/24\n\nbond0 inet\nbond0 inet x/1\n");
  const auto netdevs = fabric::read_tree_netdevs(root.path());
  ASSERT_EQ(netdevs.size(), 2U);
  EXPECT_EQ(netdevs[0].name, "bond0");
  EXPECT_TRUE(netdevs[0].is_up());
  EXPECT_EQ(netdevs[0].slaves, (std::vector<std::string>{"eth1", "eth2"}));
  ASSERT_EQ(netdevs[0].addresses.size(), 2U);
  EXPECT_EQ(netdevs[0].addresses[0].text, "10.0.0.1/24");
  EXPECT_EQ(netdevs[0].addresses[1].prefix, 64U);
  EXPECT_FALSE(netdevs[1].is_up()) << "an empty carrier stands for EINVAL, the result for a down netdev";
  EXPECT_TRUE(fabric::read_tree_netdevs(root / "nothing").empty());
}

TEST(LateClose, ClosesAtItsEnd) {
  const TempDir dir;
  write_file(dir / "a", "1");
  const auto open_files = [] { return Directory::open("/proc/self/fd")->list().size(); };
  const std::size_t before = open_files();
  {
    const base::LateClose outer;
    {
      const base::LateClose inner;
      for (int i = 0; i < 5; ++i)
        EXPECT_EQ(Directory::open(dir.path())->read("a"), Attr<std::string>("1"));
    }
    EXPECT_GE(open_files(), before + 10) << "five directories and five files";
    for (int i = 0; i < 500; ++i)
      EXPECT_EQ(Directory::open(dir.path())->read("a"), Attr<std::string>("1"));
    EXPECT_LT(open_files(), before + 32) << "the limit of open files may be low";
  }
  EXPECT_EQ(open_files(), before);
  std::vector<int> fds;
  for (int i = 0; i < 4; ++i)
    fds.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::close(fds[1]);
  std::swap(fds[0], fds[3]);
  fds.erase(fds.begin() + 1);
  base::close_all(fds);
  EXPECT_EQ(open_files(), before);
  EXPECT_TRUE(fds.empty());
}

}  // namespace
