#include "shim/ttrpc/reserved_buffer.hpp"

#include <sys/mman.h>

#include <cerrno>

namespace shim {
namespace {

constexpr std::size_t kKept = std::size_t{64} << 10;  // a multiple of every page size that Linux has

}  // namespace

fabric::Result<ReservedBuffer> ReservedBuffer::reserve(std::size_t size) {
  void* start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return fabric::sys_error(errno, "cannot reserve {} bytes for messages", size);
  return ReservedBuffer(std::span(static_cast<char*>(start), size));
}

ReservedBuffer::~ReservedBuffer() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

void ReservedBuffer::release(std::size_t used) {
  if (used <= kKept || used > bytes_.size()) return;
  ::madvise(bytes_.data() + kKept, used - kKept, MADV_DONTNEED);
}

}  // namespace shim
