#include "base/rooted.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace base {
namespace {

constexpr std::size_t kMostEntries = 1 << 16;

}  // namespace

UniqueFd Rooted::open_as(const std::string& path, int flags) const {
  if (root_.empty()) return UniqueFd(::open(path.c_str(), flags));
  const UniqueFd root(::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.ok()) return {};
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  // The kernel resolves absolute links and ".." below the root, also while another process renames directories.
  // openat2() needs Linux 5.6.
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof how)));
}

Attr<UniqueFd> Rooted::open(const std::string& path, int flags) const {
  // O_PATH has no effect on a device or FIFO, so the type is checked before the real open.
  const UniqueFd seen = open_as(path, O_PATH | O_CLOEXEC | flags);
  struct stat info {};
  if (!seen.ok() || ::fstat(seen.get(), &info) != 0) return Unreadable{errno};
  if (!S_ISREG(info.st_mode)) return Unreadable{S_ISLNK(info.st_mode) ? ELOOP : EINVAL};
  UniqueFd file = open_as(path, kReadFlags | flags);
  if (!file.ok()) return Unreadable{errno};
  return file;
}

Attr<std::string> Rooted::read(const std::string& path, std::size_t limit) const {
  auto file = open(path);
  if (const auto* failed = std::get_if<Unreadable>(&file)) return *failed;
  return read_all(std::get<UniqueFd>(file).get(), limit);
}

int Rooted::each_name(const std::string& path, const std::function<void(std::string_view)>& use, int flags,
                      bool (*trusted)(int)) const {
  const UniqueFd directory = open_as(path, kReadFlags | O_DIRECTORY | flags);
  if (!directory.ok() && errno == ENOTDIR && (flags & O_NOFOLLOW) != 0) {
    // O_DIRECTORY with O_NOFOLLOW fails with ENOTDIR on a symbolic link as on a file, so the type is checked.
    const UniqueFd seen = open_as(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    struct stat info {};
    return seen.ok() && ::fstat(seen.get(), &info) == 0 && S_ISLNK(info.st_mode) ? ELOOP : ENOTDIR;
  }
  if (!directory.ok()) return errno;
  // The check uses the open descriptor, so a rename in between has no effect.
  if (trusted && !trusted(directory.get())) return EPERM;
  std::size_t count = 0;
  const bool read = next_names(directory.get(), [&](std::string_view name) {
    if (++count <= kMostEntries) use(name);
    return count <= kMostEntries;
  });
  return !read ? errno : count > kMostEntries ? EFBIG : 0;
}

Attr<std::string> read_below(const std::string& root, const std::string& path, std::size_t limit) {
  return root.empty() ? read_file(path, limit) : Rooted(root).read(path, limit);
}

bool is_absent(int code) {
  return code == ENOENT || code == ENOTDIR;
}

}  // namespace base
