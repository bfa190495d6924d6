// Options of a program: one table is its parser, its --help and, made of that, its shell completions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "fabric/text.hpp"

namespace fabric {

template <typename Options>
struct Option {
  std::string_view name;   // without "--"
  std::string_view value;  // what --help calls it; empty: a switch
  std::string_view help;   // in brackets the default
  // Gets "1" for a switch. Errors: what is wrong with the value.
  Result<void> (*apply)(Options& options, std::string_view value);
  std::string_view commands = {};  // that it is for, as words; empty: all
};

// "--name" or "--name=value".
struct Argument {
  std::string_view name;  // without "--"; what is behind "=" may be a secret and is no part of it
  std::optional<std::string_view> value;
};
Argument split_argument(std::string_view argument);

// The option of that name; nullptr: there is none.
template <typename Options>
const Option<Options>* find_option(std::span<const Option<Options>> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Option<Options>::name);
  return found == table.end() ? nullptr : &*found;
}

// The value of an option at arguments[at], given as "--name=value" or in the next argument, to which `at` moves then;
// "1" of a switch. value_name: empty for a switch. Errors: the value is missing, or a switch has one.
Result<std::string_view> take_value(std::span<char* const> arguments, std::size_t& at, std::string_view value_name);
Error unknown_option(std::string_view name);

// Applies the option at arguments[at], as take_value(). Errors: no option, none of the table, its value.
template <typename Options>
Result<void> apply_option(std::span<const Option<Options>> table, std::span<char* const> arguments, std::size_t& at,
                          Options& options) {
  const std::string_view argument = arguments[at];
  if (!argument.starts_with("--")) return make_error("unexpected argument `{}`", printable(argument));
  const Argument given = split_argument(argument);
  const auto* const option = find_option(table, given.name);
  if (!option) return unknown_option(given.name);
  return option->apply(options, TRY(take_value(arguments, at, option->value)));
}

// True if `commands` is empty or has the word.
bool is_for(std::string_view commands, std::string_view command);

// Terminals have 80 columns.
inline constexpr std::size_t kHelpWidth = 80;
// Lines of help: `left`, and from `column` on the text, wrapped. A left part that is too long has a line of its own.
std::string help_lines(std::string_view left, std::string_view text, std::size_t column);
// The same text without a left part.
std::string wrapped(std::string_view text);

// The options of a command, one below the other; empty: of all commands.
template <typename Options>
std::string option_help(std::span<const Option<Options>> table, std::string_view command = {}) {
  const auto left_of = [](const Option<Options>& option) {
    return "  --" + std::string(option.name) + (option.value.empty() ? "" : " ") + std::string(option.value);
  };
  std::size_t column = 0;
  for (const Option<Options>& option : table)
    column = std::max(column, left_of(option).size() + 2);
  std::string text;
  for (const Option<Options>& option : table) {
    if (command.empty() || is_for(option.commands, command)) text += help_lines(left_of(option), option.help, column);
  }
  return text;
}

}  // namespace fabric
