#include "hook/ledger/identities.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/file.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace hook {
namespace {

constexpr std::string_view kProc = "/proc/";

bool is_missing(int code) {
  return base::is_absent(code) || code == ESRCH;
}

std::string directory_part(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1);
}

Error cannot_look(int code, const std::string& path) {
  return sys_error(code, "cannot read the network namespace `{}`", base::printable(path));
}

// Opens the directory of the recorded path, and checks that it is the recorded directory. For a path in procfs, any
// mount of procfs is right: LedgerFiles::open() has checked the PID namespace, so all mounts show the same processes.
Result<UniqueFd> open_noted_directory(const NetnsIdentity& netns) {
  const bool in_proc = netns.path.starts_with(kProc);
  const std::string directory = in_proc ? std::string(kProc) : directory_part(netns.path);
  UniqueFd fd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return cannot_look(errno, netns.path);
  struct statfs system {};
  if (in_proc && ::fstatfs(fd.get(), &system) != 0) return cannot_look(errno, netns.path);
  if (in_proc)
    return system.f_type == PROC_SUPER_MAGIC ? Result<UniqueFd>(std::move(fd)) : cannot_look(ENODEV, netns.path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return cannot_look(errno, netns.path);
  const bool noted = netns.directory_dev != 0 || netns.directory_ino != 0;
  if (!noted || (status.st_dev == netns.directory_dev && status.st_ino == netns.directory_ino)) return fd;
  Error error = cannot_look(ESTALE, netns.path);
  error.message += ": its directory is not the recorded one";
  error.hint =
      "run this command in the node's mount namespace, or in a container that mounts this directory of the node";
  return error;
}

// A container may create any number of cgroups below its own. This limit bounds the time of a lookup.
constexpr unsigned kMostGroups = 10000;

// A read of an open file of a cgroup that was removed fails with ENODEV (kernfs).
bool is_removed(int code) {
  return code == ENOENT || code == ENODEV;
}

Error cannot_read_cgroup(int code, const std::string& path) {
  return sys_error(code, "cannot read the cgroup `{}`", base::printable(path));
}

// Returns true if a process is in the group or below it: in cgroup v2, "populated" in cgroup.events covers the whole
// subtree (Documentation/admin-guide/cgroup-v2.rst). Returns nullopt if there is no such file, as in v1.
Result<std::optional<bool>> is_populated_v2(const Directory& group, const std::string& path) {
  const auto events = group.read("cgroup.events");
  if (const auto* failed = std::get_if<base::Unreadable>(&events)) {
    if (is_removed(failed->code)) return std::optional<bool>();
    return cannot_read_cgroup(failed->code, path);
  }
  for (const std::string_view line : base::split(std::get<std::string>(events), '\n'))
    if (line == "populated 0") return std::optional(false);
  return std::optional(true);
}

// Returns true if a thread is in the cgroup or in one below it. In cgroup v1, each cgroup lists only its own members,
// so the whole tree is read. The file `tasks` lists threads: a process can still run after its first thread has ended.
// left: how many cgroups may still be read.
Result<bool> is_populated_v1(const Directory& group, const std::string& path, unsigned& left) {
  if (left-- == 0) return cannot_read_cgroup(EOVERFLOW, path);
  const auto tasks = group.read("tasks");
  if (const auto* failed = std::get_if<base::Unreadable>(&tasks)) {
    if (is_removed(failed->code)) return false;
    return cannot_read_cgroup(failed->code, path);
  }
  if (!std::get<std::string>(tasks).empty()) return true;
  int error = 0;
  for (const std::string& name : group.list(&error)) {
    const auto below = group.open_at(name.c_str());
    if (!below && errno == ENOTDIR) continue;
    const std::string below_path = fmt::format("{}/{}", path, name);
    if (!below && !is_removed(errno)) return cannot_read_cgroup(errno, below_path);
    if (below && TRY(is_populated_v1(*below, below_path, left))) return true;
  }
  if (error != 0 && !is_removed(error)) return cannot_read_cgroup(error, path);
  return false;
}

}  // namespace

Result<NetnsIdentity> identify_netns(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return cannot_look(errno, path);
  NetnsIdentity netns{.dev = status.st_dev, .ino = status.st_ino, .path = path};
  if (path.starts_with(kProc)) return netns;
  if (::stat(directory_part(path).c_str(), &status) != 0) return cannot_look(errno, path);
  netns.directory_dev = status.st_dev;
  netns.directory_ino = status.st_ino;
  return netns;
}

Result<Presence> read_presence(const NetnsIdentity& netns) {
  struct stat status {};
  const auto is_it = [&] { return status.st_dev == netns.dev && status.st_ino == netns.ino; };
  if (::stat(netns.path.c_str(), &status) == 0 && is_it()) return Presence::kPresent;
  // One descriptor serves both the check of the directory and the lookup in it. Otherwise a mount over the directory
  // between the two could make the path seem missing.
  const UniqueFd directory = TRY(open_noted_directory(netns));
  const std::size_t above = netns.path.starts_with(kProc) ? kProc.size() : directory_part(netns.path).size();
  if (::fstatat(directory.get(), netns.path.c_str() + above, &status, 0) == 0)
    return is_it() ? Presence::kPresent : Presence::kAbsent;
  return is_missing(errno) ? Result<Presence>(Presence::kAbsent) : cannot_look(errno, netns.path);
}

Result<CgroupIdentity> identify_cgroup(const std::string& root, const std::string& path) {
  struct stat above {};
  struct stat group {};
  if (::stat(root.c_str(), &above) != 0) return cannot_read_cgroup(errno, root);
  if (::stat((root + path).c_str(), &group) != 0) return cannot_read_cgroup(errno, root + path);
  return CgroupIdentity{root, above.st_dev, above.st_ino, path, group.st_dev, group.st_ino};
}

Result<Presence> read_presence(const CgroupIdentity& cgroup) {
  struct stat status {};
  const auto root = Directory::open(cgroup.root);
  if (!root || ::fstat(root->fd(), &status) != 0) return cannot_read_cgroup(errno, cgroup.root);
  if (status.st_dev != cgroup.root_dev || status.st_ino != cgroup.root_ino) {
    Error error = cannot_read_cgroup(ESTALE, cgroup.root);
    error.message += ": it is not the recorded hierarchy";
    error.hint = "run this command in the node's mount namespace and cgroup namespace";
    return error;
  }
  const std::string path = cgroup.root + cgroup.path;
  const std::size_t name = cgroup.path.find_first_not_of('/');
  const auto group = root->open_at(name == std::string::npos ? "." : cgroup.path.c_str() + name);
  if (!group && is_removed(errno)) return Presence::kAbsent;
  if (!group || ::fstat(group->fd(), &status) != 0) return cannot_read_cgroup(errno, path);
  if (status.st_dev != cgroup.dev || status.st_ino != cgroup.ino) return Presence::kAbsent;
  if (const auto populated = TRY(is_populated_v2(*group, path)))
    return *populated ? Presence::kPresent : Presence::kAbsent;
  unsigned left = kMostGroups;
  return TRY(is_populated_v1(*group, path, left)) ? Presence::kPresent : Presence::kAbsent;
}

}  // namespace hook
