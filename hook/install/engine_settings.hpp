// What containerd and CRI-O print of their configuration, by table and key. The engine has read the files; what it
// prints has one form, a header or a key on each line, so that nothing here has to know all of TOML.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hook {

// "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc" and "runtime_type", each quote a '.
struct SettingName {
  std::string table;
  std::string key;
  friend auto operator<=>(const SettingName&, const SettingName&) = default;
};
// The values as they are printed, quotes again '.
using EngineSettings = std::map<SettingName, std::string>;

// defaults_are_comments: CRI-O prints a setting that has its default behind "# ", among comments in English. Of these
// lines only an exact heading and `key = value` count. A list over several lines becomes one line.
EngineSettings parse_engine_settings(std::string_view printed, bool defaults_are_comments = false);

// The text of a string; empty where it is none, or not there.
std::string setting_text(const EngineSettings& settings, const std::string& table, const std::string& key);

// The texts of a list of strings; none where it is no list, or not there.
std::vector<std::string> setting_list(const EngineSettings& settings, const std::string& table, const std::string& key);

// A value that is as good as none: '', 0, false, [].
bool is_empty_setting(std::string_view value);

// The first setting of `before` that `after` has lost or has otherwise, as "TABLE: KEY"; nullopt: none. Not counted:
// `imports` and `version`, what `meant` sets, and what was empty.
std::optional<std::string> lost_setting(const EngineSettings& before, const EngineSettings& after,
                                        const EngineSettings& meant);
// The first setting of `meant` that `after` does not have.
std::optional<std::string> missing_setting(const EngineSettings& after, const EngineSettings& meant);

}  // namespace hook
