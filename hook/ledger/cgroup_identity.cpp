#include "hook/ledger/cgroup_identity.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sysfs::Directory;

// The container may make groups below its own, but nobody needs as many.
constexpr unsigned kMostGroups = 10000;

// ENODEV: kernfs, of a file whose group was removed.
bool is_removed(int code) {
  return code == ENOENT || code == ENODEV;
}

Error cannot_look_at_cgroup(int code, const std::string& path) {
  return fabric::sys_error(code, "cannot look at the cgroup `{}`", fabric::printable(path));
}

// v2 says it of a whole subtree: "populated 0" in cgroup.events (Documentation/admin-guide/cgroup-v2.rst). nullopt: it
// has no such file, as in v1.
Result<std::optional<bool>> is_populated_v2(const Directory& group, const std::string& path) {
  const auto events = group.read("cgroup.events");
  if (const auto* failed = std::get_if<fabric::Unreadable>(&events)) {
    if (is_removed(failed->code)) return std::optional<bool>();
    return cannot_look_at_cgroup(failed->code, path);
  }
  for (const std::string_view line : fabric::split(std::get<std::string>(events), '\n')) {
    if (line == "populated 0") return std::optional(false);
  }
  return std::optional(true);
}

// v1 lists the threads of each group by itself. Threads, since a process whose first thread ended still runs.
Result<bool> is_populated_v1(const Directory& group, const std::string& path, unsigned& left) {
  if (left-- == 0) return cannot_look_at_cgroup(EOVERFLOW, path);
  const auto tasks = group.read("tasks");
  if (const auto* failed = std::get_if<fabric::Unreadable>(&tasks)) {
    if (is_removed(failed->code)) return false;
    return cannot_look_at_cgroup(failed->code, path);
  }
  if (!std::get<std::string>(tasks).empty()) return true;
  int error = 0;
  for (const std::string& name : group.list(&error)) {
    const auto below = group.open_at(name.c_str());
    if (!below && errno == ENOTDIR) continue;
    const std::string below_path = fmt::format("{}/{}", path, name);
    if (!below && !is_removed(errno)) return cannot_look_at_cgroup(errno, below_path);
    if (below && TRY(is_populated_v1(*below, below_path, left))) return true;
  }
  if (error != 0 && !is_removed(error)) return cannot_look_at_cgroup(error, path);
  return false;
}

}  // namespace

Result<CgroupIdentity> identify_cgroup(const std::string& root, const std::string& path) {
  struct stat above {};
  struct stat group {};
  if (::stat(root.c_str(), &above) != 0) return cannot_look_at_cgroup(errno, root);
  if (::stat((root + path).c_str(), &group) != 0) return cannot_look_at_cgroup(errno, root + path);
  return CgroupIdentity{root, above.st_dev, above.st_ino, path, group.st_dev, group.st_ino};
}

Result<Presence> look_at(const CgroupIdentity& cgroup) {
  struct stat status {};
  const auto root = Directory::open(cgroup.root);
  if (!root || ::fstat(root->fd(), &status) != 0) return cannot_look_at_cgroup(errno, cgroup.root);
  if (status.st_dev != cgroup.root_dev || status.st_ino != cgroup.root_ino) {
    Error error = cannot_look_at_cgroup(ESTALE, cgroup.root);
    error.message += ": it is another hierarchy here";
    error.hint = "run it in the node's mount namespace and cgroup namespace";
    return error;
  }
  const std::string path = cgroup.root + cgroup.path;
  const std::size_t name = cgroup.path.find_first_not_of('/');
  const auto group = root->open_at(name == std::string::npos ? "." : cgroup.path.c_str() + name);
  if (!group && is_removed(errno)) return Presence::kGone;
  if (!group || ::fstat(group->fd(), &status) != 0) return cannot_look_at_cgroup(errno, path);
  if (status.st_dev != cgroup.dev || status.st_ino != cgroup.ino) return Presence::kGone;
  if (const auto populated = TRY(is_populated_v2(*group, path)))
    return *populated ? Presence::kPresent : Presence::kGone;
  unsigned left = kMostGroups;
  return TRY(is_populated_v1(*group, path, left)) ? Presence::kPresent : Presence::kGone;
}

Json cgroup_json(const CgroupIdentity& cgroup) {
  return Json{{"root", {{"path", cgroup.root}, {"dev", cgroup.root_dev}, {"ino", cgroup.root_ino}}},
              {"path", cgroup.path},
              {"dev", cgroup.dev},
              {"ino", cgroup.ino}};
}

Result<CgroupIdentity> cgroup_at(const Json& object, const char* name) {
  const Json* value = member(object, name);
  const Json* root = value ? member(*value, "root") : nullptr;
  if (!root) return wrong_member(name);
  TRY_VOID(check_members(*value, {"root", "path", "dev", "ino"}));
  TRY_VOID(check_members(*root, {"path", "dev", "ino"}));
  CgroupIdentity cgroup;
  cgroup.root = TRY(text_at(*root, "path"));
  cgroup.root_dev = TRY(number_at(*root, "dev", UINT64_MAX));
  cgroup.root_ino = TRY(number_at(*root, "ino", UINT64_MAX));
  cgroup.path = TRY(text_at(*value, "path"));
  cgroup.dev = TRY(number_at(*value, "dev", UINT64_MAX));
  cgroup.ino = TRY(number_at(*value, "ino", UINT64_MAX));
  return cgroup;
}

}  // namespace hook
