#include "hook/apply/rdma_cgroup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.hpp"
#include "base/proc.hpp"
#include "base/text.hpp"
#include "hook/plan/parts.hpp"

namespace hook {
namespace {

constexpr std::string_view kHandle = "hca_handle";
constexpr std::string_view kObject = "hca_object";

// Returns `controller` if the kernel is 7.3 or later. Otherwise, or if the release cannot be read, returns kUnsafe;
// RdmaController has the reason.
RdmaController if_safe(RdmaController controller, const std::string& root) {
  const auto release = base::read_kernel_release(root);
  const auto version = base::version_of(base::value_or(release, std::string()));
  return version && *version >= std::pair(7U, 3U) ? controller : RdmaController::kUnsafe;
}

using Warnings = std::vector<std::string>;

// A line has less than 128 bytes, and a node has at most some hundred RDMA devices.
constexpr std::size_t kLongestRdmaMax = std::size_t{1} << 18;

// Returns why a cgroup has no rdma.max.
std::string no_file(const Cgroup& cgroup) {
  const std::string directory = cgroup.directory();
  if (cgroup.path == "/") return fmt::format("`{}` is the root of the hierarchy, which cannot have limits", directory);
  return fmt::format(
      "`{0}` has no rdma.max, because `{1}/cgroup.subtree_control` does not enable `rdma`; write `+rdma` to that file",
      directory, directory.substr(0, directory.rfind('/')));
}

Warnings not_limited(const std::string& why) {
  return {"the container's RDMA objects are not limited: " + why};
}

}  // namespace

Result<RdmaController> rdma_controller(const std::string& root) {
  const std::string path = root + "/sys/fs/cgroup/cgroup.controllers";
  const auto read = base::read_attribute(path);
  if (const auto* text = std::get_if<std::string>(&read)) {
    const auto words = base::split(*text, ' ');
    const bool has_it = std::ranges::find(words, "rdma") != words.end();
    return has_it ? if_safe(RdmaController::kV2, root) : RdmaController::kNone;
  }
  int code = std::get<base::Unreadable>(read).code;
  // A node without cgroup.controllers has cgroup v1 hierarchies.
  if (code == ENOENT) {
    const std::string hierarchy = root + "/sys/fs/cgroup/rdma";
    if (::access(hierarchy.c_str(), F_OK) == 0) return if_safe(RdmaController::kV1, root);
    if (errno == ENOENT) return RdmaController::kNone;
    code = errno;
  }
  Error error = sys_error(code, "cannot read `{}`", path);
  error.reason = FailureReason::kDevices;
  return error;
}

std::optional<NoLimits> no_limits(RdmaController controller) {
  if (controller == RdmaController::kV1 || controller == RdmaController::kV2) return std::nullopt;
  if (controller == RdmaController::kUnsafe) {
    return NoLimits{
        "a kernel before Linux 7.3 corrupts its memory when an HCA is unregistered after a container with a limit "
        "has ended",
        "boot Linux 7.3 or later, or remove the limits"};
  }
  return NoLimits{"the node has no cgroup controller `rdma`",
                  "boot a kernel with CONFIG_CGROUP_RDMA, or remove the limits"};
}

RdmaLimits limits_in(std::string_view rdma_max, std::string_view device) {
  RdmaLimits limits;
  for (const std::string_view line : base::split(rdma_max, '\n')) {
    const auto words = base::split(line, ' ');
    if (words.empty() || words.front() != device) continue;
    for (const std::string_view word : words) {
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos) continue;
      const auto value = base::parse_number<std::uint32_t>(word.substr(equals + 1));
      if (word.substr(0, equals) == kHandle) limits.handles = value;
      if (word.substr(0, equals) == kObject) limits.objects = value;
    }
  }
  return limits;
}

std::string rdma_max_line(const PlannedRdmaLimit& limit) {
  std::string line = limit.hca;
  if (limit.limits.handles) line += fmt::format(" {}={}", kHandle, *limit.limits.handles);
  if (limit.limits.objects) line += fmt::format(" {}={}", kObject, *limit.limits.objects);
  return line;
}

Result<void> leave_out_rdma_limits(const std::string& root, Plan& plan) {
  if (plan.rdma_limits.empty()) return {};
  const auto none = no_limits(TRY(rdma_controller(root)));
  if (!none) return {};
  plan.rdma_limits.clear();
  plan.warnings.push_back(fmt::format("the limits hca_objects and hca_handles of config.json are not set: {}; {}",
                                      none->why, none->remedy));
  return {};
}

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
  // Without root the file cannot be opened. The limits protect other containers of the node, not this one, so the
  // container starts with a warning.
  if (!file.ok() && (errno == EACCES || errno == EPERM))
    return not_limited(sys_error(errno, "cannot open `{}`", path).message);
  if (!file.ok()) return sys_error(errno, "cannot open `{}`", path);
  const std::string now = TRY(read_text(file.get(), kLongestRdmaMax, path));
  for (const PlannedRdmaLimit& limit : limits) {
    const auto line = lowering_line(now, limit);
    // The kernel reads one device per write(2).
    if (line && ::write(file.get(), line->data(), line->size()) != static_cast<ssize_t>(line->size()))
      return sys_error(errno, "cannot write `{}` to `{}`", *line, path);
  }
  return Warnings();
}

Result<Warnings> limit_rdma(pid_t init, const std::vector<PlannedRdmaLimit>& limits) {
  const auto cgroup = TRY(rdma_cgroup(init));
  if (!cgroup) return not_limited("no cgroup hierarchy with the controller `rdma` is mounted");
  if (cgroup == TRY(rdma_cgroup(::getpid())))
    return not_limited(fmt::format("the container shares the cgroup `{}` with its engine", cgroup->path));
  return limit_rdma_in(*cgroup, limits);
}

}  // namespace hook
