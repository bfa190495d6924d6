#include "init/site_policy.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace init {
namespace {

using fabric::printable;

constexpr std::string_view kPolicyFolder = "/etc/rdma-init/env.d";
constexpr std::size_t kMostFiles = 128;
constexpr std::size_t kLongestShown = 64;  // of a variable's name

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// A line of a file of keys can look like NAME=: base64 and base32 pad with '='. So only upper case with a value counts.
bool may_show(std::string_view name, std::string_view value) {
  return is_name(name) && name.size() <= kLongestShown && !(name[0] >= '0' && name[0] <= '9') &&
         std::none_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; }) &&
         value.find_first_not_of('=') != std::string_view::npos;
}

bool is_trusted(int file) {
  struct stat info {};
  return ::fstat(file, &info) == 0 && (info.st_uid == 0 || info.st_uid == ::geteuid()) &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

constexpr const char* kLink = "is a symbolic link";
constexpr const char* kUntrusted = "can be written by others than root and this user";

void read_policy_file(const Rooted& files, const std::string& path, int flags, bool only_trusted, SitePolicy& policy) {
  const auto refuse = [&](std::string_view why) {
    policy.problems.push_back(fmt::format("{} {}: nothing of it is set", printable(path), why));
  };
  const auto file = files.open(path, flags);
  if (const auto* failed = std::get_if<fabric::Unreadable>(&file)) {
    return refuse(failed->code == EINVAL  ? "is no regular file"
                  : failed->code == ELOOP ? kLink
                                          : std::strerror(failed->code));
  }
  const int fd = std::get<fabric::UniqueFd>(file).get();
  if (only_trusted && !is_trusted(fd)) return refuse(kUntrusted);
  const auto text = fabric::sysfs::read_all(fd, kMostText);
  if (const auto* failed = std::get_if<fabric::Unreadable>(&text)) {
    return refuse(failed->code == EFBIG ? "has more than 64 KiB" : std::strerror(failed->code));
  }
  add_policy(std::get<std::string>(text), path, policy);
}

}  // namespace

bool is_policy_variable(std::string_view name) {
  constexpr std::array<std::string_view, 4> kMore = {"FI_", "OMPI_MCA_", "RCCL_", "HCCL_"};
  return is_name(name) &&
         (is_library_variable(name) ||
          std::any_of(kMore.begin(), kMore.end(), [&](std::string_view prefix) { return name.starts_with(prefix); }));
}

void add_policy(std::string_view text, const std::string& path, SitePolicy& policy) {
  unsigned number = 0;
  for (std::string_view line : fabric::split(text, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (fabric::trim(line).empty() || line.starts_with('#')) continue;
    const std::size_t equals = line.find('=');
    const std::string_view name = line.substr(0, equals);
    const std::string_view value = line.substr(std::min(name.size() + 1, line.size()));
    const bool whole = equals != std::string_view::npos && line.find('\0') == std::string_view::npos;
    if (!whole || !is_policy_variable(name)) {
      policy.problems.push_back(fmt::format(
          "{}:{}: {}; not set", printable(path), number,
          whole && may_show(name, value) ? fmt::format("{} is no variable of a library that a policy may set", name)
                                         : "no NAME=value line of a library's variable"));
      continue;
    }
    policy.settings.emplace(name, Setting{std::string(value), path, false});
  }
}

SitePolicy read_site_policy(const Rooted& files, const std::string& file, bool only_trusted) {
  SitePolicy policy;
  if (!file.empty()) {
    read_policy_file(files, file, 0, false, policy);
    return policy;
  }
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (name.ends_with(".conf") && !name.starts_with('.')) names.emplace_back(name);
  };
  const int code = files.each_name(std::string(kPolicyFolder), add, O_NOFOLLOW, only_trusted ? is_trusted : nullptr);
  if (code == EPERM || code == ELOOP) {
    const char* const why = code == EPERM ? kUntrusted : kLink;
    policy.problems.push_back(fmt::format("{} {}: nothing of it is set", kPolicyFolder, why));
  } else if (code != 0 && !is_gone(code)) {
    policy.problems.push_back(fmt::format("{}: {}", kPolicyFolder, std::strerror(code)));
  }
  std::sort(names.begin(), names.end());
  if (names.size() > kMostFiles) {
    policy.problems.push_back(
        fmt::format("{} has more than {} files: the rest is not read", kPolicyFolder, kMostFiles));
    names.resize(kMostFiles);
  }
  for (const std::string& name : names)
    read_policy_file(files, fmt::format("{}/{}", kPolicyFolder, name), O_NOFOLLOW, only_trusted, policy);
  return policy;
}

Settings apply_policy(const SitePolicy& policy, Settings& settings) {
  Settings applied;
  for (const auto& [name, setting] : policy.settings) {
    Setting& present = settings[name];
    if (!present.value.empty()) continue;
    present = setting;
    applied[name] = setting;
  }
  return applied;
}

}  // namespace init
