#include "hook/admin/install/slurm_conf.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

constexpr const char* kSlurmConfs[] = {"/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf",
                                       "/etc/slurm-llnl/slurm.conf"};
constexpr std::string_view kBlanks = " \t\r";

// Removes a comment: from a # to the end, unless a backslash precedes the #.
std::string_view without_comment(std::string_view line) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1))
    if (at == 0 || line[at - 1] != '\\') return line.substr(0, at);
  return line;
}

// Cuts the first `name=value` off a line. The value ends at a blank, or at a quotation mark if it begins with one.
// nullopt: the line has no more.
std::optional<std::pair<std::string, std::string>> next_setting(std::string_view& line) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  std::string_view name = base::trim(line.substr(0, equals));
  name = name.substr(name.find_last_of(kBlanks) + 1);
  line = base::trim(line.substr(equals + 1));
  const bool quoted = line.starts_with('"');
  if (quoted) line.remove_prefix(1);
  const std::size_t end = std::min(quoted ? line.find('"') : line.find_first_of(kBlanks), line.size());
  std::pair<std::string, std::string> setting{in_lower_case(name), line.substr(0, end)};
  line.remove_prefix(std::min(end + 1, line.size()));
  return setting;
}

void parse_line(std::string_view line, std::vector<std::pair<std::string, std::string>>& settings) {
  constexpr std::string_view kInclude = "include";
  line = base::trim(line);
  const std::size_t word = line.find_first_of(kBlanks);
  if (word != std::string_view::npos && in_lower_case(line.substr(0, word)) == kInclude) {
    settings.emplace_back(kInclude, base::trim(line.substr(word)));
    return;
  }
  while (auto setting = next_setting(line))
    settings.push_back(std::move(*setting));
}

// Reads a file and those that it includes. Slurm looks up a relative path in the directory of slurm.conf.
void read_with_includes(const std::string& root, const std::string& path, unsigned& files, SlurmConf& conf) {
  constexpr std::size_t kLongestConf = 16 << 20;
  constexpr unsigned kMostFiles = 64;  // limit of included files, because a file can include itself
  const bool is_loop = ++files > kMostFiles;
  const auto text =
      is_loop ? base::Attr<std::string>(base::Unreadable{ELOOP}) : base::read_file(root + path, kLongestConf);
  if (const auto* failed = std::get_if<base::Unreadable>(&text)) {
    if (conf.error.empty()) conf.error = "cannot read `" + base::printable(path) + "`: " + std::strerror(failed->code);
    return;
  }
  for (auto& [name, value] : parse_slurm_conf(std::get<std::string>(text))) {
    if (name == "include") {
      const std::string directory = conf.path.substr(0, conf.path.rfind('/') + 1);
      read_with_includes(root, value.starts_with('/') ? value : directory + value, files, conf);
    } else {
      conf.values.insert(value);
      conf.settings.insert_or_assign(name, std::move(value));
    }
  }
}

// Returns true if a list of limits such as "MEMLOCK,NOFILE" has the name or ALL.
bool has_limit(std::string_view list, std::string_view name) {
  const std::string words = in_lower_case(list);
  for (const std::string_view word : base::split(words, ',')) {
    std::string_view limit = base::trim(word);
    if (limit.starts_with("rlimit_")) limit.remove_prefix(std::strlen("rlimit_"));
    if (limit == name || limit == "all") return true;
  }
  return false;
}

}  // namespace

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::vector<std::pair<std::string, std::string>> parse_slurm_conf(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> settings;
  std::string line;
  for (const std::string_view part : base::split(text, '\n')) {
    // Slurm ends a comment only at the end of the continued line.
    const std::size_t end = part.find_last_not_of(kBlanks);
    if (end != std::string_view::npos && part[end] == '\\') {
      line += part.substr(0, end);
      continue;
    }
    line += part;
    parse_line(without_comment(line), settings);
    line.clear();
  }
  parse_line(without_comment(line), settings);
  return settings;
}

std::optional<SlurmConf> read_slurm_conf(const std::string& root) {
  for (const char* path : kSlurmConfs) {
    SlurmConf conf{path, {}, {}, {}};
    const auto text = base::read_file(root + path, 1);
    const auto* failed = std::get_if<base::Unreadable>(&text);
    if (failed && base::is_absent(failed->code)) continue;
    unsigned files = 0;
    read_with_includes(root, path, files, conf);
    return conf;
  }
  return std::nullopt;
}

bool propagates_memlock(const SlurmSettings& settings) {
  // Slurm ignores PropagateResourceLimits if PropagateResourceLimitsExcept is set. The default is ALL.
  if (const auto except = settings.find("propagateresourcelimitsexcept"); except != settings.end())
    return !has_limit(except->second, "memlock");
  const auto listed = settings.find("propagateresourcelimits");
  return listed == settings.end() || has_limit(listed->second, "memlock");
}

std::string setting_with_memlock(const SlurmSettings& settings) {
  const auto except = settings.find("propagateresourcelimitsexcept");
  const bool keeps = except != settings.end() && !except->second.empty() && in_lower_case(except->second) != "none";
  return "PropagateResourceLimitsExcept=" + (keeps ? base::printable(except->second) + "," : std::string()) + "MEMLOCK";
}

}  // namespace hook
