// Any command line of an engine for its runtime. Words end with a NUL.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "require.hpp"
#include "shim/runtime/invocation.hpp"
#include "shim/runtime/log.hpp"

namespace {

using fuzz::require;
using namespace shim;

std::vector<std::string> words_of(std::string text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\0'), text.size());
    words.push_back(text.substr(0, end));
    text.erase(0, end + 1);
  }
  return words;
}

Invocation parse(std::vector<std::string> words, Dialect dialect) {
  std::vector<char*> arguments;
  arguments.reserve(words.size());
  for (std::string& word : words)
    arguments.push_back(word.data());
  return shim::parse_invocation(arguments, dialect);
}

void parse_checked(const std::vector<std::string>& words, Dialect dialect) {
  const Invocation invocation = parse(words, dialect);
  for (const std::string* value : {&invocation.root, &invocation.log, &invocation.bundle, &invocation.config_file,
                                   &invocation.process_file, &invocation.id}) {
    const bool is_in_words = value->empty() || std::any_of(words.begin(), words.end(), [&](const std::string& word) {
                               return word.ends_with(*value);
                             });
    require(is_in_words, "a value is the end of a word", *value);
  }
  const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  require(invocation.action != Action::kStart || has("create") || has("run"), "a start has its command");
  require(invocation.action != Action::kExec || has("exec"), "an exec has its command");
  require(invocation.process_file.empty() || invocation.action != Action::kStart, "a start has no process");
  (void)shim::log_file(invocation.log, dialect);
}

// Demands that words after a command, or after the container's ID, are no other command and no option of exec.
void parse_behind(std::vector<std::string> front, const std::vector<std::string>& words, Action action,
                  std::string_view id) {
  front.insert(front.end(), words.begin(), words.end());
  for (const Dialect dialect : {Dialect::kRunc, Dialect::kCrun}) {
    const Invocation invocation = parse(front, dialect);
    require(invocation.action == action, "later words do not change the command");
    require(invocation.id == id && invocation.process_file.empty(), "the container's command line sets no value");
  }
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  const auto words = words_of(std::string(text));
  parse_checked(words, Dialect::kRunc);
  parse_checked(words, Dialect::kCrun);
  parse_behind({"exec", "ID"}, words, Action::kExec, "ID");
  parse_behind({"--root", "create", "state", "ID"}, words, Action::kPass, "ID");
}
