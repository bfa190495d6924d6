// Reads and checks the administrator's files.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/config/config.hpp"

namespace hook {

struct ParsedConfig {
  Config config;
  std::vector<ConfigProblem>
      problems;     // problems of each file in order, then of references between values (pool to network)
  bool ok() const;  // returns whether no problem is an error
};

// Parses and checks texts. Pure. Later texts override earlier ones: lists and scalars are replaced; networks one by
// one; members of "nodes", "runtime", "nri" and "device_plugin" one by one. Quoted text in problems is printable and
// short.
ParsedConfig parse_config(const std::vector<ConfigText>& texts);

// Returns a summary of the configuration in one line. Pure.
std::string config_summary(const std::vector<ConfigText>& texts, const Config& config);

// Returns the texts in order, the cluster's file first. A missing default file is no error. Errors (all with code
// EPERM): a file or a directory above it belongs neither to root nor to the user of this process, or can be written by
// group or other users; the file is a symbolic link, has more than 1 MiB, or cannot be read. A file of --config may be
// in a sticky directory of root such as /tmp.
Result<std::vector<ConfigText>> read_config_texts(const ConfigPaths& paths);
// Checks the directories above the cluster's file; the file need not exist. Errors: EPERM, a user other than root and
// the user of this process can change a directory; a directory cannot be read.
Result<void> check_config_directories(const ConfigPaths& paths);
// Result of reading all files, continued after errors.
struct ConfigFiles {
  std::vector<ConfigText> texts;        // the texts of the files without an error
  std::vector<ConfigProblem> problems;  // all errors; they have no lines
};
ConfigFiles read_config_files(const ConfigPaths& paths);
// Parses texts. Errors (EINVAL): the first problem that is an error; the hint is its remedy.
Result<Config> valid_config(const std::vector<ConfigText>& texts);
// Reads and parses the configuration: read_config_texts(), then valid_config().
Result<Config> read_config(const ConfigPaths& paths);

// The state of the administrator's files at one time, for a process that reads them again for each request.
class ConfigVersion {
 public:
  ConfigVersion() = default;  // a version without files is never current
  // Notes the present state. Call it before the files are read.
  explicit ConfigVersion(const ConfigPaths& paths);
  // Returns true if no file was made, changed, replaced or removed since. Costs one system call for each file. Returns
  // false also if a change can have the same time as the noted state.
  bool is_current() const;

 private:
  struct File {
    std::string path;
    int error = 0;  // errno of stat(2)
    std::uint64_t dev = 0;
    std::uint64_t ino = 0;
    std::int64_t size = 0;
    timespec modified{};
    timespec changed{};
  };
  static File look_at(std::string path);
  std::vector<File> files_;
  bool is_settled_ = false;
};

}  // namespace hook
