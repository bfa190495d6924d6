// Files of libibverbs providers, small ones.
#pragma once

#include <elf.h>

#include <cstdint>
#include <string>
#include <vector>

namespace test_support {

// The start of a struct verbs_device_ops.
struct ProviderOps {
  std::string name;
  std::uint32_t min = 0;
  std::uint32_t max = 0;
};

#if defined(__aarch64__)
inline constexpr std::uint16_t kThisMachine = EM_AARCH64;
#else
inline constexpr std::uint16_t kThisMachine = EM_X86_64;
#endif

// Returns a shared library with these structures in its writable segment. packed: with DT_RELR in place of DT_RELA.
std::string provider_library(const std::vector<ProviderOps>& all, bool packed = false,
                             std::uint16_t machine = kThisMachine);

// Offsets of the parts that provider_library() writes.
inline constexpr std::size_t kProviderHeaders = 64;
inline constexpr std::size_t kProviderDynamic = 0x200;
inline constexpr std::size_t kProviderNames = 0x400;
inline constexpr std::size_t kProviderRelocations = 0x800;
inline constexpr std::size_t kProviderData = 0x1000;

}  // namespace test_support
