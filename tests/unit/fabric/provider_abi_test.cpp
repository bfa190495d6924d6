// The range of kernel ABI versions in a provider's file.
#include "fabric/provider_abi.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <climits>
#include <cstddef>
#include <cstring>

#include "base/unique_fd.hpp"
#include "support/provider_file.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace fabric;
using namespace test_support;

std::optional<fabric::AbiRange> read(const std::string& file, std::string_view name) {
  const TempDir directory;
  write_file(directory / "provider", file);
  const base::UniqueFd opened(::open((directory / "provider").c_str(), O_RDONLY | O_CLOEXEC));
  return fabric::read_provider_abi(opened.get(), name);
}

template <typename Value>
std::string changed(std::string file, std::size_t offset, Value value) {
  std::memcpy(file.data() + offset, &value, sizeof value);
  return file;
}

TEST(ProviderAbi, IsReadFromTheFile) {
  const struct {
    const char* about;
    std::string name;
    std::vector<ProviderOps> all;
    std::optional<fabric::AbiRange> range;
  } rows[] = {{"one version", "bnxt_re", {{"bnxt_re", 1, 1}}, fabric::AbiRange{1, 1}},
              {"several versions", "irdma", {{"irdma", 0, 5}}, fabric::AbiRange{0, 5}},
              {"every version", "hns", {{"hns", 0, INT_MAX}}, fabric::AbiRange{0, INT_MAX}},
              {"the last part of the name", "vmw_pvrdma", {{"pvrdma", 3, 3}}, fabric::AbiRange{3, 3}},
              {"a second structure", "mlx5", {{"other", 2, 4}, {"mlx5", 1, 1}}, fabric::AbiRange{1, 1}},
              {"the same range twice", "mlx5", {{"mlx5", 1, 1}, {"mlx5", 1, 1}}, fabric::AbiRange{1, 1}},
              {"two ranges", "mlx5", {{"mlx5", 1, 1}, {"mlx5", 6, 8}}, std::nullopt},
              {"another name", "mlx5", {{"mlx4", 2, 4}}, std::nullopt},
              {"a longer name", "mlx5", {{"mlx5_core", 1, 1}}, std::nullopt},
              {"minimum above maximum", "mlx5", {{"mlx5", 2, 1}}, std::nullopt},
              {"no small number", "mlx5", {{"mlx5", 1, 256}}, std::nullopt},
              {"zeros", "mlx5", {{"mlx5", 0, 0}}, std::nullopt},
              {"nothing", "mlx5", {}, std::nullopt}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.about);
    for (const bool packed : {false, true}) {
      for (const std::uint16_t machine : {std::uint16_t{EM_X86_64}, std::uint16_t{EM_AARCH64}})
        EXPECT_EQ(read(provider_library(row.all, packed, machine), row.name), row.range) << packed << machine;
    }
  }
}

TEST(ProviderAbi, IsUnknownInAHostileFile) {
  const std::string file = provider_library({{"mlx5", 1, 1}});
  ASSERT_TRUE(read(file, "mlx5"));
  constexpr std::size_t data_header = kProviderHeaders + sizeof(Elf64_Phdr);
  constexpr std::uint64_t huge = UINT64_MAX - 7;
  const std::pair<const char*, std::string> rows[] = {
      {"no magic", changed(file, 0, 'x')},
      {"32 bits", changed(file, EI_CLASS, char{ELFCLASS32})},
      {"big endian", changed(file, EI_DATA, char{ELFDATA2MSB})},
      {"another machine", changed(file, offsetof(Elf64_Ehdr, e_machine), std::uint16_t{EM_RISCV})},
      {"no segments", changed(file, offsetof(Elf64_Ehdr, e_phnum), std::uint16_t{0})},
      {"too many segments", changed(file, offsetof(Elf64_Ehdr, e_phnum), std::uint16_t{UINT16_MAX})},
      {"segments of another size", changed(file, offsetof(Elf64_Ehdr, e_phentsize), std::uint16_t{1})},
      {"segments elsewhere", changed(file, offsetof(Elf64_Ehdr, e_phoff), huge)},
      {"huge segment", changed(file, data_header + offsetof(Elf64_Phdr, p_filesz), huge)},
      {"segment elsewhere", changed(file, data_header + offsetof(Elf64_Phdr, p_offset), huge)},
      {"segment at another address", changed(file, data_header + offsetof(Elf64_Phdr, p_vaddr), huge)},
      {"segment at an odd address", changed(file, data_header + offsetof(Elf64_Phdr, p_vaddr), std::uint64_t{0x5001})},
      {"huge table", changed(file, kProviderDynamic + 16 + 8, huge)},
      {"table elsewhere", changed(file, kProviderDynamic + 8, huge)},
      {"name elsewhere", changed(file, kProviderRelocations + offsetof(Elf64_Rela, r_addend), huge)},
      {"the pointer to the name depends on a symbol",
       changed(file, kProviderRelocations + offsetof(Elf64_Rela, r_info), std::uint64_t{1} << 32 | R_X86_64_64)},
      {"the numbers are a pointer", changed(file, kProviderRelocations + 24, std::uint64_t{0x5008})}};
  for (const auto& [about, hostile] : rows)
    EXPECT_FALSE(read(hostile, "mlx5")) << about;
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(read(file.substr(0, size), "mlx5")) << size;
  EXPECT_FALSE(fabric::read_provider_abi(-1, "mlx5"));
}

TEST(ProviderAbi, IsReadBesideRelocationsBeyondTheSegment) {
  std::string file = provider_library({{"mlx5", 1, 1}}, true);
  constexpr std::uint64_t size = 0x700;
  file = changed(file, kProviderDynamic + 16 + 8, size);
  std::memset(file.data() + kProviderRelocations + 16, 0xff, size - 16);
  EXPECT_EQ(read(file, "mlx5"), (fabric::AbiRange{1, 1}));
}

}  // namespace
