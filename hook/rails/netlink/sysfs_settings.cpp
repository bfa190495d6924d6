#include "hook/rails/netlink/sysfs_settings.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "fabric/result.hpp"
#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"

namespace hook {
namespace {

using fabric::Attr;
using fabric::Unreadable;
using fabric::sysfs::Directory;

constexpr std::size_t kMostQueues = 4096;
constexpr const char* kNothing = "0";

std::string path_of(const SysfsSetting& setting, std::size_t queue) {
  return setting.queues ? fmt::format("queues/{}{}/{}", setting.queues, queue, setting.name) : setting.name;
}

std::size_t most_values(const SysfsSetting& setting) {
  return setting.queues ? kMostQueues : 1;
}

// "00000000,0000000c" is "c": the same to the kernel, and shorter.
std::string without_leading_zeros(std::string text) {
  text.erase(0, std::min(text.find_first_not_of("0,"), text.size()));
  return text.empty() ? kNothing : text;
}

// Without value: the netdev has no such queue, or the setting is not for such a netdev (xps_cpus of one queue).
Attr<std::optional<std::string>> read_value(const Directory& netdev, const std::string& path) {
  auto value = netdev.read(path.c_str());
  if (auto* text = std::get_if<std::string>(&value)) return std::optional(without_leading_zeros(std::move(*text)));
  const int code = std::get<Unreadable>(value).code;
  if (code == ENOENT || code == EOPNOTSUPP) return std::optional<std::string>();
  return Unreadable{code};
}

// 0, or an errno.
int write_value(const Directory& netdev, const std::string& path, const std::string& value) {
  const fabric::UniqueFd file(::openat(netdev.fd(), path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!file.ok()) return errno;
  return ::write(file.get(), value.data(), value.size()) < 0 ? errno : 0;
}

// 0, or an errno. nullopt: there is no such queue now or before.
std::optional<int> restore_value(const Directory& netdev, const SysfsSetting& setting, std::size_t queue,
                                 const std::vector<std::string>& before) {
  const std::string path = path_of(setting, queue);
  const auto now = read_value(netdev, path);
  const auto* const value = std::get_if<std::optional<std::string>>(&now);
  if (value && !*value && queue >= before.size()) return std::nullopt;
  const std::string& wanted = queue < before.size() ? before[queue] : kNothing;
  const bool is_same = value && *value == wanted;
  if (is_same && !setting.is_of_napis) return 0;
  const int failed = write_value(netdev, path, wanted);
  return is_same ? 0 : failed;
}

}  // namespace

SysfsSettings read_sysfs_settings(const Directory& netdev, std::string_view name, std::vector<std::string>& warnings) {
  SysfsSettings settings;
  for (std::size_t i = 0; i < kSysfsSettings.size(); ++i) {
    for (std::size_t queue = 0; queue < most_values(kSysfsSettings[i]); ++queue) {
      const std::string path = path_of(kSysfsSettings[i], queue);
      auto value = read_value(netdev, path);
      if (const auto* failed = std::get_if<Unreadable>(&value)) {
        warnings.push_back(fabric::sys_error(failed->code, "cannot read `{}` of `{}`", path, name).message +
                           ": what a container changes of it stays");
        settings[i].clear();
        break;
      }
      auto& text = std::get<std::optional<std::string>>(value);
      if (!text) break;
      settings[i].push_back(*std::move(text));
    }
  }
  return settings;
}

std::vector<std::string> restore_sysfs_settings(const Directory& netdev, std::string_view name,
                                                const SysfsSettings& before) {
  std::vector<std::string> refused;
  for (std::size_t i = 0; i < kSysfsSettings.size(); ++i) {
    const SysfsSetting& setting = kSysfsSettings[i];
    bool is_reported = false;
    for (std::size_t queue = 0; !before[i].empty() && queue < most_values(setting); ++queue) {
      const auto failed = restore_value(netdev, setting, queue, before[i]);
      if (!failed) break;
      if (*failed == 0 || is_reported) continue;
      is_reported = true;
      const std::string path = path_of(setting, queue);
      const std::string& value = queue < before[i].size() ? before[i][queue] : kNothing;
      refused.push_back(fmt::format("{}; `echo {} > /sys/class/net/{}/{}`",
                                    fabric::sys_error(*failed, "cannot restore `{}` of `{}`", path, name).message,
                                    value, name, path));
    }
  }
  return refused;
}

bool is_sysfs_value(std::string_view text) {
  constexpr std::size_t kLongest = 4096;
  return !text.empty() && text.size() <= kLongest &&
         text.find_first_not_of("0123456789abcdef,") == std::string_view::npos;
}

}  // namespace hook
