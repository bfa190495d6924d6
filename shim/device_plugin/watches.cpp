#include "shim/device_plugin/watches.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "base/file.hpp"
#include "base/process/root_lock.hpp"
#include "base/text.hpp"

namespace shim {

bool FileEvents::watch(const std::vector<std::string>& directories) {
  if (!watch_.ok()) watch_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watch_.ok()) return false;
  constexpr std::uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_CLOSE_WRITE | IN_ATTRIB |
                                    IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
  const auto add = [&](const std::string& path) {
    return ::inotify_add_watch(watch_.get(), path.c_str(), kEvents) >= 0;
  };
  bool complete = true;
  for (const std::string& directory : directories) {
    // The parent is watched before the second attempt, so that a directory that is made meanwhile is not missed.
    if (add(directory) || (errno == ENOENT && add(base::parent_of(directory)) && (add(directory) || errno == ENOENT)))
      continue;
    complete = false;
  }
  return complete;
}

bool FileEvents::take() const {
  alignas(inotify_event) std::array<char, 4096> events;
  bool any = false;
  while (::read(watch_.get(), events.data(), events.size()) > 0)
    any = true;
  return any;
}

FileIdentity file_identity(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  // ctime tells a new socket from a removed one, whose inode number the kernel may reuse at once.
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino), status.st_ctim.tv_sec,
          status.st_ctim.tv_nsec};
}

namespace {

constexpr std::chrono::milliseconds kNoWait{0};
constexpr const char* kInnerDirectory = ".rdma-device-plugin";

Error another_serves(const std::string& path) {
  return Error{fmt::format("another rdma-device-plugin serves `{}`", base::printable(path)), EWOULDBLOCK,
               "stop the other one: a node runs it as a DaemonSet or as a service, not both"};
}

// Locks the kubelet's directory. The lock is on a directory and not on a file, because a kubelet that starts removes
// the files. If other users can open the kubelet's directory, they could hold its lock: then the lock is on a directory
// in it that only root can open, and the lock of the kubelet's directory keeps out earlier versions. Returns the
// descriptor of the inner directory; invalid: there is none.
Result<UniqueFd> lock_for_root(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return sys_error(errno, "cannot read `{}`", base::printable(path));
  if (base::is_private(status)) {
    if (!TRY(base::lock_within(fd, kNoWait))) return another_serves(path);
    return UniqueFd();
  }
  if (::mkdirat(fd, kInnerDirectory, 0700) != 0 && errno != EEXIST)
    return sys_error(errno, "cannot make `{}/{}`", base::printable(path), kInnerDirectory);
  UniqueFd inner = base::open_to_list(fd, kInnerDirectory);
  if (!inner.ok() || ::fstat(inner.get(), &status) != 0 || !base::is_private(status))
    return Error{fmt::format("cannot lock `{}/{}`: it is not a directory that only root can open",
                             base::printable(path), kInnerDirectory),
                 EPERM, "remove it, and let only root write its directory"};
  if (!TRY(base::lock_within(inner.get(), kNoWait)) || !base::take_old_lock(fd, path, kNoWait).has_value())
    return another_serves(path);
  return inner;
}

}  // namespace

Result<KubeletDirectory> KubeletDirectory::open(const std::string& path) {
  KubeletDirectory directory;
  directory.path_ = path;
  directory.lock_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.lock_.ok()) return sys_error(errno, "cannot open `{}`", base::printable(path));
  directory.inner_lock_ = TRY(lock_for_root(directory.lock_.get(), path));
  if (!directory.events_.watch({path})) return sys_error(errno, "cannot watch `{}`", base::printable(path));
  directory.identity_ = file_identity(path);
  return directory;
}

bool KubeletDirectory::is_there() const {
  const FileIdentity now = file_identity(path_);
  // ctime is not compared, because it changes with each file that is created or removed in the directory.
  return now.size() == identity_.size() && now[0] == identity_[0] && now[1] == identity_[1];
}

}  // namespace shim
