#include "init/settings.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "base/file.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"
#include "fabric/library_variables.hpp"

namespace init {
namespace {

constexpr std::size_t kMaxConfSize = 64 << 20;
constexpr std::size_t kLongestValue = 1023;  // NCCL's buffer is envValue[1024]
// Returns true for a line that sets a variable of NCCL, which RCCL also reads; no other library reads these files.
bool is_conf_line(std::string_view line) {
  return line.starts_with("NCCL_") && line.find('=') != std::string_view::npos;
}

constexpr std::string_view kPolicyFolder = "/etc/rdma-init/env.d";
constexpr std::size_t kMostFiles = 128;
constexpr std::size_t kLongestShown = 64;  // length of a variable's name in a message

// Returns true if a message may show the name. A line of a key file can look like NAME=, because base64 and base32 pad
// with '='. Therefore only an upper-case name with a value is shown.
bool may_show(std::string_view name, std::string_view value) {
  const auto is_shown = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() <= kLongestShown && !(name[0] >= '0' && name[0] <= '9') &&
         std::ranges::all_of(name, is_shown) && value.find_first_not_of('=') != std::string_view::npos;
}

// Returns true if only root or this user can change the file or directory.
bool is_trusted(int file) {
  struct stat info {};
  return ::fstat(file, &info) == 0 && (info.st_uid == 0 || info.st_uid == ::geteuid()) &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

constexpr const char* kLink = "is a symbolic link";
constexpr const char* kUntrusted = "can be written by users other than root and this user";

// Adds the variables of one file. A file is used completely or not at all.
void read_policy_file(const base::Rooted& files, const std::string& path, int flags, bool only_trusted,
                      SitePolicy& policy) {
  const auto refuse = [&](std::string_view why) {
    policy.problems.push_back(fmt::format("{} {}: ignored", printable(path), why));
  };
  const auto file = files.open(path, flags);
  if (const int code = error_of(file); code != 0) {
    return refuse(code == EINVAL ? "is not a regular file" : code == ELOOP ? kLink : std::strerror(code));
  }
  const int fd = std::get<base::UniqueFd>(file).get();
  if (only_trusted && !is_trusted(fd)) return refuse(kUntrusted);
  const auto text = base::read_all(fd, base::kMostText);
  if (const int code = error_of(text); code != 0) {
    return refuse(code == EFBIG ? "has more than 64 KiB" : std::strerror(code));
  }
  add_policy(std::get<std::string>(text), path, policy);
}

}  // namespace

const Setting* find_setting(const Settings& settings, std::string_view name) {
  const auto found = settings.find(name);
  return found == settings.end() || found->second.value.empty() ? nullptr : &found->second;
}

std::optional<nccl::Version> nccl_version(const std::optional<nccl::Version>& passed, const Settings& settings) {
  const Setting* image = find_setting(settings, "NCCL_VERSION");
  return image && !passed ? nccl::parse_version(image->value) : passed;
}

std::string own_variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void add_conf(std::string_view text, const std::string& path, Settings& settings) {
  while (!text.empty()) {
    auto [line, rest] = base::split_first(text, '\n');
    text = rest;
    const bool has_cr = line.ends_with('\r');
    if (has_cr) line.remove_suffix(1);
    if (!is_conf_line(line)) continue;
    const auto [name, value] = base::split_first(line, '=');
    Setting setting{std::string(value.substr(0, kLongestValue)), path, has_cr && value.size() < kLongestValue};
    setting.was_cut = value.size() > kLongestValue;
    // emplace() keeps a setting that exists: the first source has precedence.
    settings.emplace(name, std::move(setting));
  }
}

std::string conf_lines(std::string_view text) {
  std::string lines;
  for (const std::string_view line : base::split(text, '\n')) {
    if (is_conf_line(line)) lines.append(line).append("\n");
  }
  return lines;
}

void add_environment(const char* const* environment, Settings& settings) {
  for (; *environment; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !fabric::is_policy_variable(entry.substr(0, equals))) continue;
    // getenv() returns the first of several entries with the same name.
    settings.emplace(entry.substr(0, equals), Setting{std::string(entry.substr(equals + 1)), "environment", false});
  }
}

void mark_own(std::string_view exports, Settings& settings, std::string_view host) {
  std::string_view exporter = host;
  for (const std::string_view entry : base::split(exports, ';')) {
    if (entry.starts_with(kHostEntry)) exporter = entry.substr(kHostEntry.size());
    const auto [name, value] = base::split_first(entry, '=');
    const auto found = settings.find(name);
    if (found != settings.end()) found->second.own = found->second.value == value;
  }
  const auto list = settings.find("NCCL_IB_HCA");
  if (list != settings.end() && list->second.own && !host.empty() && exporter != host) settings.erase(list);
}

std::string this_host() {
  utsname system{};
  return ::uname(&system) == 0 ? system.nodename : "";
}

std::vector<Check> cut_values(const Settings& settings) {
  std::vector<Check> warnings;
  for (const auto& [name, setting] : settings) {
    if (!setting.was_cut) continue;
    warnings.push_back({"value-cut", Verdict::kNote,
                        fmt::format("{} ({}): NCCL reads only the first {} bytes of this value; the environment has no "
                                    "such limit",
                                    printable(name), printable(setting.source), kLongestValue)});
  }
  return warnings;
}

std::string passwd_home(std::string_view passwd, uid_t user) {
  while (!passwd.empty()) {
    const auto [line, rest] = base::split_first(passwd, '\n');
    passwd = rest;
    const auto fields = base::split(line, ':');  // name, password, uid, gid, comment, home, shell
    if (fields.size() > 5 && base::parse_number<uid_t>(fields[2]) == user) return std::string(fields[5]);
  }
  return {};
}

std::vector<std::string> conf_homes(const std::optional<nccl::Version>& version, const std::string& home,
                                    const std::string& passwd) {
  std::vector<std::string> homes;
  const auto add = [&](const std::string& directory) {
    if (!directory.empty() && std::ranges::find(homes, directory) == homes.end()) homes.push_back(directory);
  };
  if (!version || *version >= nccl::kHomeVariable) add(home);
  if (!version || *version < nccl::kHomeVariable) add(passwd);
  return homes;
}

std::vector<std::string> conf_paths(const Settings& settings, const std::vector<std::string>& homes) {
  std::vector<std::string> paths;
  const Setting* named = find_setting(settings, "NCCL_CONF_FILE");
  if (named) paths.push_back(named->value);
  for (const std::string_view name : {"nccl.conf", "rccl.conf"}) {
    if (!named) {
      for (const std::string& home : homes)
        paths.push_back(fmt::format("{}/.{}", home, name));
    }
    paths.push_back(fmt::format("/etc/{}", name));
  }
  return paths;
}

ConfFiles read_conf_files(const Settings& settings, std::vector<std::string> paths, const std::string& root) {
  const Setting* named = find_setting(settings, "NCCL_CONF_FILE");
  ConfFiles files{std::move(paths), {}, {}};
  for (const std::string& path : files.paths) {
    auto text = base::read_below(root, path, kMaxConfSize);
    const int code = error_of(text);
    if (code == 0) files.texts.emplace(path, std::get<std::string>(std::move(text)));
    const bool asked = named && named->value == path;
    // NCCL runs as the same user, so it cannot read the file either.
    if (code == 0 || (!asked && (base::is_absent(code) || code == EACCES))) continue;
    files.problems.push_back(fmt::format("{}{}: {}; its values are unknown", asked ? "NCCL_CONF_FILE=" : "",
                                         printable(path),
                                         code == EFBIG    ? "has more than 64 MiB"
                                         : code == EINVAL ? "is no regular file"
                                                          : std::strerror(code)));
  }
  return files;
}

Settings with_conf(Settings settings, const std::vector<std::string>& paths,
                   const std::map<std::string, std::string>& texts) {
  for (const std::string& path : paths) {
    const auto text = texts.find(path);
    if (text != texts.end()) add_conf(text->second, path, settings);
  }
  return settings;
}

Settings read_by(const nccl::Version& version, Settings settings) {
  if (version >= nccl::kTrimsCr) return settings;
  for (auto& [name, setting] : settings) {
    if (setting.had_cr) setting.value += '\r';
  }
  return settings;
}

void add_policy(std::string_view text, const std::string& path, SitePolicy& policy) {
  unsigned number = 0;
  for (std::string_view line : base::split(text, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (base::trim(line).empty() || line.starts_with('#')) continue;
    const auto [name, value] = base::split_first(line, '=');
    // A zero byte would end the value in the environment.
    const bool whole = name.size() < line.size() && line.find('\0') == std::string_view::npos;
    if (!whole || !fabric::is_policy_variable(name)) {
      policy.problems.push_back(fmt::format(
          "{}:{}: {}; not set", printable(path), number,
          whole && may_show(name, value) ? fmt::format("{} belongs to no library whose variables may be set here", name)
                                         : "no NAME=value line of a library's variable"));
      continue;
    }
    policy.settings.emplace(name, Setting{std::string(value), path, false});
  }
}

SitePolicy read_site_policy(const base::Rooted& files, const std::string& file, bool only_trusted) {
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
    policy.problems.push_back(fmt::format("{} {}: ignored", kPolicyFolder, why));
  } else if (code != 0 && !base::is_absent(code)) {
    policy.problems.push_back(fmt::format("{}: {}", kPolicyFolder, std::strerror(code)));
  }
  std::ranges::sort(names);
  if (names.size() > kMostFiles) {
    policy.problems.push_back(
        fmt::format("{} has more than {} files: the rest is not read", kPolicyFolder, kMostFiles));
    names.resize(kMostFiles);
  }
  for (const std::string& name : names)
    read_policy_file(files, fmt::format("{}/{}", kPolicyFolder, name), O_NOFOLLOW, only_trusted, policy);
  return policy;
}

SitePolicy read_node_values(std::string_view text) {
  SitePolicy policy;
  if (text.empty()) return policy;
  for (const std::string_view entry : base::split(text, ';')) {
    const auto [name, value] = base::split_first(entry, '=');
    if (!fabric::is_policy_variable(name) || !fabric::is_site_value(value)) {
      policy.problems.push_back(
          fmt::format("{}: ignored, because it is not NAME=value;NAME=value of library variables", fabric::kSiteName));
      policy.settings.clear();
      return policy;
    }
    Setting setting{std::string(value), kNodeSource};
    setting.of_node = true;
    policy.settings.emplace(name, std::move(setting));
  }
  return policy;
}

Settings with_policy(Settings settings, const SitePolicy& policy) {
  for (const auto& [name, setting] : policy.settings) {
    // An empty value of the environment counts as unset.
    Setting& present = settings[name];
    if (setting.of_node && present.own && present.value == setting.value) present.of_node = true;
    if (!present.value.empty()) continue;
    present = setting;
    present.of_policy = true;
  }
  return settings;
}

}  // namespace init
