#include "hook/apply/live/open_in_root.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::UniqueFd;

// The names in an absolute path; nullopt when the path is not absolute, or has "." or "..".
std::optional<std::vector<std::string>> components(const std::string& path) {
  if (!path.starts_with('/')) return std::nullopt;
  std::vector<std::string> names;
  for (const std::string_view name : fabric::split(path, '/')) {
    if (name == "." || name == "..") return std::nullopt;
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

UniqueFd fail(int code) {
  errno = code;
  return UniqueFd();
}

bool is_symlink(int directory, const char* name) {
  struct stat status {};
  return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
}

UniqueFd walk(int root, const std::vector<std::string>& names, int flags) {
  UniqueFd at(openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (std::size_t i = 0; i < names.size() && at.ok(); ++i) {
    const bool last = i + 1 == names.size();
    const char* name = names[i].c_str();
    const int how = last ? flags : O_PATH | O_DIRECTORY;
    UniqueFd next(openat(at.get(), name, how | O_NOFOLLOW | O_CLOEXEC));
    const int code = errno;
    // O_PATH opens a symlink itself, and O_DIRECTORY calls it ENOTDIR.
    if ((next.ok() || code == ENOTDIR) && is_symlink(at.get(), name)) return fail(ELOOP);
    if (!next.ok()) return fail(code);
    at = std::move(next);
  }
  return at;
}

}  // namespace

UniqueFd open_in_root(int root, const std::string& path, int flags, Resolver resolver) {
  const auto names = components(path);
  if (!names) return fail(EINVAL);
  if (resolver == Resolver::kOpenat2) {
    open_how how{};
    // Not O_NOFOLLOW: with it, O_PATH would open a symlink at the end and O_DIRECTORY say ENOTDIR.
    how.flags = static_cast<__u64>((flags & ~O_NOFOLLOW) | O_CLOEXEC);
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    UniqueFd fd(static_cast<int>(syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
    // EPERM: seccomp profiles around us that do not know it.
    if (fd.ok() || (errno != ENOSYS && errno != EPERM)) return fd;
  }
  return walk(root, *names, flags);
}

std::optional<FileId> file_id(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return std::nullopt;
  return FileId{status.st_dev, status.st_ino};
}

}  // namespace hook
