// Files of an image, below a root: whoever wrote the image chose what lies there.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"

namespace init {

inline constexpr std::size_t kMostText = 64 << 10;  // of a file of settings

class Rooted {
 public:
  // root: empty for this machine. Links are followed below it, never out of it.
  explicit Rooted(std::string root) : root_(std::move(root)) {}

  // A regular file; else the errno: EINVAL for what is none, whose open might wait or do something. flags: O_NOFOLLOW
  // refuses a symbolic link as the last component with ELOOP.
  fabric::Attr<fabric::UniqueFd> open(const std::string& path, int flags = 0) const;
  // Its text; EFBIG beyond limit.
  fabric::Attr<std::string> read(const std::string& path, std::size_t limit) const;
  // Calls use(name) with each entry of a directory, 65,536 at most. 0, or the errno: EFBIG beyond that, EPERM if
  // trusted(directory) is false. flags: as for open().
  int each_name(const std::string& path, const std::function<void(std::string_view)>& use, int flags = 0,
                bool (*trusted)(int) = nullptr) const;

 private:
  fabric::UniqueFd open_as(const std::string& path, int flags) const;
  std::string root_;
};

// Not there, as opposed to a look that failed.
bool is_gone(int code);

}  // namespace init
