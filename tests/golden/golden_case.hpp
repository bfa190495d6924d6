// Reads cases (cases/README.md) and compares an answer of `env --format json` with the expected one.
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

// Returns the differences as text. A tree lists devices in natural order, so its lists are compared as sets. The
// reasons of a tree may be more detailed and are not compared.
std::vector<std::string> differences(const Expectation& expected, const Json& answer, Source source);

struct Case {
  std::string name;
  std::vector<std::string> args;
  int exit_code = 0;
  std::vector<std::string> stderr_parts;

  // A machine and the expected answer.
  Json snapshot;
  std::optional<Expectation> expected;
  std::string not_as_tree;  // why a file tree cannot express the case; empty: it can

  // Or a command line: the files to create, and the expected output. @DIR@ is the temporary directory.
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> environment;
  std::string input;
  std::optional<std::string> stdout_text;
  std::vector<std::string> stdout_parts;
};

// Reads cases/NAME.json, or NAME.expect.json with the snapshot NAME.json next to it. Throws nlohmann::json::exception
// or std::runtime_error for a file that is not a case.
Case read_case(const std::string& path);

}  // namespace golden
