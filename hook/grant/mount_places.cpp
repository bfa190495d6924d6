#include "hook/grant/mount_places.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "hook/apply/live/container_root.hpp"

namespace hook {
namespace {

// Distributions link this directory to /run.
constexpr std::string_view kLink = "/var/run";
constexpr std::string_view kTarget = "/run";

std::string usual_place(const std::string& path) {
  const bool is_linked = path.starts_with(kLink) && (path.size() == kLink.size() || path[kLink.size()] == '/');
  return is_linked ? std::string(kTarget) + path.substr(kLink.size()) : path;
}

UniqueFd open_below(int root, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<__u64>(flags | O_PATH | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
}

std::string path_of(int fd) {
  return base::read_link(AT_FDCWD, fmt::format("/proc/self/fd/{}", fd).c_str()).value_or("");
}

// Returns the path with the links of the image followed. Components that do not exist stay. nullopt: unknown, for
// example behind a link to a missing directory, which the runtime may make.
std::optional<std::string> place_in(int root, std::string path) {
  std::string missing;
  while (true) {
    const UniqueFd found = open_below(root, path, 0);
    if (found.ok()) {
      const std::string base = path_of(root);
      const std::string place = path_of(found.get());
      if (base.empty() || !place.starts_with(base)) return std::nullopt;
      return place.substr(base.size()) + missing;
    }
    if (errno == ENOSYS || errno == EPERM) return usual_place(path + missing);
    const std::size_t slash = path.rfind('/');
    if (errno != ENOENT || slash == std::string::npos || open_below(root, path, O_NOFOLLOW).ok()) return std::nullopt;
    missing.insert(0, path.substr(slash));
    path.resize(slash);
    if (path.empty()) path = "/";
  }
}

Error nothing_at(const std::string& at, const std::string& why, const char* hint) {
  return Error{fmt::format("nothing is mounted at `{}`: {}", at, why), EROFS, hint};
}

}  // namespace

std::optional<Error> cannot_mount(const std::vector<std::string>& directories, const std::vector<SpecMount>& mounts,
                                  const std::string& rootfs) {
  const UniqueFd root(rootfs.empty() ? -1 : ::open(rootfs.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::vector<SpecMount> placed = mounts;
  for (SpecMount& mount : placed) {
    const auto place = root.ok() ? place_in(root.get(), mount.destination) : usual_place(mount.destination);
    if (!place) {
      return nothing_at(directories.front(),
                        fmt::format("a link of the image leads the mount at `{}` to an unknown place",
                                    base::printable(mount.destination)),
                        "mount the volume at a directory that the image has");
    }
    mount.destination = *place;
  }
  for (const std::string& at : directories) {
    if (is_in_bind(placed, at))
      return nothing_at(at, "it is in a volume of the node", "mount the volume at another path of the container");
    const bool may_be_there =
        !root.ok() || open_in_root(root.get(), at, O_PATH | O_DIRECTORY).ok() || errno == ENOENT || errno == ENOSYS;
    if (!may_be_there)
      return nothing_at(at, "the image has a link or a file there", "use an image with a directory at /run");
  }
  return std::nullopt;
}

}  // namespace hook
