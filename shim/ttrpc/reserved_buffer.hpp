// Room for the longest message, for as long as the process lives, that costs memory only while such a message is in it:
// a private mapping whose pages are given back. The heap would keep what it once had to grow to.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "fabric/result.hpp"

namespace shim {

class ReservedBuffer {
 public:
  // Errors: no address space, or a node that refuses to overcommit.
  static fabric::Result<ReservedBuffer> reserve(std::size_t size);

  ReservedBuffer(ReservedBuffer&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  ReservedBuffer& operator=(ReservedBuffer&&) = delete;
  ~ReservedBuffer();

  std::span<char> bytes() const { return bytes_; }

  // Gives the pages back of which the first used bytes were written, but for the first few, which the usual messages
  // need again. What the buffer holds is lost.
  void release(std::size_t used);

 private:
  explicit ReservedBuffer(std::span<char> bytes) : bytes_(bytes) {}

  std::span<char> bytes_;
};

}  // namespace shim
