#include "init/site_policy.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

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
constexpr std::size_t kShown = 60;  // of a bad line

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool others_may_write(int file) {
  struct stat info {};
  return ::fstat(file, &info) != 0 || info.st_uid != 0 || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

void read_policy_file(const Rooted& files, const std::string& path, bool roots_only, SitePolicy& policy) {
  const auto refuse = [&](std::string_view why) {
    policy.problems.push_back(fmt::format("{} {}: nothing of it is set", printable(path), why));
  };
  const auto file = files.open(path);
  if (const auto* failed = std::get_if<fabric::Unreadable>(&file)) {
    return refuse(failed->code == EINVAL ? "is no regular file" : std::strerror(failed->code));
  }
  const int fd = std::get<fabric::UniqueFd>(file).get();
  if (roots_only && others_may_write(fd)) return refuse("is not root's alone to write");
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
    const bool whole = equals != std::string_view::npos && line.find('\0') == std::string_view::npos;
    if (!whole || !is_policy_variable(name)) {
      policy.problems.push_back(
          fmt::format("{}:{}: `{}` {}; not set", printable(path), number, printable(line.substr(0, kShown)),
                      whole ? "is no variable of a library that a policy may set" : "is no NAME=value"));
      continue;
    }
    policy.settings.emplace(name, Setting{std::string(line.substr(equals + 1)), path, false});
  }
}

SitePolicy read_site_policy(const Rooted& files, const std::string& file, bool roots_only) {
  SitePolicy policy;
  if (!file.empty()) {
    read_policy_file(files, file, false, policy);
    return policy;
  }
  std::vector<std::string> names;
  const int code = files.each_name(std::string(kPolicyFolder), [&](std::string_view name) {
    if (name.ends_with(".conf") && !name.starts_with('.')) names.emplace_back(name);
  });
  if (code != 0 && !is_gone(code)) policy.problems.push_back(fmt::format("{}: {}", kPolicyFolder, std::strerror(code)));
  std::sort(names.begin(), names.end());
  if (names.size() > kMostFiles) {
    policy.problems.push_back(
        fmt::format("{} has more than {} files: the rest is not read", kPolicyFolder, kMostFiles));
    names.resize(kMostFiles);
  }
  for (const std::string& name : names)
    read_policy_file(files, fmt::format("{}/{}", kPolicyFolder, name), roots_only, policy);
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
