#include "shim/device_plugin/kubelet_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "fabric/text.hpp"

namespace shim {

using fabric::Result;
using fabric::UniqueFd;

FileIdentity file_identity(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino), status.st_ctim.tv_sec,
          status.st_ctim.tv_nsec};
}

Result<KubeletDirectory> KubeletDirectory::open(const std::string& path) {
  KubeletDirectory directory;
  directory.path_ = path;
  directory.lock_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.lock_.ok()) return fabric::sys_error(errno, "cannot open `{}`", fabric::printable(path));
  if (::flock(directory.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    if (code == EWOULDBLOCK)
      return fabric::Error{fmt::format("another rdma-device-plugin serves `{}`", fabric::printable(path)), code};
    return fabric::sys_error(code, "cannot lock `{}`", fabric::printable(path));
  }
  directory.watch_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  constexpr std::uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM;
  if (!directory.watch_.ok() || ::inotify_add_watch(directory.watch_.get(), path.c_str(), kEvents) < 0)
    return fabric::sys_error(errno, "cannot watch `{}`", fabric::printable(path));
  directory.identity_ = file_identity(path);
  return directory;
}

void KubeletDirectory::take() const {
  alignas(inotify_event) std::array<char, 4096> events;
  while (::read(watch_.get(), events.data(), events.size()) > 0) {
  }
}

bool KubeletDirectory::is_there() const {
  const FileIdentity now = file_identity(path_);
  return now.size() == identity_.size() && now[0] == identity_[0] && now[1] == identity_[1];
}

}  // namespace shim
