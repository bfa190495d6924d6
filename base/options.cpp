#include "base/options.hpp"

#include <cctype>

namespace base {

Argument split_argument(std::string_view argument) {
  if (argument == "-h") return {"help", std::nullopt};
  argument.remove_prefix(std::min<std::size_t>(2, argument.size()));
  const std::size_t equals = argument.find('=');
  if (equals == std::string_view::npos) return {argument, std::nullopt};
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

Result<std::string_view> take_value(std::span<char* const> arguments, std::size_t& at, std::string_view value_name) {
  const Argument passed = split_argument(arguments[at]);
  if (value_name.empty()) {
    if (passed.value) return make_error("`--{}` takes no value", printable(passed.name));
    return std::string_view("1");
  }
  if (passed.value) return *passed.value;
  if (at + 1 >= arguments.size()) return make_error("`--{}` needs a value: {}", printable(passed.name), value_name);
  // The next argument is the value even if it starts with "--", as with getopt_long(3).
  return std::string_view(arguments[++at]);
}

std::string suggestion(std::string_view prefix, std::string_view word) {
  return word.empty() ? "" : fmt::format(" (did you mean `{}{}`?)", prefix, word);
}

std::string variable_of(std::string_view prefix, std::string_view option) {
  std::string name(prefix);
  for (const char c : option)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string unknown_variable(std::string_view prefix, std::string_view variable, std::vector<std::string_view> names) {
  constexpr std::size_t kLongest = 64;  // bytes of a name in the warning
  // `end` begins with the last "_" of the prefix. Only the variables of a Kubernetes Service have one of these ends.
  const std::string_view end = variable.substr(prefix.size() - 1);
  if (end.find("_SERVICE_") != end.npos || end.find("_PORT_") != end.npos || end.ends_with("_PORT")) return {};
  // Compared without the prefix, because the limit of changed letters grows with the length of the names.
  std::string word(variable.substr(prefix.size()));
  std::ranges::replace(word, '_', '-');
  const std::string_view nearest = nearest_word(word, names);
  return fmt::format("variable `{}` is unknown{}", printable(variable, kLongest),
                     suggestion("", nearest.empty() ? "" : variable_of(prefix, nearest)));
}

std::vector<std::string_view> passed_options(std::span<char* const> arguments) {
  std::vector<std::string_view> names;
  for (const std::string_view argument : arguments) {
    if (argument == "--") break;
    if (is_option(argument)) names.push_back(split_argument(argument).name);
  }
  return names;
}

Result<void> set_switch(bool& target, std::string_view text, bool on) {
  if (text != "0" && text != "1") return make_error("expected 0 or 1, got `{}`", printable(text));
  target = on == (text == "1");
  return {};
}

std::string listed(std::span<const std::string_view> words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i)
    list += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return list;
}

Result<void> check_word(std::string_view option, std::string_view value, std::span<const std::string_view> words) {
  if (std::ranges::find(words, value) != words.end()) return {};
  return make_error("--{} `{}`: expected {}{}", option, printable(value), listed(words),
                    suggestion("", nearest_word(value, words)));
}

bool is_for(std::string_view commands, std::string_view command) {
  if (commands.empty()) return true;
  const auto words = split(commands, ' ');
  return std::ranges::find(words, command) != words.end();
}

std::string help_lines(std::string_view left, std::string_view text, std::size_t column) {
  std::string lines;
  std::string line(left);
  // A wide left part gets its own line, so that all texts start in the same column.
  if (!line.empty() && line.size() >= column) lines += std::exchange(line, {}) + '\n';
  bool begins = true;
  for (const std::string_view word : split(text, ' ')) {
    if (!begins && line.size() + 1 + word.size() > kHelpWidth) {
      lines += std::exchange(line, {}) + '\n';
      begins = true;
    }
    // resize() pads a short left part with blanks and never cuts a long one.
    if (begins) line.resize(std::max(line.size(), column), ' ');
    if (!std::exchange(begins, false)) line += ' ';
    line += word;
  }
  return lines + line + '\n';
}

std::string wrapped(std::string_view text) {
  return help_lines({}, text, 0);
}

}  // namespace base
