#include "hook/apply/live/limit_rdma.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/apply/rdma_cgroup.hpp"

namespace hook {
namespace {

using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

using Warnings = std::vector<std::string>;

// A line is shorter than 128 bytes, and a node has at most some hundred RDMA devices.
constexpr std::size_t kLongestRdmaMax = std::size_t{1} << 18;

std::string parent_directory(const std::string& directory) {
  return directory.substr(0, directory.rfind('/'));
}

std::string no_file(const Cgroup& cgroup) {
  const std::string directory = cgroup.directory();
  if (cgroup.path == "/") return fmt::format("`{}` is the root of the hierarchy, which takes no limits", directory);
  return fmt::format(
      "`{}` has no rdma.max, because `{}/cgroup.subtree_control` does not enable `rdma`: write `+rdma` there",
      directory, parent_directory(directory));
}

Warnings not_limited(const std::string& why) {
  return {"the container's RDMA objects are not limited: " + why};
}

}  // namespace

std::optional<std::string> lowering_line(std::string_view rdma_max, const PlannedRdmaLimit& limit) {
  const RdmaLimits now = limits_in(rdma_max, limit.hca);
  const RdmaLimits lower = lower_of(limit.limits, now);
  if (lower == now) return std::nullopt;
  return rdma_max_line({limit.hca, lower});
}

Result<Warnings> limit_rdma_in(const Cgroup& cgroup, const std::vector<PlannedRdmaLimit>& limits) {
  const UniqueFd directory = TRY(open_cgroup(cgroup));
  const std::string path = cgroup.directory() + "/rdma.max";
  const UniqueFd file(::openat(directory.get(), "rdma.max", O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file.ok() && errno == ENOENT) return not_limited(no_file(cgroup));
  if (!file.ok() && (errno == EACCES || errno == EPERM)) {
    return not_limited(sys_error(errno, "cannot open `{}`", path).message);
  }
  if (!file.ok()) return sys_error(errno, "cannot open `{}`", path);
  const auto read = fabric::sysfs::read_all(file.get(), kLongestRdmaMax);
  const auto* now = std::get_if<std::string>(&read);
  if (!now) return sys_error(std::get<fabric::Unreadable>(read).code, "cannot read `{}`", path);
  for (const PlannedRdmaLimit& limit : limits) {
    const auto line = lowering_line(*now, limit);
    if (line && ::write(file.get(), line->data(), line->size()) != static_cast<ssize_t>(line->size())) {
      return sys_error(errno, "cannot write `{}` to `{}`", *line, path);
    }
  }
  return Warnings();
}

Result<Warnings> limit_rdma(pid_t init, const std::vector<PlannedRdmaLimit>& limits) {
  const auto cgroup = TRY(rdma_cgroup(init));
  if (!cgroup) return not_limited("no cgroup hierarchy with the controller `rdma` is mounted here");
  if (cgroup == TRY(rdma_cgroup(::getpid()))) {
    return not_limited(fmt::format("it has no cgroup of its own, but its engine's, `{}`", cgroup->path));
  }
  return limit_rdma_in(*cgroup, limits);
}

}  // namespace hook
