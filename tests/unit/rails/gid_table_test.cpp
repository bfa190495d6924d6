// Reading a port's GID table from a tree in the layout of sysfs: what is seen, and how little of it is read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "fabric/unique_fd.hpp"
#include "hook/rails/gids.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"

namespace {

using fabric::Address;
using fabric::Result;
using hook::GidSlot;
using hook::GidTable;
using hook::read_gid_table;
using test_support::address;
using test_support::TempDir;
using test_support::write_file;

const Address kOwn = address("10.1.0.2");
constexpr const char* kPort = "class/infiniband/mlx5_0/ports/1/";

class GidTableTree : public testing::Test {
 protected:
  // A table of empty slots, as the kernel shows one.
  void make_table(unsigned length) {
    for (unsigned index = 0; index < length; ++index)
      write_gid(index, Address{});
    std::filesystem::create_directories(root_ / (std::string(kPort) + "gid_attrs/types"));
  }
  void write_gid(unsigned index, const Address& gid) {
    write_file(root_ / fmt::format("{}gids/{}", kPort, index), to_gid_string(gid) + "\n");
  }
  void set(unsigned index, const Address& gid, const char* type) {
    write_gid(index, gid);
    write_file(root_ / fmt::format("{}gid_attrs/types/{}", kPort, index), fmt::format("{}\n", type));
  }
  // Link-local and own address in both types, at 0 and 4.
  void make_usual(unsigned length) {
    make_table(length);
    set(0, address("fe80::1"), "IB/RoCE v1");
    set(1, address("fe80::1"), "RoCE v2");
    set(4, kOwn, "IB/RoCE v1");
    set(5, kOwn, "RoCE v2");
    set(9, address("10.1.0.9"), "RoCE v2");
  }
  Result<GidTable> read(const std::vector<Address>& wanted, unsigned at_least = 0, const std::string& hca = "mlx5_0") {
    const fabric::UniqueFd sysfs(open(root_.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return read_gid_table(sysfs.get(), hca, 1, wanted, at_least);
  }
  std::string error(const std::vector<Address>& wanted = {kOwn}, const std::string& hca = "mlx5_0") {
    const auto table = read(wanted, 0, hca);
    return table ? "" : table.error().message;
  }

  TempDir root_;
};

TEST_F(GidTableTree, ReadsUpToTheAddress) {
  make_usual(256);
  const auto table = read({kOwn});
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->length, 256U);
  EXPECT_EQ(table->read, 6U);
  const std::vector<GidSlot> expected = {
      {0, address("fe80::1"), false}, {1, address("fe80::1"), true}, {4, kOwn, false}, {5, kOwn, true}};
  EXPECT_EQ(table->slots, expected);
  EXPECT_EQ(v2_index(*table, kOwn), 5U);
  EXPECT_EQ(gid_types(*table), 2U);
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

TEST_F(GidTableTree, LengthWithoutReadingOn) {
  for (const unsigned length : {6U, 7U, 8U, 16U, 17U, 128U, 255U, 1024U}) {
    std::filesystem::remove_all(root_ / "class");
    make_table(length);
    set(5, kOwn, "RoCE v2");
    EXPECT_EQ(read({kOwn})->length, length);
    EXPECT_EQ(read({})->length, length);
    EXPECT_EQ(*read({}, 5000), *read({}, length));
  }
  std::filesystem::remove_all(root_ / "class");
  write_file(root_ / (std::string(kPort) + "gids/x"), "");
  make_table(0);
  EXPECT_EQ(read({kOwn})->length, 0U);
}

TEST_F(GidTableTree, AGidWithoutATypeIsSomebodys) {
  make_table(8);
  write_gid(3, address("10.1.0.9"));
  const auto table = read({}, 8);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->slots, (std::vector<GidSlot>{{3, address("10.1.0.9"), true}}));
}

// As below /sys/class: the HCA is a link, which stays within a detached mount because it is relative.
TEST_F(GidTableTree, FollowsTheClassLink) {
  make_usual(16);
  std::filesystem::create_directories(root_ / "devices/pci0/infiniband");
  std::filesystem::rename(root_ / "class/infiniband/mlx5_0", root_ / "devices/pci0/infiniband/mlx5_0");
  ASSERT_EQ(symlink("../../devices/pci0/infiniband/mlx5_0", (root_ / "class/infiniband/mlx5_0").c_str()), 0);
  EXPECT_EQ(read({kOwn})->read, 6U);
}

TEST_F(GidTableTree, Errors) {
  EXPECT_EQ(error(), "cannot open `class/infiniband/mlx5_0/ports/1`: No such file or directory");
  EXPECT_EQ(read({kOwn}).error().code, ENOENT);
  for (const char* name : {"", ".", "..", "../../kernel", "a/b", "mlx5 0", "mlx5\n0"})
    EXPECT_TRUE(error({kOwn}, name).starts_with("cannot use HCA `")) << name;
  EXPECT_EQ(error({kOwn}, std::string(64, 'a')),
            "cannot use HCA `" + std::string(64, 'a') + "`: that is no name of a device");
  make_table(4);
  write_file(root_ / (std::string(kPort) + "gids/2"), "none\n");
  EXPECT_EQ(error(), "cannot use `class/infiniband/mlx5_0/ports/1/gids/2`: it holds no GID");
  std::filesystem::remove(root_ / (std::string(kPort) + "gids/2"));
  std::filesystem::create_directory(root_ / (std::string(kPort) + "gids/2"));
  EXPECT_EQ(error(), "cannot read `class/infiniband/mlx5_0/ports/1/gids/2`: Is a directory");
  std::filesystem::remove_all(root_ / (std::string(kPort) + "gid_attrs"));
  EXPECT_EQ(error(), "cannot open `class/infiniband/mlx5_0/ports/1/gid_attrs/types`: No such file or directory");
}

TEST_F(GidTableTree, AFifoStopsNobody) {
  make_table(4);
  std::filesystem::remove(root_ / (std::string(kPort) + "gids/1"));
  ASSERT_EQ(mkfifo((root_ / (std::string(kPort) + "gids/1")).c_str(), 0600), 0);
  EXPECT_EQ(error(), "cannot use `class/infiniband/mlx5_0/ports/1/gids/1`: it holds no GID");
}

}  // namespace
