#include "init/nccl_conf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace init {
namespace {

constexpr std::size_t kMaxConfSize = 64 << 20;
constexpr std::array<std::string_view, 8> kVariablePrefixes = {"NCCL_", "UCX_",  "NVSHMEM_",  "MSCCLPP_",
                                                               "GLOO_", "UCCL_", "FI_VERBS_", "OMPI_MCA_btl_openib_"};
// Mooncake's by name: MinIO's client keeps its keys in MC_HOST_*, and a snapshot goes into bug reports.
constexpr std::array<std::string_view, 9> kVariableNames = {"MC_GID_INDEX",  "MC_TE_FILTERS", "MC_TE_FILTERS_EXCLUDE",
                                                            "MC_IB_PORT",    "MC_IB_TC",      "MC_IB_SL",
                                                            "MC_PKEY_INDEX", "MC_MTU",        "FI_PROVIDER"};

// No other library reads these files.
bool is_conf_line(std::string_view line) {
  return line.starts_with("NCCL_") && line.find('=') != std::string_view::npos;
}

}  // namespace

bool is_library_variable(std::string_view name) {
  return std::find(kVariableNames.begin(), kVariableNames.end(), name) != kVariableNames.end() ||
         std::any_of(kVariablePrefixes.begin(), kVariablePrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

void add_conf(std::string_view text, const std::string& path, Settings& settings) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool has_cr = line.ends_with('\r');
    if (has_cr) line.remove_suffix(1);
    if (!is_conf_line(line)) continue;
    const std::size_t equals = line.find('=');
    const std::string_view name = line.substr(0, equals);
    if (settings.find(name) != settings.end()) continue;
    settings.emplace(name, Setting{std::string(line.substr(equals + 1)), path, has_cr});
  }
}

std::string conf_lines(std::string_view text) {
  std::string lines;
  for (const std::string_view line : fabric::split(text, '\n')) {
    if (is_conf_line(line)) lines.append(line).append("\n");
  }
  return lines;
}

void add_environment(const char* const* environment, Settings& settings) {
  for (; *environment; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !is_library_variable(entry.substr(0, equals))) continue;
    settings.emplace(entry.substr(0, equals), Setting{std::string(entry.substr(equals + 1)), "environment", false});
  }
}

std::vector<std::string> conf_paths(const Settings& settings, std::string_view home) {
  std::vector<std::string> paths;
  const auto named = settings.find("NCCL_CONF_FILE");
  if (named != settings.end() && !named->second.value.empty()) {
    paths.push_back(named->second.value);
  } else if (!home.empty()) {
    paths.push_back(std::string(home) + "/.nccl.conf");
  }
  paths.emplace_back("/etc/nccl.conf");
  return paths;
}

std::map<std::string, std::string> read_conf_files(const Settings& settings, const std::vector<std::string>& paths,
                                                   const std::string& root, std::vector<std::string>& problems) {
  const auto named = settings.find("NCCL_CONF_FILE");
  std::map<std::string, std::string> files;
  for (const std::string& path : paths) {
    auto text = fabric::sysfs::read_file(root + path, kMaxConfSize);
    if (auto* content = std::get_if<std::string>(&text)) {
      files.emplace(path, std::move(*content));
      continue;
    }
    const int code = std::get<fabric::Unreadable>(text).code;
    const bool asked = named != settings.end() && named->second.value == path;
    // What we may not read, NCCL may not either.
    if (!asked && (code == ENOENT || code == ENOTDIR || code == EACCES)) continue;
    problems.push_back(fmt::format("{}{}: {}; nothing of it is known", asked ? "NCCL_CONF_FILE=" : "",
                                   fabric::printable(path),
                                   code == EFBIG ? "has more than 64 MiB" : std::strerror(code)));
  }
  return files;
}

}  // namespace init
