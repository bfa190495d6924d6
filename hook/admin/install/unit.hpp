// Reads systemd units with their drop-ins: each setting with its file and line, the command that a unit starts, and the
// variables of that command (systemd.unit(5), systemd.service(5), systemd.exec(5)).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hook {

// A line of a file that sets a key.
struct FileSetting {
  std::string file;   // path of the file on the node
  unsigned line = 0;  // number of the line, from 1
  std::string key;
  std::string value;
};
// In the order in which systemd reads them: the unit, then its drop-ins.
using Unit = std::vector<FileSetting>;

// Parses the text of a unit or drop-in. Joins lines that end with a backslash. Ignores sections, because each key that
// rdma-init reads occurs in only one of them. Pure.
Unit parse_unit(std::string_view text, const std::string& file);
// Reads a unit such as "docker.service" and its drop-ins; empty if there is no such unit.
Unit read_unit(const std::string& root, const std::string& name);

using UnitVariables = std::map<std::string, FileSetting>;  // variables by name; FileSetting::key is the name too
// Returns the variables that Environment= and the files of EnvironmentFile= set. A file that cannot be read sets none.
UnitVariables read_unit_variables(const std::string& root, const Unit& unit);

struct UnitCommand {
  std::vector<std::string> words;  // the program and its arguments, without quotes and prefixes
  std::string file;
  unsigned line = 0;
};
// Returns the command of the last ExecStart= of a unit; nullopt if there is none. `$NAME` and `${NAME}` are replaced by
// the variables; a variable that is not set is empty. Pure.
std::optional<UnitCommand> exec_start(const Unit& unit, const UnitVariables& variables);

// Returns the last LimitMEMLOCK= of a unit in bytes (systemd.exec(5)); nullopt if there is none or it cannot be
// parsed. Accepts "infinity", "64K" and "8M:16M" (soft and hard limit; the hard limit is returned).
std::optional<std::uint64_t> unit_memlock(const Unit& unit);

}  // namespace hook
