#include "hook/install/engine_settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/text.hpp"

namespace hook {
namespace {

std::string named(const std::pair<std::string, std::string>& setting) {
  return setting.first.empty() ? setting.second : fmt::format("[{}]: {}", setting.first, setting.second);
}

}  // namespace

EngineSettings parse_engine_settings(std::string_view printed, bool defaults_are_comments) {
  EngineSettings settings;
  std::string table;
  for (const std::string_view raw : fabric::split(printed, '\n')) {
    std::string line(fabric::trim(raw));
    if (defaults_are_comments && line.starts_with("# ")) line.erase(0, 2);
    std::replace(line.begin(), line.end(), '"', '\'');
    if (line.empty() || line.front() == '#') continue;
    const auto equals = line.find('=');
    if (line.front() == '[') {
      table = line.substr(1, line.rfind(']') - 1);
    } else if (equals != std::string::npos) {
      const std::string key(fabric::trim(std::string_view(line).substr(0, equals)));
      settings[{table, key}] = fabric::trim(std::string_view(line).substr(equals + 1));
    }
  }
  return settings;
}

std::string setting_text(const EngineSettings& settings, const std::string& table, const std::string& key) {
  const auto found = settings.find({table, key});
  if (found == settings.end() || found->second.size() < 2 || found->second.front() != '\'') return {};
  return found->second.substr(1, found->second.size() - 2);
}

bool is_empty_setting(std::string_view value) {
  return value == "''" || value == "0" || value == "false" || value == "[]" || value == "{}" || value == "'0s'";
}

std::optional<std::string> lost_setting(const EngineSettings& before, const EngineSettings& after,
                                        const EngineSettings& meant) {
  for (const auto& [setting, value] : before) {
    if (setting.first.empty() && (setting.second == "imports" || setting.second == "version")) continue;
    if (meant.contains(setting) || is_empty_setting(value)) continue;
    const auto found = after.find(setting);
    if (found == after.end() || found->second != value) return named(setting);
  }
  return std::nullopt;
}

std::optional<std::string> missing_setting(const EngineSettings& after, const EngineSettings& meant) {
  for (const auto& [setting, value] : meant) {
    const auto found = after.find(setting);
    if (found == after.end() || found->second != value) return named(setting);
  }
  return std::nullopt;
}

}  // namespace hook
