// Reads and checks the administrator's files.
#pragma once

#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/config/config.hpp"

namespace hook {

struct ParsedConfig {
  Config config;
  std::vector<ConfigProblem> problems;  // of all files, in their order
  bool ok() const;                      // no problem is an error
};

// Pure. Later texts override earlier ones: lists and scalars are replaced, networks one by one, and so are the members
// of "nodes", "runtime", "nri" and "device_plugin". What a problem quotes is printable and short.
ParsedConfig parse_config(const std::vector<ConfigText>& texts);

// What is configured, in a line for people. Pure.
std::string config_summary(const std::vector<ConfigText>& texts, const Config& config);

// The texts, in order. Refused: a file or one of its directories that is not root's or that group or others can write,
// a symlink at the file itself, a file over 1 MiB. A sticky directory of root's that others can write, such as /tmp,
// will do for a file that must exist. A missing default file is no error. The cluster's file comes first.
Result<std::vector<ConfigText>> read_config_texts(const ConfigPaths& paths);
// The same of the directories of the cluster's file alone, which is not there yet.
Result<void> check_config_directories(const ConfigPaths& paths);
// The same, but goes on after an error.
struct ConfigFiles {
  std::vector<ConfigText> texts;        // of the files that may be used
  std::vector<ConfigProblem> problems;  // all errors, without lines
};
ConfigFiles read_config_files(const ConfigPaths& paths);
// The first error as an Error whose hint is the remedy.
Result<Config> valid_config(const std::vector<ConfigText>& texts);
// read_config_texts(), then valid_config().
Result<Config> read_config(const ConfigPaths& paths);

}  // namespace hook
