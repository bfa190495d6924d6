#include "base/proc.hpp"

#include <fcntl.h>
#include <linux/magic.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"

namespace base {
namespace {

bool lists_controller(std::string_view comma_separated, std::string_view controller) {
  const auto words = split(comma_separated, ',');
  return std::ranges::find(words, controller) != words.end();
}

}  // namespace

Result<std::string> read_text(int fd, std::size_t limit, const std::string& path) {
  auto text = read_all(fd, limit);
  if (auto* whole = std::get_if<std::string>(&text)) return std::move(*whole);
  return sys_error(std::get<Unreadable>(text).code, "cannot read `{}`", path);
}

Result<std::string> read_proc(const std::string& path, std::size_t limit) {
  const UniqueFd fd = open_to_read(AT_FDCWD, path.c_str(), O_NOFOLLOW);
  if (!fd.ok()) return sys_error(errno, "cannot open `{}`", path);
  // Another file may be mounted at this path.
  if (path.starts_with("/proc/") && !is_on(fd.get(), PROC_SUPER_MAGIC))
    return Error{fmt::format("cannot use `{}`: it is not on a proc file system", path), 0,
                 "mount proc at /proc where the hook runs"};
  return read_text(fd.get(), limit, path);
}

Result<std::string> read_proc_cgroup(const std::string& proc, const std::string& process) {
  return read_proc(fmt::format("{}/{}/cgroup", proc, process), kMostText);
}

CgroupPaths parse_proc_cgroup(std::string_view text) {
  CgroupPaths paths;
  for (const std::string_view line : split(text, '\n')) {
    // A line is "5:devices:/docker/ID" or "0::/system.slice/x"; the path may contain colons.
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (line.substr(0, first) == "0" && controllers.empty()) paths.v2 = path;
    if (lists_controller(controllers, "devices")) paths.v1_devices = path;
    if (lists_controller(controllers, "rdma")) paths.v1_rdma = path;
  }
  return paths;
}

Attr<std::string> read_kernel_release(const std::string& root) {
  return read_attribute(root + "/proc/sys/kernel/osrelease");
}

Attr<std::string> read_boot_id() {
  return read_attribute("/proc/sys/kernel/random/boot_id");
}

}  // namespace base
