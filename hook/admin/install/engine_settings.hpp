// Parses the configuration that containerd and CRI-O print into tables and keys. The engine prints one header or key in
// each line, so the parser supports only a small part of TOML.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hook {

// The name of a setting: table and key, such as "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc" and
// "runtime_type". Each " is replaced by '.
struct SettingName {
  std::string table;
  std::string key;
  friend auto operator<=>(const SettingName&, const SettingName&) = default;
};
// The values of settings as the engine prints them, with each " replaced by '.
using EngineSettings = std::map<SettingName, std::string>;

// Parses printed settings. A list that is printed over several lines is joined into one line. Pure.
// defaults_are_comments: true for CRI-O, which prints settings with default values as comments, among comments in
// English. A comment counts as a setting only if it has exactly the form of a header or of `key = value`. A commented
// header directly below another comment begins an example: its comments are no settings.
EngineSettings parse_engine_settings(std::string_view printed, bool defaults_are_comments = false);

// Returns the name of a table or key without blanks and quotes, to compare names: TOML allows several spellings.
std::string bare_name(std::string_view name);

// Returns the text of a string setting; an empty text if the setting is missing or is not a string.
std::string setting_text(const EngineSettings& settings, const std::string& table, const std::string& key);

// Returns the texts of a list of strings; an empty list if the setting is missing or is not a list.
std::vector<std::string> setting_list(const EngineSettings& settings, const std::string& table, const std::string& key);

// Returns true for '', 0, false, [], {} and '0s': a setting with such a value has the same effect as a missing setting.
bool is_empty_setting(std::string_view value);

// Returns the first setting of `before` that `after` does not have or has with another value, as "[TABLE]: KEY";
// nullopt if there is none. Ignores `imports`, `version`, empty settings, and settings in `meant`.
std::optional<std::string> lost_setting(const EngineSettings& before, const EngineSettings& after,
                                        const EngineSettings& meant);
// Returns the first setting of `meant` that `after` does not have or has with another value, as "[TABLE]: KEY"; nullopt
// if there is none.
std::optional<std::string> missing_setting(const EngineSettings& after, const EngineSettings& meant);

}  // namespace hook
