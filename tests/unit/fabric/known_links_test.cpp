#include "fabric/known_links.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/temp_dir.hpp"

namespace {

using namespace fabric;
using namespace test_support;

TEST(KnownLinks, ServesOnlySameNameAndInode) {
  const TempDir dir;
  using Entries = std::vector<std::pair<std::string, std::uint64_t>>;
  const auto directory = *base::Directory::open(dir.path());
  Entries entries;
  for (unsigned i = 0; i < 12; ++i)
    entries.emplace_back("mlx5_" + std::to_string(i), 100 + i);
  const auto link = [](unsigned i) {
    return "../../devices/d" + std::to_string(i) + "/infiniband/mlx5_" + std::to_string(i);
  };
  rdma_sysfs::KnownLinks first{""};
  first.begin(directory, entries);
  for (unsigned i = 0; i < 12; ++i) {
    EXPECT_FALSE(first.find(entries[i].first));
    first.note(entries[i].first, link(i));
  }
  const std::string text = first.text();
  EXPECT_FALSE(text.empty());

  entries[3].second = 999;                         // another HCA has the name
  entries.erase(entries.begin() + 5);              // removed
  entries.insert(entries.begin(), {"bnxt_0", 7});  // new
  rdma_sysfs::KnownLinks next{text};
  next.begin(directory, entries);
  for (const auto& [name, inode] : entries) {
    const auto found = next.find(name);
    const bool is_known = name != "bnxt_0" && name != "mlx5_3";
    ASSERT_EQ(found.has_value(), is_known) << name;
    if (found) EXPECT_EQ(*found, link(static_cast<unsigned>(inode - 100)));
    if (!found) next.note(name, "x/" + name);
  }
  EXPECT_EQ(next.text(), "") << "the old text still serves";

  for (const std::string& other :
       {std::string("no lines"), "1\n" + text, text.substr(0, text.size() / 2), std::string(99, '\n')}) {
    rdma_sysfs::KnownLinks damaged{other};
    damaged.begin(directory, entries);
    for (const auto& [name, inode] : entries)
      if (const auto found = damaged.find(name)) EXPECT_EQ(*found, link(static_cast<unsigned>(inode - 100)));
  }

  // After another boot, other links can have the same device number, names and inode numbers.
  chmod(dir.path().c_str(), 0750);
  rdma_sysfs::KnownLinks booted{text};
  booted.begin(directory, entries);
  for (const auto& [name, inode] : entries)
    EXPECT_FALSE(booted.find(name)) << "the class directory has another ctime";
}

}  // namespace
