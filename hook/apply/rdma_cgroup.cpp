#include "hook/apply/rdma_cgroup.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/base/failure.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr std::size_t kLongestControllers = 4096;
constexpr std::string_view kHandle = "hca_handle";
constexpr std::string_view kObject = "hca_object";

std::optional<std::uint32_t> lower_one(const std::optional<std::uint32_t>& left,
                                       const std::optional<std::uint32_t>& right) {
  return left && right ? std::min(left, right) : left ? left : right;
}

}  // namespace

Result<RdmaController> rdma_controller(const std::string& root) {
  const std::string path = root + "/sys/fs/cgroup/cgroup.controllers";
  const auto read = fabric::sysfs::read_file(path, kLongestControllers);
  if (const auto* text = std::get_if<std::string>(&read)) {
    const auto words = fabric::split(fabric::trim(*text), ' ');
    return std::find(words.begin(), words.end(), "rdma") != words.end() ? RdmaController::kV2 : RdmaController::kNone;
  }
  int code = std::get<fabric::Unreadable>(read).code;
  if (code == ENOENT) {
    const std::string hierarchy = root + "/sys/fs/cgroup/rdma";
    if (::access(hierarchy.c_str(), F_OK) == 0) return RdmaController::kV1;
    if (errno == ENOENT) return RdmaController::kNone;
    code = errno;
  }
  fabric::Error error = fabric::sys_error(code, "cannot read `{}`", path);
  error.reason = FailureReason::kDevices;
  return error;
}

RdmaLimits lower_of(const RdmaLimits& left, const RdmaLimits& right) {
  return {lower_one(left.handles, right.handles), lower_one(left.objects, right.objects)};
}

RdmaLimits limits_in(std::string_view rdma_max, std::string_view device) {
  RdmaLimits limits;
  for (const std::string_view line : fabric::split(rdma_max, '\n')) {
    const auto words = fabric::split(line, ' ');
    if (words.empty() || words.front() != device) continue;
    for (const std::string_view word : words) {
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos) continue;
      const auto value = fabric::parse_number<std::uint32_t>(word.substr(equals + 1));
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
  if (plan.rdma_limits.empty() || TRY(rdma_controller(root)) != RdmaController::kNone) return {};
  plan.rdma_limits.clear();
  plan.warnings.emplace_back(
      "the limits hca_objects and hca_handles of config.json are not set: the node has no cgroup controller `rdma`; "
      "boot a kernel with CONFIG_CGROUP_RDMA, or remove the limits");
  return {};
}

}  // namespace hook
