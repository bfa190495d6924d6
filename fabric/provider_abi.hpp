// Reads from the file of a libibverbs provider which versions of the kernel's ABI the provider accepts.
//
// libibverbs compares /sys/class/infiniband_verbs/uverbsN/abi_version with the range in the provider's
// `struct verbs_device_ops`, and finds no HCA outside of it (libibverbs/init.c, match_device(), rdma-core 59). No
// symbol names the structure, which starts with a pointer to the provider's name, followed by minimum and maximum, and
// by pointers to tables and functions (libibverbs/driver.h). The relocations of the file show where pointers are.
#pragma once

#include <optional>
#include <string_view>

namespace fabric {

// Versions of the kernel's ABI of one driver.
struct AbiRange {
  unsigned min = 0;
  unsigned max = 0;
  friend bool operator==(const AbiRange&, const AbiRange&) = default;
};

// Returns the range of the provider `name` ("mlx5") in an open file. Returns nullopt if the file has no such structure,
// or has two with different ranges. The author of the image controls the file, so each read is bounded.
std::optional<AbiRange> read_provider_abi(int file, std::string_view name);

}  // namespace fabric
