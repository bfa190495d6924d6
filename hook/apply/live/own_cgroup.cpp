#include "hook/apply/live/own_cgroup.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/process/cgroup.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

// Returns whether `group` is `other` or an ancestor of it.
bool is_around(const Cgroup& group, const Cgroup& other) {
  if (group.kind != other.kind) return false;
  return group.path == "/" || other.path == group.path || other.path.starts_with(group.path + "/");
}

}  // namespace

bool is_named_by(std::string_view cgroups_path, std::string_view path) {
  const auto parts = base::split(cgroups_path, ':');
  if (parts.size() == 3) {
    // The systemd driver of a runtime appends ".scope" to the name of the unit, unless the name is that of a slice.
    const bool slice = parts[2].ends_with(".slice");
    const std::string unit =
        slice ? std::string(parts[2]) : fmt::format("{}{}{}.scope", parts[1], parts[1].empty() ? "" : "-", parts[2]);
    const auto components = base::split(path, '/');
    return !parts[2].empty() && std::ranges::find(components, unit) != components.end();
  }
  while (cgroups_path.ends_with('/'))
    cgroups_path.remove_suffix(1);
  while (cgroups_path.starts_with('/'))
    cgroups_path.remove_prefix(1);
  return !cgroups_path.empty() && path.ends_with(fmt::format("/{}", cgroups_path));
}

Result<std::optional<CgroupIdentity>> own_cgroup(const ContainerSpec& spec, pid_t init) {
  // The kernel kills all processes of a PID namespace together with its init.
  if (spec.has_own_pidns) return std::optional<CgroupIdentity>();
  const auto ours = TRY(device_cgroups(::getpid()));
  // cgroup v1 has several hierarchies. The first one in which the container has a cgroup of its own is enough.
  for (const Cgroup& group : TRY(device_cgroups(init))) {
    const bool shared = std::ranges::any_of(ours, [&](const Cgroup& other) { return is_around(group, other); });
    if (shared && !is_named_by(spec.cgroups_path, group.path)) continue;
    return std::optional(TRY(identify_cgroup(group.mount_point, group.path)));
  }
  return std::optional<CgroupIdentity>();
}

}  // namespace hook
