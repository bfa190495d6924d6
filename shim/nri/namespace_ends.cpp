#include "shim/nri/namespace_ends.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "fabric/text.hpp"

namespace shim {

using fabric::Result;

Result<NamespaceEnds> NamespaceEnds::open() {
  NamespaceEnds ends;
  ends.events_ = fabric::UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!ends.events_.ok()) return fabric::sys_error(errno, "cannot watch network namespaces");
  return ends;
}

Result<void> NamespaceEnds::watch(const std::string& path) {
  if (!events_.ok() || paths_.contains(path)) return {};
  const std::string directory = path.substr(0, path.rfind('/'));
  const int watch = ::inotify_add_watch(events_.get(), directory.c_str(), IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR);
  if (watch < 0) return fabric::sys_error(errno, "cannot watch `{}`", fabric::printable(directory));
  directories_[watch] = directory;
  paths_.insert(path);
  return {};
}

bool NamespaceEnds::take() {
  bool any = false;
  alignas(inotify_event) std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t count = events_.ok() ? ::read(events_.get(), buffer.data(), buffer.size()) : -1;
    if (count <= 0) return any;
    for (std::size_t at = 0; at < static_cast<std::size_t>(count);) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const std::string_view name(buffer.data() + at + sizeof event, event.len);
      at += sizeof event + event.len;
      any = any || (event.mask & (IN_Q_OVERFLOW | IN_IGNORED)) != 0;
      const auto directory = directories_.find(event.wd);
      if (directory == directories_.end()) continue;
      any = paths_.erase(fmt::format("{}/{}", directory->second, name.substr(0, name.find('\0')))) > 0 || any;
      if ((event.mask & IN_IGNORED) != 0) directories_.erase(directory);
    }
  }
}

}  // namespace shim
