// The node's libraries for its HCAs, and the needs that an ELF file states.
#include "fabric/lent_libraries.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/unique_fd.hpp"
#include "fabric/elf_file.hpp"
#include "fabric/libraries.hpp"
#include "support/provider_file.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace test_support;
using fabric::ElfFile;

base::UniqueFd opened(const std::string& path) {
  return base::UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

TEST(ElfFile, NamesLibrariesAndVersionsThatARealFileNeeds) {
  const auto self = opened("/proc/self/exe");
  ElfFile program(self.get());
  const auto needed = program.needed();
  if (needed.empty()) GTEST_SKIP() << "this test is linked statically";
  EXPECT_NE(std::ranges::find(needed, "libc.so.6"), needed.end());
  const auto versions = program.needed_versions();
  const auto of_libc = std::ranges::find(versions, "libc.so.6", &ElfFile::Need::library);
  ASSERT_NE(of_libc, versions.end());
  EXPECT_TRUE(of_libc->version.starts_with("GLIBC_2.")) << of_libc->version;
  const auto libc = opened(fabric::Libraries("").find({"libc.so.6"}).path);
  const auto defined = ElfFile(libc.get()).versions();
  for (const auto& need : versions) {
    if (need.library != "libc.so.6") continue;
    EXPECT_NE(std::ranges::find(defined, need.version), defined.end()) << need.version;
  }
}

TEST(ElfFile, HasNoPartsIfItIsNoElfFile) {
  const TempDir directory;
  write_file(directory / "text", "libc.so.6");
  const auto text = opened(directory / "text");
  ElfFile file(text.get());
  EXPECT_TRUE(file.needed().empty() && file.needed_versions().empty() && file.versions().empty());
  EXPECT_EQ(file.machine(), static_cast<unsigned>(EM_NONE));
}

// A node with libibverbs and a provider, in the usual directories.
class FindLent : public testing::Test {
 protected:
  FindLent() {
    if (::geteuid() != 0) return;
    const std::string format = "lib%s-rdmav65.so";
    write_file(node_ / "usr/lib64/libibverbs.so.1",
               provider_library({}) + '\0' + format + '\0' + "/usr/lib64/libibverbs/" + format + '\0');
    write_file(node_ / "usr/lib64/libibverbs/libmlx5-rdmav65.so", provider_library({{"mlx5", 1, 1}}));
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make files of root";
  }

  std::string found(const std::string& from = "") {
    const auto files = fabric::find_lent_libraries(node_.path(), from, {"mlx5"});
    if (!files) return files.error().message;
    std::string text;
    for (const auto& file : *files)
      text += file.name + "=" + below_root(file) + " ";
    return text;
  }
  std::string below_root(const fabric::LentFile& file) const {
    EXPECT_TRUE(file.path.starts_with(node_.path())) << file.path;
    return file.path.substr(node_.path().size());
  }
  TempDir node_;
};

TEST_F(FindLent, FindsLibibverbsAndTheProvider) {
  EXPECT_EQ(found(),
            "libibverbs.so.1=/usr/lib64/libibverbs.so.1 "
            "libmlx5-rdmav65.so=/usr/lib64/libibverbs/libmlx5-rdmav65.so ");
}

TEST_F(FindLent, PrefersTheAdministratorsDirectory) {
  write_file(node_ / "opt/lib/libmlx5-rdmav65.so", provider_library({{"mlx5", 6, 8}}));
  EXPECT_EQ(found("/opt/lib"),
            "libibverbs.so.1=/usr/lib64/libibverbs.so.1 libmlx5-rdmav65.so=/opt/lib/libmlx5-rdmav65.so ");
}

TEST_F(FindLent, NamesWhatIsMissing) {
  std::filesystem::remove(node_ / "usr/lib64/libibverbs/libmlx5-rdmav65.so");
  EXPECT_EQ(found(), "cannot lend `libmlx5-rdmav65.so`: it is not on the node");
}

TEST_F(FindLent, FindsTheTopologyFileOfRoot) {
  write_file(node_ / "etc/vm.xml", "<system/>");
  const auto found_at = [&](const std::string& path) {
    const auto file = fabric::find_topology_file(node_.path(), path);
    return file ? file->name + "=" + below_root(*file) : file.error().message;
  };
  EXPECT_EQ(found_at("/etc/vm.xml"), "topology.xml=/etc/vm.xml");
  EXPECT_EQ(found_at("/etc/none.xml"), "cannot lend `/etc/none.xml`: No such file or directory");
  EXPECT_EQ(found_at("/etc"), "cannot lend `/etc`: Invalid argument");
  ASSERT_EQ(::chmod((node_ / "etc/vm.xml").c_str(), 0664), 0);
  EXPECT_EQ(found_at("/etc/vm.xml"), "cannot lend `/etc/vm.xml`: users other than root can change it");
}

TEST_F(FindLent, RefusesAFileThatOthersCanChange) {
  const std::string path = node_ / "usr/lib64/libibverbs/libmlx5-rdmav65.so";
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(found(), "cannot lend `/usr/lib64/libibverbs/libmlx5-rdmav65.so`: users other than root can change it");
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  ASSERT_EQ(::chown(path.c_str(), 1000, 0), 0);
  EXPECT_EQ(found(), "cannot lend `/usr/lib64/libibverbs/libmlx5-rdmav65.so`: users other than root can change it");
}

}  // namespace
