// Reads the cases (cases/README.md), and describes the differences between an answer of `env --format json` and the
// expectation.
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
  // The complete env if whole_env is set, otherwise these variables. null: not exported.
  std::map<std::string, std::optional<std::string>> env;
  bool whole_env = true;
  // Variable to a part of its problem, or null for no problem. Checked if the case has it.
  std::optional<std::map<std::string, std::optional<std::string>>> kept;
  // A part of each warning, in order. Checked if the case has it.
  std::optional<std::vector<std::string>> warnings;
  // "mlx5_0:1" to {"used"?, "gid_index"?, "gid"?, "reason"?: a part of it}.
  Json ports = Json::object();
  // GID index of every used port. Checked if the case has it.
  std::optional<std::map<std::string, unsigned>> indices;
};

enum class Source { kSnapshot, kTree };

// Returns a sentence for each difference. With kTree, lists are compared as sets, because a tree has the devices in
// natural order, and reasons are not compared, because they can be longer.
std::vector<std::string> differences(const Expectation& expected, const Json& answer, Source source);

struct Case {
  std::vector<std::string> args;
  int exit_code = 0;
  std::vector<std::string> stderr_parts;

  // A machine and the expected answer.
  Json snapshot;
  std::optional<Expectation> expected;
  std::string not_as_tree;  // the reason if a file tree cannot represent the machine, otherwise empty

  // Or a command line: the files to make, and the expected output. @DIR@ is the temporary directory.
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> environment;
  std::string input;
  std::optional<std::string> stdout_text;
  std::vector<std::string> stdout_parts;
  std::vector<std::string> stdout_absent;  // parts that stdout must not have
};

// Reads cases/NAME.json, or NAME.expect.json with the snapshot NAME.json of the same directory. Throws
// nlohmann::json::exception or std::runtime_error for a file that is no case.
Case read_case(const std::string& path);

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace golden
