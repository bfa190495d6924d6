#include "hook/apply/live/container_root.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/process/mountinfo.hpp"
#include "base/result.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

std::string normal(const std::string& path) {
  std::string text = std::filesystem::path("/" + path).lexically_normal().string();
  // Leading slashes count as one, trailing slashes as none.
  text.erase(0, text.find_first_not_of('/'));
  while (text.ends_with('/'))
    text.pop_back();
  return "/" + text;
}

// Returns whether the path is the directory or below it. Compares whole components: "/devices" is not below "/dev".
bool is_at_or_below(const std::string& path, const std::string& directory) {
  return directory == "/" || path == directory || path.starts_with(directory + "/");
}

}  // namespace

std::optional<Mounted> mounted(int fd) {
  struct statx status {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &status) != 0) return std::nullopt;
  Mounted result;
  result.file = {makedev(status.stx_dev_major, status.stx_dev_minor), status.stx_ino};
  result.links = status.stx_nlink;
  if ((status.stx_mask & STATX_MNT_ID) != 0) result.id = status.stx_mnt_id;
  result.is_root = (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  return result;
}

bool is_shared(std::string_view mountinfo, std::uint64_t id) {
  // If the kernel reports no id (before Linux 5.8), `id` is 0: any shared mount counts.
  if (id != 0) {
    if (const auto line = base::find_mount(mountinfo, id)) return line->shared;
  }
  const auto lines = base::split(mountinfo, '\n');
  return std::ranges::any_of(lines, [](std::string_view text) {
    const auto line = base::parse_mount_line(text);
    return line && line->shared;
  });
}

bool lies_on(std::string_view mountinfo, std::uint64_t id, std::uint64_t below) {
  const auto line = base::find_mount(mountinfo, id);
  return line && line->parent == below;
}

bool has_own_dev(const std::vector<SpecMount>& mounts) {
  return std::ranges::any_of(
      mounts, [](const SpecMount& mount) { return !mount.is_bind && normal(mount.destination) == "/dev"; });
}

bool is_in_bind(const std::vector<SpecMount>& mounts, const std::string& path) {
  const std::string wanted = normal(path);
  std::size_t longest = 0;
  bool bind = false;
  for (const SpecMount& mount : mounts) {
    const std::string destination = normal(mount.destination);
    // The mount with the longest destination is the innermost one. A later mount with the same destination covers it.
    if (!is_at_or_below(wanted, destination) || destination.size() < longest) continue;
    longest = destination.size();
    bind = mount.is_bind;
  }
  return bind;
}

Result<void> check_not_shared(int fd, std::string_view mountinfo, const std::string& path) {
  const auto here = mounted(fd);
  if (!here) return sys_error(errno, "cannot read the mount of `{}` in the container", path);
  return check_not_shared(*here, mountinfo, path);
}

Result<void> check_not_shared(const Mounted& here, std::string_view mountinfo, const std::string& path) {
  if (!is_shared(mountinfo, here.id)) return {};
  const bool view = path.starts_with("/sys/");
  return Error{fmt::format("`{}` in the container is shared with the node (rootfsPropagation): a mount there "
                           "would appear on the node",
                           path),
               EBUSY,
               view ? "set \"sysfs_view\": false, or mount `/sys` and the root file system without rshared"
                    : "mount that directory and the root file system without rshared"};
}

bool seal_tree(int tree, std::uint64_t set, std::uint64_t clear) {
  mount_attr wanted{};
  wanted.attr_set = set;
  wanted.attr_clr = clear;
  // A clone of open_tree(2) stays in the propagation group of its source: without MS_PRIVATE, later mounts on the
  // source would appear in the container.
  wanted.propagation = MS_PRIVATE;
  return mount_setattr(tree, "", AT_EMPTY_PATH, &wanted, sizeof wanted) == 0;
}

}  // namespace hook
