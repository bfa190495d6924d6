#include "hook/apply/live/cgroup.hpp"

#include <algorithm>

#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::split;

// mountinfo writes space, tab, newline and backslash as three octal digits.
std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      if (const auto code = fabric::parse_number<unsigned>(text.substr(i + 1, 3), 8); code && *code < 256) {
        result.push_back(static_cast<char>(*code));
        i += 3;
        continue;
      }
    }
    result.push_back(text[i]);
  }
  return result;
}

bool lists(std::string_view comma_separated, std::string_view word) {
  const auto words = split(comma_separated, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string_view last_component(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string_view parent_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string_view::npos ? std::string_view("/") : path.substr(0, slash);
}

bool names_unit(std::string_view path) {
  const std::string_view name = last_component(path);
  return name.ends_with(".scope") || name.ends_with(".service");
}

}  // namespace

CgroupPaths parse_proc_cgroup(std::string_view text) {
  CgroupPaths paths;
  for (const std::string_view line : split(text, '\n')) {
    // "5:devices:/docker/ID", "0::/system.slice/x"; the path may contain colons.
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (line.substr(0, first) == "0" && controllers.empty()) paths.v2 = path;
    if (lists(controllers, "devices")) paths.v1_devices = path;
  }
  return paths;
}

std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo) {
  std::vector<CgroupMount> mounts;
  for (const std::string_view line : split(mountinfo, '\n')) {
    // "36 35 0:30 ROOT POINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER_OPTIONS"
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto left = split(line.substr(0, dash), ' ');
    const auto right = split(line.substr(dash + 3), ' ');
    if (left.size() < 6 || right.size() < 3) continue;
    const bool v2 = right[0] == "cgroup2";
    if (!v2 && !(right[0] == "cgroup" && lists(right[2], "devices"))) continue;
    mounts.push_back({v2 ? CgroupKind::kV2 : CgroupKind::kV1Devices, unescape(left[3]), unescape(left[4])});
  }
  return mounts;
}

std::optional<std::string> path_below(const CgroupMount& mount, std::string_view cgroup_path) {
  if (mount.root == "/") {
    // Above the root of the reader's namespace: not to be seen here.
    if (cgroup_path == "/.." || cgroup_path.starts_with("/../")) return std::nullopt;
    return std::string(cgroup_path);
  }
  if (!cgroup_path.starts_with(mount.root)) return std::nullopt;
  const std::string_view rest = cgroup_path.substr(mount.root.size());
  if (rest.empty()) return "/";
  if (!rest.starts_with('/') || rest == "/.." || rest.starts_with("/../")) return std::nullopt;
  return std::string(rest);
}

std::vector<Cgroup> with_ancestors(const Cgroup& cgroup) {
  std::vector<Cgroup> groups{cgroup};
  while (groups.back().path != "/") {
    Cgroup parent = groups.back();
    parent.path = parent_of(groups.back().path);
    groups.push_back(std::move(parent));
  }
  return groups;
}

bool is_systemds(const Cgroup& cgroup) {
  return names_unit(cgroup.path) || names_unit(parent_of(cgroup.path));
}

bool is_unit(const Cgroup& cgroup) {
  return names_unit(cgroup.path);
}

bool is_inside_scope(const Cgroup& cgroup) {
  return last_component(parent_of(cgroup.path)).ends_with(".scope");
}

}  // namespace hook
