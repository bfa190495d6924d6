#include "hook/admin/cluster/config_source.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <ctime>
#include <deque>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

constexpr const char* kConfigName = "config.json";
constexpr unsigned kMostLinks = 8;
constexpr int kTries = 5;
constexpr timespec kBetweenTries{.tv_sec = 0, .tv_nsec = 20'000'000};

Error leads_out(const std::string& file) {
  return {fmt::format("cannot open `{}`: a symbolic link leads out of its directory, or in a circle", printable(file)),
          ELOOP, "mount the ConfigMap as that directory"};
}

// Returns the target of a link; nullopt: the name is not a link, or no longer one.
std::optional<std::string> target_of(int directory, const std::string& name) {
  auto target = base::read_link(directory, name.c_str());
  // readlinkat(2) truncates silently: a full buffer means that the target is too long.
  if (target && target->size() == PATH_MAX) target.reset();
  return target;
}

// Opens a file inside of the directory without openat2(2), which RHEL 8 lacks. The kernel follows no link, and no
// component is "..", so the file cannot be outside of the directory.
Result<UniqueFd> open_inside(const std::string& directory, const std::string& file) {
  UniqueFd at(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!at.ok()) return sys_error(errno, "open `{}`", printable(directory));
  std::deque<std::string> rest{kConfigName};
  unsigned links = 0;
  for (;;) {
    const std::string name = std::move(rest.front());
    rest.pop_front();
    struct stat seen {};
    if (::fstatat(at.get(), name.c_str(), &seen, AT_SYMLINK_NOFOLLOW) != 0)
      return sys_error(errno, "open `{}`", printable(file));
    if (S_ISLNK(seen.st_mode)) {
      const auto target = target_of(at.get(), name);
      if (!target) return sys_error(ENOENT, "open `{}`", printable(file));
      // A ConfigMap has two links, config.json and ..data. The limit ends a circle of links.
      if (++links > kMostLinks || target->starts_with('/')) return leads_out(file);
      const auto parts = base::split(*target, '/');
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (*part == "..") return leads_out(file);
        if (!part->empty() && *part != ".") rest.emplace_front(*part);
      }
      if (rest.empty()) return leads_out(file);
      continue;
    }
    const bool last = rest.empty();
    if (last && !S_ISREG(seen.st_mode))
      return Error{fmt::format("cannot open `{}`: not a regular file", printable(file)), EINVAL,
                   "mount the ConfigMap as that directory"};
    // Directories are opened with O_PATH, which needs no read permission.
    const int how = last ? base::kReadFlags : O_PATH | O_DIRECTORY;
    UniqueFd next(::openat(at.get(), name.c_str(), how | O_NOFOLLOW | O_CLOEXEC));
    if (!next.ok()) return sys_error(errno, "open `{}`", printable(file));
    // Checks the type again: another file may have replaced this one since fstatat(2).
    if (last && (::fstat(next.get(), &seen) != 0 || !S_ISREG(seen.st_mode)))
      return sys_error(ENOENT, "open `{}`", printable(file));
    if (last) return next;
    at = std::move(next);
  }
}

}  // namespace

Result<std::string> read_cluster_config(const std::string& directory) {
  const std::string file = directory + "/" + kConfigName;
  for (int left = kTries;; --left) {
    auto open = open_inside(directory, file);
    if (open) return read_text_fd(open->get(), kLongestClusterConfig, -1, "`" + printable(file) + "`");
    const int code = open.error().code;
    // The kubelet can remove the old directory during the read, as soon as ..data points to the new one. The next try
    // reads the new one.
    if (!base::is_absent(code) || left == 0) return std::move(open).error();
    ::nanosleep(&kBetweenTries, nullptr);
  }
}

Result<void> ConfigWatch::renew() {
  struct stat now {};
  const UniqueFd directory(::open(directory_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  // The directory is opened and then watched by descriptor, so that inode and watch belong to the same directory.
  if (!directory.ok() || ::fstat(directory.get(), &now) != 0) {
    const int code = errno;
    watch_.reset();
    return sys_error(code, "open `{}`", printable(directory_));
  }
  if (watch_.ok() && now.st_dev == device_ && now.st_ino == inode_) return {};
  watch_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  // The kubelet replaces files only by rename. IN_CLOSE_WRITE is for a config.json that another program writes in
  // place.
  constexpr std::uint32_t kEvents =
      IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
  const std::string path = fmt::format("/proc/self/fd/{}", directory.get());
  if (!watch_.ok() || ::inotify_add_watch(watch_.get(), path.c_str(), kEvents) < 0) {
    const int code = errno;
    watch_.reset();
    return sys_error(code, "watch `{}`", printable(directory_));
  }
  device_ = now.st_dev;
  inode_ = now.st_ino;
  return {};
}

void ConfigWatch::take() const {
  alignas(inotify_event) std::array<char, 4096> events;
  // The content of events does not matter, because the caller reads the whole file again.
  while (::read(watch_.get(), events.data(), events.size()) > 0) {
  }
}

}  // namespace hook
