// The cases as they are written down: cases/README.md. What an answer of `env --format json` has to be, and the
// differences in words.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace golden {

using Json = nlohmann::ordered_json;

struct Expectation {
  std::string status;
  // All of env when whole_env, else these variables; null: not exported.
  std::map<std::string, std::optional<std::string>> env;
  bool whole_env = true;
  // Variable to a part of its problem, or null for no problem. Checked when given.
  std::optional<std::map<std::string, std::optional<std::string>>> kept;
  // A part of each warning, in order. Checked when given.
  std::optional<std::vector<std::string>> warnings;
  // "mlx5_0:1" to {"used"?, "gid_index"?, "gid"?, "reason"?: a part of it}.
  Json ports = Json::object();
  // GID index of every used port. Checked when given.
  std::optional<std::map<std::string, unsigned>> indices;
};

enum class Source { kSnapshot, kTree };

// A tree lists devices in natural order, so there lists are compared as sets, and reasons, which may say more, are not.
std::vector<std::string> differences(const Expectation& expected, const Json& answer, Source source);

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
