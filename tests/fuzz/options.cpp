// Any command line with any RDMA_INIT_* variables, which an image can set.
#include <algorithm>
#include <vector>

#include "base/text.hpp"
#include "init/options.hpp"
#include "require.hpp"

// The input is words, each ended by a zero byte. Words that begin with RDMA_INIT_ are the environment.
void fuzz::run(std::string_view text, FuzzedDataProvider) {
  std::vector<std::string> words = {"rdma-init"};
  std::vector<std::string> variables;
  for (const std::string_view word : base::split(text, '\0'))
    (word.starts_with("RDMA_INIT_") ? variables : words).emplace_back(word);
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<const char*> environment;
  for (const std::string& variable : variables)
    environment.push_back(variable.c_str());
  environment.push_back(nullptr);

  const auto options = init::parse_options(static_cast<int>(words.size()), argv.data(), environment.data());
  if (!options) {
    fuzz::require_one_line(options.error().message, "a usage error");
    fuzz::require_one_line(options.error().hint, "the hint of a usage error");
    return;
  }
  const bool executes = options->command == init::Command::kExec;
  if (executes) {
    fuzz::require(options->program != nullptr, "exec has a command");
    fuzz::require(std::find(argv.begin(), argv.end(), *options->program) != argv.end(), "the command is of argv");
  }
  fuzz::require(options->wait_seconds >= 0, "a wait is not negative");
}
