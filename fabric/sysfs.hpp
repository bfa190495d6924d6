// Reading attributes from sysfs and procfs, relative to open directories so that a table of 256 GIDs costs no path
// walk. Every failure is a value (an errno): attributes come and go while a device is unplugged.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"

namespace fabric::sysfs {

// Calls use(name) with each but "." and "..", from where the descriptor is, until it returns false. Moves its position.
// False, and errno: the directory cannot be read. Not readdir(3), which wants a description and a stream of its own:
// five more system calls, for directories of one or two entries of which a start reads dozens.
template <typename Use>
bool next_names(int directory, Use use) {
  alignas(dirent64) char buffer[8192];
  for (;;) {
    const ssize_t count = ::getdents64(directory, buffer, sizeof buffer);
    if (count <= 0) return count == 0;
    for (std::size_t at = 0; at < static_cast<std::size_t>(count);) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      const std::string_view name(entry->d_name);
      if (name != "." && name != ".." && !use(name)) return true;
    }
  }
}

// The same from the first.
template <typename Use>
bool each_name(int directory, Use use) {
  return ::lseek(directory, 0, SEEK_SET) == 0 && next_names(directory, use);
}

class Directory {
 public:
  // nullopt with errno set when path cannot be opened as a directory.
  static std::optional<Directory> open(const std::string& path);
  // path: below the directory `at`.
  static std::optional<Directory> open(int at, const char* path);
  std::optional<Directory> open_at(const char* name) const { return open(fd_.get(), name); }

  // The attribute without trailing white space; at most a page, as the kernel prints them.
  Attr<std::string> read(const char* name) const;
  // The same without an allocation, as far as it fits.
  Attr<std::string_view> read_into(const char* name, std::span<char> buffer) const;
  // read(), with an unreadable or empty attribute as nullopt.
  std::optional<std::string> read_text(const char* name) const;
  std::optional<int> read_int(const char* name) const;
  // The target of a symbolic link, as stored; nullopt with errno set.
  std::optional<std::string> read_link(const char* name) const;
  // The last component of that target: the driver of .../driver, the PCI address of .../device.
  std::optional<std::string> read_link_name(const char* name) const;
  bool contains(const char* name) const;
  // Entries without "." and "..", in natural order ("mlx5_2" before "mlx5_10").
  // error: takes the errno where the directory cannot be read whole, and is left alone otherwise.
  std::vector<std::string> list(int* error = nullptr) const;
  int fd() const { return fd_.get(); }

 private:
  explicit Directory(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  mutable bool listed_ = false;
};

// Everything that can be read from a descriptor, at most limit bytes; EFBIG beyond it.
Attr<std::string> read_all(int fd, std::size_t limit);

// The content of a file of at most limit bytes: for files that are longer than an attribute. EFBIG beyond it.
Attr<std::string> read_file(const std::string& path, std::size_t limit);

}  // namespace fabric::sysfs
