#include "support/provider_file.hpp"

#include <cstring>

namespace test_support {
namespace {

constexpr std::uint64_t kDataAddress = 0x5000;  // another one than its offset
constexpr std::size_t kOpsSize = 72;

template <typename Entry>
void put(std::string& file, std::size_t offset, const Entry& entry) {
  if (file.size() < offset + sizeof entry) file.resize(offset + sizeof entry);
  std::memcpy(file.data() + offset, &entry, sizeof entry);
}

Elf64_Phdr segment(std::uint32_t type, std::uint32_t flags, std::uint64_t offset, std::uint64_t address,
                   std::uint64_t size) {
  return {type, flags, offset, address, address, size, size, 8};
}

}  // namespace

std::string provider_library(const std::vector<ProviderOps>& all, bool packed, std::uint16_t machine) {
  const std::size_t data_size = all.size() * kOpsSize;
  std::string file(kProviderData + data_size, '\0');
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_machine = machine;
  header.e_phoff = kProviderHeaders;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 3;
  put(file, 0, header);
  put(file, kProviderHeaders, segment(PT_LOAD, PF_R, 0, 0, kProviderData));
  put(file, kProviderHeaders + 56, segment(PT_LOAD, PF_R | PF_W, kProviderData, kDataAddress, data_size));
  put(file, kProviderHeaders + 112,
      segment(PT_DYNAMIC, PF_R, kProviderDynamic, kProviderDynamic, 3 * sizeof(Elf64_Dyn)));

  std::size_t name = kProviderNames;
  std::size_t relocation = kProviderRelocations;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t ops = kProviderData + i * kOpsSize;
    std::memcpy(file.data() + name, all[i].name.c_str(), all[i].name.size() + 1);
    put(file, ops + 8, all[i].min);
    put(file, ops + 12, all[i].max);
    // Pointers: name, match_table, alloc_context, alloc_device.
    for (const std::size_t member : {0U, 16U, 40U, 56U}) {
      const std::uint64_t address = kDataAddress + i * kOpsSize + member;
      const std::uint64_t target = member == 0 ? name : 0x100;
      if (packed) {
        put(file, ops + member, target);
        if (member != 0) continue;
        // The address of `name`, then one bit for each word after it: words 2, 5 and 7 of the structure.
        put(file, relocation, address);
        put(file, relocation + 8, std::uint64_t{(1U << 1 | 1U << 4 | 1U << 6) << 1 | 1});
        relocation += 16;
      } else {
        const std::uint64_t type = machine == EM_AARCH64 ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE;
        put(file, relocation, Elf64_Rela{address, type, static_cast<std::int64_t>(target)});
        relocation += sizeof(Elf64_Rela);
      }
    }
    name += all[i].name.size() + 1;
  }
  const auto tag = [&](std::size_t index, std::int64_t type, std::uint64_t value) {
    put(file, kProviderDynamic + index * 16, Elf64_Dyn{type, {value}});
  };
  tag(0, packed ? DT_RELR : DT_RELA, kProviderRelocations);
  tag(1, packed ? DT_RELRSZ : DT_RELASZ, relocation - kProviderRelocations);
  return file;
}

}  // namespace test_support
