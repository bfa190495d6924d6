// Options of a program. One table drives the parser, --help and the shell completions that are generated from --help.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/text.hpp"

namespace base {

template <typename Options>
struct Option {
  std::string_view name;   // name without "--"
  std::string_view value;  // name of the value in --help; empty: a switch
  std::string_view help;   // the default is in brackets
  // Stores the value, "1" for a switch. Errors: the value is not valid.
  Result<void> (*apply)(Options& options, std::string_view value);
  std::string_view commands = {};  // commands that accept the option, separated by spaces; empty: all
};

// Returns "a, b or c".
std::string listed(std::span<const std::string_view> words);
// Returns nothing if `words` has the value. Otherwise the error names the words, and the nearest one.
Result<void> check_word(std::string_view option, std::string_view value, std::span<const std::string_view> words);

// Returns whether an argument has the form of an option: "--name", "--name=value", or "-h" for "--help".
inline bool is_option(std::string_view argument) {
  return argument.starts_with("--") || argument == "-h";
}

// An argument of the form "--name" or "--name=value", split at the first "=".
struct Argument {
  std::string_view name;  // name without "--"; messages quote only the name, because the value may be a secret
  std::optional<std::string_view> value;
};
Argument split_argument(std::string_view argument);

// Returns the option with that name, nullptr if the table has none.
template <typename Options>
const Option<Options>* find_option(std::span<const Option<Options>> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Option<Options>::name);
  return found == table.end() ? nullptr : &*found;
}

// Returns true if `commands` is empty or contains the word `command`.
bool is_for(std::string_view commands, std::string_view command);

// Returns the option with that name that the command accepts; if there is none, that of another command, or nullptr.
// Options of one name differ only in help and commands.
template <typename Options>
const Option<Options>* find_option(std::span<const Option<Options>> table, std::string_view name,
                                   std::string_view command) {
  const auto found = std::ranges::find_if(
      table, [&](const auto& option) { return option.name == name && is_for(option.commands, command); });
  return found == table.end() ? find_option(table, name) : &*found;
}

// Returns the value of the option at arguments[at]: from "--name=value", or from the next argument. In the second case,
// `at` moves to that argument. A switch yields "1".
// value_name: name of the value in --help, empty for a switch. Errors: a missing value, or a switch with a value.
Result<std::string_view> take_value(std::span<char* const> arguments, std::size_t& at, std::string_view value_name);
// Returns " (did you mean `PREFIXWORD`?)"; an empty text for an empty word.
std::string suggestion(std::string_view prefix, std::string_view word);
template <typename Options>
std::vector<std::string_view> names_of(std::span<const Option<Options>> table) {
  std::vector<std::string_view> names;
  for (const Option<Options>& option : table)
    names.push_back(option.name);
  return names;
}
// Returns the error about an option that the table does not have. The error names the option that the user probably
// meant.
template <typename Options>
Error unknown_option(std::span<const Option<Options>> table, std::string_view name) {
  // The name may come from an image or a job file, and the message may end up in a log, so the name is escaped.
  return make_error("unknown option `--{}`{}", printable(name), suggestion("--", nearest_word(name, names_of(table))));
}

// Applies the option at arguments[at] to `options`. If its value is the next argument, moves `at` to that argument.
// Errors: the argument is no option, the table has no such option, or the value is not valid.
template <typename Options>
Result<void> apply_option(std::span<const Option<Options>> table, std::span<char* const> arguments, std::size_t& at,
                          Options& options) {
  const std::string_view argument = arguments[at];
  if (!is_option(argument)) return make_error("unexpected argument `{}`", printable(argument));
  const Argument passed = split_argument(argument);
  const auto* const option = find_option(table, passed.name);
  if (!option) return unknown_option(table, passed.name);
  return option->apply(options, TRY(take_value(arguments, at, option->value)));
}

// Applies the option at arguments[at] as apply_option() does, and returns its value. Errors name the option.
template <typename Options>
Result<std::string_view> take_option(std::span<const Option<Options>> table, std::span<char* const> arguments,
                                     std::size_t& at, Options& options) {
  const std::string_view name = split_argument(arguments[at]).name;
  const auto* const option = find_option(table, name);
  if (!option) return unknown_option(table, name);
  const std::string_view value = TRY(take_value(arguments, at, option->value));
  if (auto done = option->apply(options, value); !done) return wrap(std::move(done).error(), fmt::format("--{}", name));
  return value;
}

// Returns the variable of an option: RDMA_INIT_NCCL_VERSION for "RDMA_INIT_" and "nccl-version".
std::string variable_of(std::string_view prefix, std::string_view option);

// Returns the names of the options before `--`.
std::vector<std::string_view> passed_options(std::span<char* const> arguments);

// Most unknown variables that apply_variables() reports, because an image may have any number of them.
inline constexpr std::size_t kMostUnknown = 8;
// Returns the warning about a variable that the program does not read, without its value. The warning names the
// variable that the user probably meant. Returns an empty text for variables that Kubernetes makes for a Service whose
// name begins like the program's: RDMA_PING_SERVICE_HOST, RDMA_PING_PORT_4792_TCP (the kubelet, pkg/kubelet/envvars).
// names: words of the known variables, in the form of options: "nccl-version".
std::string unknown_variable(std::string_view prefix, std::string_view variable, std::vector<std::string_view> names);

// The names of a program's variables: their common prefix, and the ends of the names that belong to no option,
// separated by spaces.
struct VariableNames {
  std::string_view prefix;
  std::string_view others;
};

// Applies the variables of options that are not in `passed`: the command line has precedence, even over an invalid
// variable. An empty variable counts as unset, because a Dockerfile cannot unset one. A variable with the prefix that
// is neither an option's nor in `names.others` adds a warning to options.warnings. Applies none if `passed` has help or
// version, which must work with an invalid variable.
// Errors: the value is not valid; the message starts with the variable.
template <typename Options>
Result<void> apply_variables(std::span<const Option<Options>> table, const VariableNames& names,
                             const char* const* environment, std::span<const std::string_view> passed,
                             Options& options) {
  if (std::ranges::any_of(passed, [](auto name) { return name == "help" || name == "version"; })) return {};
  for (; *environment; ++environment) {
    const std::string_view entry = *environment;
    const auto [variable, value] = split_first(entry, '=');
    if (!entry.starts_with(names.prefix) || value.empty()) continue;
    const auto option =
        std::ranges::find(table, variable, [&](const auto& one) { return variable_of(names.prefix, one.name); });
    if (option == table.end() && options.warnings.size() < kMostUnknown &&
        !is_for(names.others, variable.substr(names.prefix.size()))) {
      auto known = names_of(table);
      for (const std::string_view other : split(names.others, ' '))
        known.push_back(other);
      auto warning = unknown_variable(names.prefix, variable, std::move(known));
      if (!warning.empty()) options.warnings.push_back(std::move(warning));
    }
    if (option == table.end() || std::ranges::find(passed, option->name) != passed.end()) continue;
    if (auto done = option->apply(options, value); !done) return wrap(std::move(done).error(), variable);
  }
  return {};
}

inline Result<void> store(auto& target, const auto& value) {
  target = value;
  return {};
}
// Stores a value, or returns the error that names the expected form. parsed: a pointer or optional.
inline Result<void> expect(auto& target, const auto& parsed, std::string_view expected, std::string_view text) {
  if (!parsed) return make_error("expected {}, got `{}`", expected, printable(text));
  return store(target, *parsed);
}
// Sets a switch to `on` for "1" and to the opposite for "0", with which a variable turns it off. Errors: another text.
Result<void> set_switch(bool& target, std::string_view text, bool on = true);

// Columns of --help: the usual width of a terminal.
inline constexpr std::size_t kHelpWidth = 80;
// Returns lines of help: `left`, then `text`, which starts at `column` and is wrapped at kHelpWidth. If `left` reaches
// `column`, it gets a line of its own.
std::string help_lines(std::string_view left, std::string_view text, std::size_t column);
// Returns `text` wrapped at kHelpWidth, without a left part.
std::string wrapped(std::string_view text);

// Returns the help of the options that `command` accepts, one per line. An empty command selects all options.
template <typename Options>
std::string option_help(std::span<const Option<Options>> table, std::string_view command = {}) {
  const auto left_of = [](const Option<Options>& option) {
    return "  --" + std::string(option.name) + (option.value.empty() ? "" : " ") + std::string(option.value);
  };
  std::size_t column = 0;
  for (const Option<Options>& option : table)
    column = std::max(column, left_of(option).size() + 2);
  std::string text;
  for (const Option<Options>& option : table)
    if (command.empty() || is_for(option.commands, command)) text += help_lines(left_of(option), option.help, column);
  return text;
}

}  // namespace base
