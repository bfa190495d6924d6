#include "shim/kubelet/file_events.hpp"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

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

}  // namespace shim
