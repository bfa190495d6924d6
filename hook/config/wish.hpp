// Which HCAs are wanted, in the words that annotations, variables and "default_devices" of config.json share.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "fabric/selectors.hpp"

namespace hook {

inline constexpr std::size_t kMaxValueBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxListEntries = 4096;
inline constexpr unsigned kMaxCount = 1024;

// The value of rdma-init.io/devices, of VISIBLE_DEVICES, or what stands for it.
struct Wish {
  enum class Kind { kNone, kAll, kCount, kList };
  Kind kind = Kind::kNone;
  unsigned count = 0;                   // kCount: HCAs (NICs), at least 1
  fabric::SelectorList selectors = {};  // kList
  std::string source = {};              // for messages: "annotation rdma-init.io/devices"
};

// "all", "none", "void", "4", "mlx5_0,rail:3". Errors name the source. A count is at least 1 and at most kMaxCount.
fabric::Result<Wish> parse_wish(std::string_view text, std::string source);

// Errors: over kMaxValueBytes.
fabric::Result<void> check_size(std::string_view value, std::string_view source);

}  // namespace hook
