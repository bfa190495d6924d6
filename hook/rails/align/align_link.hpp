#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "hook/rails/align/align.hpp"

namespace hook {

// Everything that touches the kernel. rail: position in the rails given to run_alignment().
class AlignLink {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~AlignLink() = default;
  // The address of the rail, with the routes and rules that hang on it. Removing what is not there and adding what is
  // there already is success.
  virtual fabric::Result<void> remove_address(std::size_t rail) = 0;
  virtual fabric::Result<void> add_address(std::size_t rail) = 0;
  // Placeholders number from..to - 1, in ascending order.
  virtual fabric::Result<void> add_placeholders(std::size_t rail, unsigned from, unsigned to) = 0;
  // Success when it is not there.
  virtual fabric::Result<void> remove_placeholder(std::size_t rail, unsigned number) = 0;
  // As read_gid_table().
  virtual fabric::Result<GidTable> read(std::size_t rail, const std::vector<fabric::Address>& wanted,
                                        unsigned at_least) = 0;
  // Between two readings; about a millisecond.
  virtual void wait() = 0;
  virtual Clock::time_point now() { return Clock::now(); }
};

}  // namespace hook
