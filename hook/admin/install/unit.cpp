#include "hook/admin/install/unit.hpp"

#include <unistd.h>

#include <algorithm>
#include <variant>

#include "base/file.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "hook/admin/install/node_files.hpp"

namespace hook {
namespace {

// Limit on reading. A unit or a file of variables is never larger.
constexpr std::size_t kLongestUnit = 1 << 20;

// Returns the text of a file: empty if it is there but cannot be read, as a masked unit below a root without /dev/null;
// nullopt if there is none. A link at the end of the path is followed below root, because an enabled unit can be a
// link.
std::optional<std::string> unit_text(const std::string& root, std::string path) {
  std::optional<std::string> found;
  for (int links = 0; links < 8; ++links) {
    const auto here = node_path(root, path);
    if (!here) return found;
    const auto target = base::read_link(AT_FDCWD, here->c_str());
    if (!target) {
      auto text = base::read_file(*here, kLongestUnit);
      auto* const read = std::get_if<std::string>(&text);
      if (read) return std::move(*read);
      return std::get<base::Unreadable>(text).code == ENOENT ? found : std::string();
    }
    found.emplace();
    path = target->starts_with('/') ? *target : path.substr(0, path.rfind('/') + 1) + *target;
  }
  return found;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

// Splits at blanks outside of quotes, and removes quotes and backslashes.
std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  char quote = '\0';
  bool in_word = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote == '\0' && is_blank(c)) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '\\' && at + 1 < text.size()) {
      words.back() += text[++at];
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::string value_of(const UnitVariables& variables, std::string_view name) {
  const auto found = variables.find(std::string(name));
  return found == variables.end() ? std::string() : found->second.value;
}

// Replaces each ${NAME} of a word.
std::string replace_variables(std::string_view word, const UnitVariables& variables) {
  std::string text;
  while (true) {
    const auto begin = word.find("${");
    const auto end = begin == std::string_view::npos ? begin : word.find('}', begin);
    if (end == std::string_view::npos) return text + std::string(word);
    text += word.substr(0, begin);
    text += value_of(variables, word.substr(begin + 2, end - begin - 2));
    word.remove_prefix(end + 1);
  }
}

void set_variable(std::string_view assignment, const FileSetting& setting, UnitVariables& variables) {
  const auto [name, value] = base::split_first(assignment, '=');
  if (name.empty() || name == assignment) return;
  variables[std::string(name)] = {setting.file, setting.line, std::string(name), std::string(value)};
}

}  // namespace

Unit parse_unit(std::string_view text, const std::string& file) {
  Unit unit;
  std::string joined;
  unsigned number = 0;
  unsigned first = 0;  // the line at which `joined` begins
  const auto add = [&] {
    const auto equals = joined.find('=');
    if (equals != std::string::npos && !joined.starts_with('['))
      unit.push_back({file, first, std::string(base::trim(std::string_view(joined).substr(0, equals))),
                      std::string(base::trim(std::string_view(joined).substr(equals + 1)))});
    joined.clear();
  };
  for (const std::string_view raw : base::split(text, '\n')) {
    ++number;
    std::string_view line = base::trim(raw);
    // A comment between two parts of a setting is ignored, too.
    if (line.starts_with('#') || line.starts_with(';')) continue;
    if (joined.empty()) first = number;
    if (line.ends_with('\\')) {
      line.remove_suffix(1);
      joined += std::string(line) + ' ';
      continue;
    }
    joined += line;
    add();
  }
  add();  // a backslash in the last line joins nothing
  return unit;
}

Unit read_unit(const std::string& root, const std::string& name) {
  constexpr const char* kDirectories[] = {"/etc/systemd/system/", "/run/systemd/system/",
                                          "/usr/local/lib/systemd/system/", "/usr/lib/systemd/system/",
                                          "/lib/systemd/system/"};
  Unit unit;
  for (const char* directory : kDirectories) {
    const std::string path = directory + name;
    const auto text = unit_text(root, path);
    if (!text) continue;
    unit = parse_unit(*text, path);
    break;
  }
  // Drop-ins by file name: an earlier directory's file hides later files of the same name. Drop-ins of all services
  // come last.
  std::map<std::string, std::string> drop_ins;
  for (const std::string& of : {name, std::string("service")}) {
    if (of == "service" && unit.empty()) continue;  // drop-ins of all services do not make a unit
    for (const char* directory : kDirectories) {
      const std::string drop_in_directory = fmt::format("{}{}.d", directory, of);
      for (const std::string& file : names_in(root, drop_in_directory))
        if (file.ends_with(".conf")) drop_ins.emplace(file, fmt::format("{}/{}", drop_in_directory, file));
    }
  }
  for (const auto& [file, path] : drop_ins)
    for (FileSetting& setting : parse_unit(unit_text(root, path).value_or(""), path))
      unit.push_back(std::move(setting));
  return unit;
}

UnitVariables read_unit_variables(const std::string& root, const Unit& unit) {
  UnitVariables variables;
  UnitVariables of_files;
  for (const FileSetting& setting : unit) {
    if (setting.key == "Environment") {
      if (setting.value.empty()) variables.clear();
      for (const std::string& word : split_words(setting.value))
        set_variable(word, setting, variables);
    } else if (setting.key == "EnvironmentFile") {
      if (setting.value.empty()) of_files.clear();
      for (const std::string& path :
           matching_files(root, setting.value.substr(setting.value.starts_with('-') ? 1 : 0))) {
        for (FileSetting& line : parse_unit(unit_text(root, path).value_or(""), path)) {
          // Each line is one assignment; quotes around parts of the value are removed.
          line.value = base::join(split_words(line.value), " ");
          of_files[line.key] = line;
        }
      }
    }
  }
  // A file wins over Environment= (systemd.exec(5)).
  for (auto& [name, variable] : of_files)
    variables[name] = std::move(variable);
  return variables;
}

std::optional<UnitCommand> exec_start(const Unit& unit, const UnitVariables& variables) {
  constexpr std::string_view kPrefixes = "-@:+!|";
  const FileSetting* last = nullptr;
  for (const FileSetting& setting : unit)
    if (setting.key == "ExecStart") last = &setting;
  if (!last || last->value.empty()) return std::nullopt;
  std::string_view value = last->value;
  const std::string_view prefixes = value.substr(0, std::min(value.size(), value.find_first_not_of(kPrefixes)));
  value.remove_prefix(prefixes.size());
  UnitCommand command{{}, last->file, last->line};
  for (const std::string& word : split_words(value)) {
    const bool is_variable = word.size() > 1 && word.starts_with('$') && word[1] != '{' && word[1] != '$';
    if (prefixes.find(':') != std::string_view::npos) {
      command.words.push_back(word);
    } else if (is_variable) {
      for (std::string& part : split_words(value_of(variables, std::string_view(word).substr(1))))
        command.words.push_back(std::move(part));
    } else {
      command.words.push_back(replace_variables(word, variables));
    }
  }
  // With the prefix `@`, the second word is the name that the process gets.
  if (prefixes.find('@') != std::string_view::npos && command.words.size() > 1)
    command.words.erase(command.words.begin() + 1);
  if (command.words.empty()) return std::nullopt;
  return command;
}

std::optional<std::uint64_t> unit_memlock(const Unit& unit) {
  constexpr std::string_view kUnits = "KMGT";
  std::optional<std::uint64_t> limit;
  for (const FileSetting& setting : unit) {
    if (setting.key != "LimitMEMLOCK") continue;
    std::string_view value = setting.value;
    value = value.substr(value.find(':') + 1);  // the hard limit, if there are two
    if (value == "infinity") {
      limit = UINT64_MAX;
      continue;
    }
    const std::size_t factor = value.empty() ? std::string_view::npos : kUnits.find(value.back());
    if (factor != std::string_view::npos) value.remove_suffix(1);
    limit = base::parse_number<std::uint64_t>(value);
    if (limit && factor != std::string_view::npos) *limit <<= 10 * (factor + 1);
  }
  return limit;
}

}  // namespace hook
