// Opens, reads, lists and creates files, relative to open directories: a table of 256 GIDs needs no path lookup per
// slot. Every failure is a value (an errno): attributes of sysfs appear and disappear during hotplug.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

// For a large buffer on the stack that a system call fills before it is read: the programs of the node set each
// variable to zero (-ftrivial-auto-var-init), which takes longer than the call.
#if defined(__has_attribute)
#if __has_attribute(uninitialized)
#define RDMA_INIT_UNSET __attribute__((uninitialized))
#endif
#endif
#ifndef RDMA_INIT_UNSET
#define RDMA_INIT_UNSET
#endif

namespace base {

// O_NONBLOCK is set, because open(2) of a FIFO without a writer would block the start of a container.
inline constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

// The next three functions return an invalid descriptor and set errno on failure. directory: AT_FDCWD for a path.
// Opens a file to read it. flags: O_NOFOLLOW, or none.
inline UniqueFd open_to_read(int directory, const char* name, int flags = 0) {
  return UniqueFd(::openat(directory, name, kReadFlags | flags));
}
// Opens a directory to list it, but not by a symbolic link.
inline UniqueFd open_to_list(int directory, const char* name) {
  return UniqueFd(::openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}
// Creates a file to write it. EEXIST: a file or a symbolic link has this name.
inline UniqueFd create_file(int directory, const char* name, mode_t mode = 0600) {
  return UniqueFd(::openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

// The device and inode number of a file. The two numbers identify the file, whatever path leads to it.
struct FileId {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};

// Returns random bits, as for the name of a temporary file. Returns nullopt and sets errno on failure. Until the
// kernel's generator is seeded, getrandom(2) waits, and a signal may interrupt the wait.
template <typename Bits>
std::optional<Bits> random_bits() {
  Bits bits{};
  const ssize_t count = TEMP_FAILURE_RETRY(::getrandom(&bits, sizeof bits, 0));
  return count == ssize_t{sizeof bits} ? std::optional(bits) : std::nullopt;
}

// Writes a text to an open file. Returns 0, or the errno of the failed write; a part may then have been written.
int write_all(int fd, std::string_view text);

// Calls use(name, inode number) for each entry except "." and "..", from the current position of the descriptor, until
// use() returns false. Moves the position. Returns false and sets errno if the directory cannot be read.
// This function replaces readdir(3), which needs a separate open file and a stream: five more system calls per
// directory. A start reads dozens of directories with one or two entries.
bool next_entries(int directory, auto use) {
  alignas(dirent64) char buffer[8192] RDMA_INIT_UNSET;
  for (;;) {
    const ssize_t count = ::getdents64(directory, buffer, sizeof buffer);
    if (count <= 0) return count == 0;
    for (std::size_t at = 0; at < static_cast<std::size_t>(count);) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      const std::string_view name(entry->d_name);
      if (name != "." && name != ".." && !use(name, std::uint64_t{entry->d_ino})) return true;
    }
  }
}

// Calls next_entries() with the names.
bool next_names(int directory, auto use) {
  return next_entries(directory, [&](std::string_view name, std::uint64_t) { return use(name); });
}

// Calls next_names() from the first entry.
bool each_name(int directory, auto use) {
  return ::lseek(directory, 0, SEEK_SET) == 0 && next_names(directory, use);
}

// Adds the names of the entries except "." and "..", in no order. Returns false and sets errno if a name may be
// missing.
bool list_names(int directory, std::vector<std::string>& names);

// Reads an attribute of sysfs or procfs without surrounding white space, at most one page: the kernel prints no more.
Attr<std::string> read_attribute(int directory, const char* name);
inline Attr<std::string> read_attribute(const std::string& path) {
  return read_attribute(AT_FDCWD, path.c_str());
}
// Reads an attribute into `buffer` without an allocation; longer text is cut.
Attr<std::string_view> read_into(int directory, const char* name, std::span<char> buffer);
// Returns the target of a symbolic link, not resolved, at most one page. Returns nullopt and sets errno on failure.
std::optional<std::string> read_link(int directory, const char* name);

// As long as an object of this class lives, this thread closes the descriptors of Directory and read_into() only at its
// end, or when there are many: neighbouring ones with one system call. Objects can be nested; the inner one has no
// effect.
class LateClose {
 public:
  LateClose();
  LateClose(const LateClose&) = delete;
  LateClose& operator=(const LateClose&) = delete;
  ~LateClose();
  // Closes the descriptor, at once if no object lives. Keeps errno.
  static void close(UniqueFd fd);

 private:
  bool is_outermost_;
};

// Closes the descriptors, with one system call for neighbouring numbers (close_range(2), Linux 5.9). Empties the list.
void close_all(std::vector<int>& fds);

// Times of changes. The kernel takes them from a clock with steps of up to 10 ms (inode_set_ctime_current() of
// fs/inode.c), so two changes can have the same time.
class ChangeStep {
 public:
  // Takes the present step. Call it before the times are read.
  ChangeStep();
  // Returns true if a change from now on gets a later time: the time is from an earlier step. A time without
  // nanoseconds may come from a file system that counts seconds, and returns false.
  bool is_after(const timespec& time) const;

 private:
  timespec step_{};
};

class Directory {
 public:
  Directory(Directory&&) = default;
  Directory& operator=(Directory&&) = default;
  ~Directory() { LateClose::close(std::move(fd_)); }

  // Opens a directory. Returns nullopt and sets errno if path cannot be opened as a directory.
  static std::optional<Directory> open(const std::string& path);
  // Opens a directory below the directory `at`.
  static std::optional<Directory> open(int at, const char* path);
  std::optional<Directory> open_at(const char* name) const { return open(fd_.get(), name); }

  Attr<std::string> read(const char* name) const { return read_attribute(fd_.get(), name); }
  Attr<std::string_view> read_into(const char* name, std::span<char> buffer) const {
    return base::read_into(fd_.get(), name, buffer);
  }
  // Reads an attribute. Returns nullopt if it is unreadable or empty.
  std::optional<std::string> read_text(const char* name) const;
  // Reads a decimal integer. Returns nullopt if the attribute is unreadable or not an integer.
  std::optional<int> read_int(const char* name) const;
  std::optional<std::string> read_link(const char* name) const { return base::read_link(fd_.get(), name); }
  // Returns the last component of a link's target: the driver for .../driver, the PCI address for .../device.
  std::optional<std::string> read_link_name(const char* name) const;
  bool contains(const char* name) const;
  // Returns whether a directory below this one has exactly one subdirectory. Reads only its link count: sysfs counts 2
  // and each subdirectory, also those that another network namespace hides from the listing (kernfs_refresh_inode() of
  // fs/kernfs/inode.c, Linux 6.12). Returns false too if the count is not known: btrfs and overlay report 1.
  bool has_one_directory(const char* name) const;
  // Returns the entries without "." and "..", in natural order ("mlx5_2" before "mlx5_10"). error: receives the errno
  // if the list is incomplete, and is not changed otherwise.
  std::vector<std::string> list(int* error = nullptr) const;
  int fd() const { return fd_.get(); }

 private:
  explicit Directory(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  mutable bool listed_ = false;
};

// Reads `size` bytes, or to the end of the file. Returns the number of bytes; -1 and errno if a read fails.
ssize_t read_bytes(int fd, char* to, std::size_t size);
// Reads a descriptor to its end. Errors: EFBIG above `limit` bytes, EISDIR, the errno of read(2).
Attr<std::string> read_all(int fd, std::size_t limit);

inline constexpr std::size_t kMostText = 64 << 10;  // limit in bytes for a settings file, or a process's file in /proc

// Reads a file of at most `limit` bytes. Errors: those of read_all(), or the errno of open(2).
Attr<std::string> read_file(const std::string& path, std::size_t limit);

// Returns whether this process is in the initial user namespace. The map of that namespace has one line with all
// 4,294,967,295 ids (user_namespaces(7)). Returns nullopt if the map cannot be read.
std::optional<bool> is_in_initial_userns();

}  // namespace base
