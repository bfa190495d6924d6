// Reads files of an image below a root. The author of the image controls these files, so they are not trusted.
#pragma once

#include <cerrno>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/file.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

class Rooted {
 public:
  // root: empty for this machine. Links are followed below the root, never out of it.
  explicit Rooted(std::string root) : root_(std::move(root)) {}

  // Opens a regular file. Errors: EINVAL for any other type, because such an open might block or have an effect;
  // otherwise the errno. flags: O_NOFOLLOW refuses a symbolic link as the last component with ELOOP.
  Attr<UniqueFd> open(const std::string& path, int flags = 0) const;
  // Reads a regular file. Errors: those of open(), and EFBIG above `limit` bytes.
  Attr<std::string> read(const std::string& path, std::size_t limit) const;
  // Opens a file of any type with `flags`, and closes it. Returns 0 or the errno.
  int probe(const std::string& path, int flags) const { return open_as(path, flags).ok() ? 0 : errno; }
  // Calls use(name) for each entry of a directory, at most 65,536. Returns 0 or the errno: EFBIG above that limit,
  // EPERM if trusted(descriptor) returns false. flags: as for open().
  int each_name(const std::string& path, const std::function<void(std::string_view)>& use, int flags = 0,
                bool (*trusted)(int) = nullptr) const;

 private:
  UniqueFd open_as(const std::string& path, int flags) const;
  std::string root_;
};

// Reads a file that the user may name. root: as in Rooted. Below a root only a regular file is read; on this machine it
// may also be a pipe, which a shell makes for <(command). Errors: those of Rooted::read().
Attr<std::string> read_below(const std::string& root, const std::string& path, std::size_t limit);

// Returns true if the errno means that the file does not exist, as opposed to a failed lookup.
bool is_absent(int code);

}  // namespace base
