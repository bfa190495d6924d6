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
  // Doctor's answer: whether the container is fit, names of causes in its JSON, and parts that its text has and lacks.
  std::optional<bool> fit;
  std::vector<std::string> causes;
  std::vector<std::string> report;
  std::vector<std::string> not_in_report;

  // Or a command line: the files to make, and the expected output. @DIR@ is the temporary directory. If a snapshot is
  // set, it is the file node.json there, and the file tree of its machine is the directory node.
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> environment;
  std::string input;
  std::optional<std::string> stdout_text;
  std::vector<std::string> stdout_parts;
  std::vector<std::string> not_in_stdout;
};

// Reads cases/NAME.json, or NAME.expect.json with the snapshot NAME.json of the same directory. Throws
// nlohmann::json::exception or std::runtime_error for a file that is no case.
Case read_case(const std::string& path);

// Returns the text with each series of white space as one blank, so that wrapped lines can be compared.
std::string unwrapped(std::string_view text);

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace golden
