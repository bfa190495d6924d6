#include "hook/admin/install/engine_settings.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace hook {
namespace {

std::string named(const SettingName& setting) {
  return setting.table.empty() ? setting.key : fmt::format("[{}]: {}", setting.table, setting.key);
}

bool is_key(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// Appends a printed line of a list to `list`, the lines before it. The result is a list in one line: "['a', 'b']".
void add_to_list(std::string_view line, std::string& list) {
  if (line == "]") {
    list += line;
    return;
  }
  if (line.ends_with(',')) line.remove_suffix(1);
  list += (list == "[" ? "" : ", ") + std::string(line);
}

}  // namespace

EngineSettings parse_engine_settings(std::string_view printed, bool defaults_are_comments) {
  EngineSettings settings;
  std::string table;
  auto list = settings.end();  // the list whose lines are being read; end(): there is none
  bool in_example = false;     // true below a commented header in the middle of a description
  bool below_comment = false;
  for (const std::string_view raw : base::split(printed, '\n')) {
    std::string line(base::trim(raw));
    const bool is_default = defaults_are_comments && line.starts_with("# ");
    const bool is_below_comment = std::exchange(below_comment, line.starts_with('#'));
    if (is_default) line = base::trim(std::string_view(line).substr(2));
    std::ranges::replace(line, '"', '\'');
    if (line.empty() || line.front() == '#') continue;
    const auto equals = line.find('=');
    if (list != settings.end()) {
      add_to_list(line, list->second);
      if (line == "]") list = settings.end();
    } else if (line.front() == '[' && (!is_default || line.back() == ']')) {
      table = line.substr(1, line.rfind(']') - 1);
      in_example = is_default && is_below_comment;
    } else if (is_default && in_example) {
      continue;
    } else if (equals != std::string::npos) {
      const std::string key(base::trim(std::string_view(line).substr(0, equals)));
      // CRI-O also prints descriptions of settings as comments. A description can contain `=`, so the text in front of
      // `=` must be a key.
      if (is_default && !is_key(key)) continue;
      const auto at =
          settings.insert_or_assign({table, key}, base::trim(std::string_view(line).substr(equals + 1))).first;
      if (at->second == "[") list = at;
    }
  }
  // The output ended inside a list, so the value of this list is unknown.
  if (list != settings.end()) settings.erase(list);
  return settings;
}

std::string bare_name(std::string_view name) {
  std::string bare(name);
  std::erase_if(bare, [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '"' || c == '\''; });
  return bare;
}

std::string setting_text(const EngineSettings& settings, const std::string& table, const std::string& key) {
  const auto found = settings.find({table, key});
  if (found == settings.end() || found->second.size() < 2 || found->second.front() != '\'') return {};
  return found->second.substr(1, found->second.size() - 2);
}

std::vector<std::string> setting_list(const EngineSettings& settings, const std::string& table,
                                      const std::string& key) {
  std::vector<std::string> texts;
  const auto found = settings.find({table, key});
  if (found == settings.end() || !found->second.starts_with('[')) return texts;
  const auto parts = base::split(found->second, '\'');
  for (std::size_t at = 1; at + 1 < parts.size(); at += 2)
    texts.emplace_back(parts[at]);
  return texts;
}

bool is_empty_setting(std::string_view value) {
  return value == "''" || value == "0" || value == "false" || value == "[]" || value == "{}" || value == "'0s'";
}

std::optional<std::string> lost_setting(const EngineSettings& before, const EngineSettings& after,
                                        const EngineSettings& meant) {
  for (const auto& [setting, value] : before) {
    if (setting.table.empty() && (setting.key == "imports" || setting.key == "version")) continue;
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
