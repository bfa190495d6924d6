// What an image has for verbs, laid out as files.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "init/decision.hpp"
#include "init/image.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"

namespace {

using init::Check;
using init::Verdict;
using test_support::TempDir;
using test_support::write_file;

#if defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
constexpr std::uint16_t kOther = EM_X86_64;
#else
constexpr std::uint16_t kMachine = EM_X86_64;
constexpr std::uint16_t kOther = EM_AARCH64;
#endif

std::string library(std::string_view text = "", std::uint16_t machine = kMachine) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_type = ET_DYN;
  header.e_machine = machine;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(text);
}

std::string verbs(unsigned abi) {
  const std::string name = "lib%s-rdmav" + std::to_string(abi) + ".so";
  return library('\0' + name + '\0' + "/usr/lib64/libibverbs/" + name + '\0');
}

class ImageFiles : public testing::Test {
 protected:
  ImageFiles() : node_(test_support::rails(2)) {
    for (fabric::Hca& hca : node_.hcas)
      hca.driver = "mlx5_core";
  }

  void lay_out(unsigned verbs_abi, unsigned provider_abi) {
    write_file(root_ / "usr/lib64/libibverbs.so.1.14", verbs(verbs_abi));
    std::filesystem::create_symlink("/usr/lib64/libibverbs.so.1.14", root_ / "usr/lib64/libibverbs.so.1");
    write_file(root_ / provider(provider_abi), library());
    write_file(root_ / "etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
    write_file(root_ / "etc/os-release", "NAME=x\nID=rocky\nID_LIKE=\"rhel centos fedora\"\n");
  }
  static std::string provider(unsigned abi) {
    return "usr/lib64/libibverbs/libmlx5-rdmav" + std::to_string(abi) + ".so";
  }

  std::vector<Check> checks(bool efa = false) {
    auto decision = init::decide(node_, {}, {});
    decision.efa = efa;
    return init::check_image(node_, decision, init::read_image(root_.path(), efa));
  }
  // One finding, of that verdict, with that part in its message; what is wrong has a remedy.
  void expect(Verdict verdict, std::string_view part, std::string_view remedy = "") {
    const auto found = checks();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].verdict, verdict);
    EXPECT_NE(found[0].message.find(part), std::string::npos) << found[0].message;
    EXPECT_NE(found[0].remedy.find(remedy), std::string::npos) << found[0].remedy;
    EXPECT_EQ(found[0].remedy.empty(), verdict != Verdict::kBad);
  }

  TempDir root_;
  fabric::Inventory node_;
};

TEST_F(ImageFiles, HasWhatItsHcasNeed) {
  lay_out(34, 34);
  expect(Verdict::kGood, "/usr/lib64/libibverbs.so.1 has the provider mlx5 (private ABI 34)");
}

TEST_F(ImageFiles, HasNoVerbs) {
  expect(Verdict::kNote, "no libibverbs.so.1, and no C library");
  write_file(root_ / "lib/x86_64-linux-gnu/libc.so.6", library(""));
  write_file(root_ / "lib64/libc.so.6", library(""));
  write_file(root_ / "etc/os-release", "ID=ubuntu\nID_LIKE=debian\n");
  expect(Verdict::kBad, "no libibverbs.so.1", "apt-get install libibverbs1 ibverbs-providers");
  write_file(root_ / "opt/nvidia/entrypoint.d/10-banner.sh", "");
  expect(Verdict::kBad, "no libibverbs.so.1", "NVIDIA's");
  write_file(root_ / "usr/lib/libibverbs.so.1", "text");
  expect(Verdict::kBad, "/usr/lib/libibverbs.so.1 is no ELF file");
  write_file(root_ / "usr/lib/libibverbs.so.1", library("", kOther));
  expect(Verdict::kBad, "is of another architecture");
  node_.hcas.clear();
  EXPECT_TRUE(checks().empty()) << "nothing needs it";
}

TEST_F(ImageFiles, HasNoProviderOfThatAbi) {
  lay_out(34, 25);
  expect(Verdict::kBad, "libmlx5-rdmav25.so has the private ABI 25, and /usr/lib64/libibverbs.so.1 looks for 34",
         "dnf install libibverbs");
  std::filesystem::remove(root_ / provider(25));
  expect(Verdict::kBad, "no libmlx5-rdmav34.so: libibverbs will not find mlx5_0, mlx5_1");
  write_file(root_ / provider(34), library());
  std::filesystem::remove(root_ / "etc/libibverbs.d/mlx5.driver");
  expect(Verdict::kBad, "no file of /etc/libibverbs.d says `driver mlx5`");
}

TEST_F(ImageFiles, UnusedHcasAreNoFault) {
  lay_out(34, 34);
  node_.hcas[1].driver = "bnxt_en";
  node_.hcas[1].ports[0].rate = "100 Gb/sec";
  const auto found = checks();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].verdict, Verdict::kNote);
  EXPECT_NE(found[0].message.find("no libbnxt_re-rdmav34.so"), std::string::npos) << found[0].message;
  EXPECT_EQ(found[1].verdict, Verdict::kGood);
}

TEST_F(ImageFiles, HostileFiles) {
  lay_out(34, 34);
  std::filesystem::remove(root_ / provider(34));
  ASSERT_EQ(::mkfifo((root_ / provider(34)).c_str(), 0644), 0);
  expect(Verdict::kBad, "is no regular file");
  std::filesystem::remove(root_ / provider(34));
  std::filesystem::create_symlink("libmlx5-rdmav34.so", root_ / provider(34));
  expect(Verdict::kBad, "is no regular file");
  std::filesystem::remove(root_ / provider(34));
  std::string cut = library();
  reinterpret_cast<Elf64_Ehdr*>(cut.data())->e_shoff = 1 << 20;
  write_file(root_ / provider(34), cut);
  expect(Verdict::kBad, "is truncated");
  write_file(root_ / provider(34), cut.substr(0, 20));
  expect(Verdict::kBad, "is no ELF file");
  // A library beyond what is read says nothing of its ABI.
  ASSERT_EQ(::truncate((root_ / "usr/lib64/libibverbs.so.1.14").c_str(), 1LL << 40), 0);
  expect(Verdict::kNote, "does not say which private ABI");
}

TEST_F(ImageFiles, AnEndlessDirectoryProvesNothing) {
  lay_out(34, 34);
  std::filesystem::remove(root_ / "etc/libibverbs.d/mlx5.driver");
  for (int i = 0; i < 200; ++i)
    write_file(root_ / ("etc/libibverbs.d/" + std::to_string(i)), "");
  expect(Verdict::kNote, "is not known: /etc/libibverbs.d: File too large");
}

TEST_F(ImageFiles, AView) {
  lay_out(34, 34);
  write_file(root_ / "sys/class/infiniband_verbs/uverbs0/dev", "231:192");
  auto found = checks();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "abi_version");
  EXPECT_EQ(found[0].verdict, Verdict::kBad);
  write_file(root_ / "sys/class/infiniband_verbs/abi_version", "6");
  expect(Verdict::kGood, "mlx5");
}

TEST_F(ImageFiles, Efa) {
  lay_out(34, 34);
  auto found = checks(true);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_NE(found[1].message.find("no libfabric.so.1"), std::string::npos) << found[1].message;
  EXPECT_NE(found[2].message.find("no libnccl-net.so (aws-ofi-nccl)"), std::string::npos) << found[2].message;
  EXPECT_EQ(found[2].verdict, Verdict::kBad);
  write_file(root_ / "opt/amazon/efa/lib/libfabric.so.1", library());
  write_file(root_ / "opt/amazon/ofi-nccl/lib64/libnccl-net-ofi.so", library());
  found = checks(true);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].verdict, Verdict::kGood) << found[1].message;
}

}  // namespace
