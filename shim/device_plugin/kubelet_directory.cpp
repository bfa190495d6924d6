#include "shim/device_plugin/kubelet_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>

#include "base/file.hpp"
#include "base/process/root_lock.hpp"
#include "base/text.hpp"

namespace shim {

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
