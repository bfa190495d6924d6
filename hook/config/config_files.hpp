// The files of the configuration, with everything that is wrong about them as files.
#pragma once

#include <vector>

#include "hook/config/config.hpp"

namespace hook {

struct ConfigFiles {
  std::vector<ConfigText> texts;        // of the files that may be used
  std::vector<ConfigProblem> problems;  // all errors, without lines
};

// As read_config_texts(), but goes on after an error.
ConfigFiles read_config_files(const ConfigPaths& paths);

}  // namespace hook
