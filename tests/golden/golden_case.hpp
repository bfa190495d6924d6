// The cases as they are written down: cases/README.md.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "golden/expectation.hpp"

namespace golden {

struct Case {
  std::string name;
  std::vector<std::string> args;
  int exit_code = 0;
  std::vector<std::string> stderr_parts;

  // A machine and the answer wanted of it.
  Json snapshot;
  std::optional<Expectation> expected;
  std::string not_as_tree;  // why a file tree cannot say it; empty if it can

  // Or a command line as it is: files to make, then what comes out. @DIR@ is the temporary directory.
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> environment;
  std::string input;
  std::optional<std::string> stdout_text;
  std::vector<std::string> stdout_parts;
};

// Reads cases/NAME.json, or NAME.expect.json with the snapshot NAME.json beside it. Throws nlohmann::json::exception or
// std::runtime_error for a file that is no case.
Case read_case(const std::string& path);

}  // namespace golden
