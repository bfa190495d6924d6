#include "hook/apply/live/device_cgroup_v1.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr std::size_t kLongestList = std::size_t{1} << 20;

bool matches(std::string_view field, std::uint32_t number) {
  return field == "*" || field == std::to_string(number);
}

Result<std::string> read_list(int directory, const Cgroup& cgroup) {
  const UniqueFd fd(openat(directory, "devices.list", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return sys_error(errno, "cannot open `{}/devices.list`", cgroup.directory());
  auto text = fabric::sysfs::read_all(fd.get(), kLongestList);
  if (const auto* failed = std::get_if<fabric::Unreadable>(&text)) {
    return sys_error(failed->code, "cannot read `{}/devices.list`", cgroup.directory());
  }
  return std::get<std::string>(std::move(text));
}

fabric::Error refused(int code, const Cgroup& cgroup, const DeviceNumber& device) {
  fabric::Error error = sys_error(code, "cannot write `{}` to `{}/devices.allow`", v1_rule(device), cgroup.directory());
  if (code == EPERM) {
    error.hint = fmt::format(
        "a group above it does not allow the device: allow it there too (of a unit of systemd: systemctl set-property "
        "UNIT \"DeviceAllow=/dev/char/{}:{} rw\")",
        device.major, device.minor);
  }
  return error;
}

}  // namespace

V1Grant find_v1_grant(std::string_view devices_list, const DeviceNumber& device) {
  for (const std::string_view line : fabric::split(devices_list, '\n')) {
    const auto words = fabric::split(line, ' ');
    if (words.size() != 3) continue;
    if (words[0] == "a") return V1Grant::kAll;
    const std::size_t colon = words[1].find(':');
    if (words[0] != "c" || colon == std::string_view::npos) continue;
    if (!matches(words[1].substr(0, colon), device.major) || !matches(words[1].substr(colon + 1), device.minor)) {
      continue;
    }
    if (words[2].find('r') != std::string_view::npos && words[2].find('w') != std::string_view::npos) {
      return V1Grant::kYes;
    }
  }
  return V1Grant::kNo;
}

std::string v1_rule(const DeviceNumber& device) {
  return fmt::format("c {}:{} rw", device.major, device.minor);
}

Result<DeviceChange> allow_devices_v1(const Cgroup& cgroup, std::span<const DeviceNumber> devices) {
  DeviceChange change;
  const UniqueFd directory = TRY(open_cgroup(cgroup));
  const std::string list = TRY(read_list(directory.get(), cgroup));
  UniqueFd allow;
  for (const DeviceNumber& device : devices) {
    const V1Grant grant = find_v1_grant(list, device);
    if (grant == V1Grant::kYes || (grant == V1Grant::kAll && cgroup.path == "/")) continue;
    if (!allow.ok()) allow.reset(openat(directory.get(), "devices.allow", O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!allow.ok()) return sys_error(errno, "cannot open `{}/devices.allow`", cgroup.directory());
    // One rule per write: the kernel reads no more.
    const std::string rule = v1_rule(device);
    if (write(allow.get(), rule.data(), rule.size()) < 0) return refused(errno, cgroup, device);
    if (grant == V1Grant::kNo) change.changed = true;
  }
  change.undone_by_systemd = change.changed && is_systemds(cgroup);
  return change;
}

}  // namespace hook
