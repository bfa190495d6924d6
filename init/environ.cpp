#include "init/environ.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <variant>
#include <vector>

#include "base/rooted.hpp"
#include "base/text.hpp"
#include "fabric/library_variables.hpp"

namespace init {
namespace {

constexpr std::size_t kMostEnviron = 4 << 20;

// A job that begins in a container has the note of that container, which may be on another node. An empty value hides
// it.
constexpr std::string_view kNoteName = "RDMA_INIT_NOTE";

// The bytes of [[:space:]] without a line break.
constexpr std::string_view kBlanks = " \t\v\f\r";

bool is_variable_name(std::string_view name) {
  const auto is_part = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name, is_part);
}

// Removes one pair of quotes. enroot also pairs " with ', and ignores blanks after the second quote.
std::string_view without_quotes(std::string_view value) {
  constexpr std::string_view kQuotes = "\"'";
  const std::string_view trimmed = value.substr(0, value.find_last_not_of(kBlanks) + 1);
  if (trimmed.size() < 2 || kQuotes.find(trimmed.front()) == kQuotes.npos ||
      kQuotes.find(trimmed.back()) == kQuotes.npos)
    return value;
  return trimmed.substr(1, trimmed.size() - 2);
}

}  // namespace

std::map<std::string, std::string> parse_environ(std::string_view text) {
  std::map<std::string, std::string> variables;
  for (std::string_view line : base::split(text, '\n')) {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    const auto [name, value] = base::split_first(line, '=');
    if (name.size() == line.size() || line.find('\0') != line.npos) continue;
    if (!is_variable_name(name) || name.starts_with("ENROOT_")) continue;
    variables.insert_or_assign(std::string(name), without_quotes(value));
  }
  return variables;
}

base::Result<Variables> load_environ(const std::string& path) {
  const auto text = base::Rooted("").read(path, kMostEnviron);
  if (const auto* failed = std::get_if<base::Unreadable>(&text))
    return base::sys_error(failed->code, "read `{}`", base::printable(path));
  auto variables = parse_environ(std::get<std::string>(text));
  Variables job;
  for (char** at = environ; *at; ++at) {
    const std::string_view entry = *at;
    const auto [name, value] = base::split_first(entry, '=');
    if (name == kNoteName && !variables.contains(std::string(name))) {
      job.emplace_back(name, "");
      continue;
    }
    if (name.size() == entry.size() || !variables.try_emplace(std::string(name), value).second) continue;
    const bool is_read = fabric::is_policy_variable(name) || (name.starts_with("RDMA_INIT_") && is_variable_name(name));
    if (is_read && !value.empty() && value.find_first_of("'\r\n") == value.npos) job.emplace_back(name, value);
  }
  // Makes one new environment: setenv() passes through all variables each time, and an image may have half a million.
  static std::vector<std::string> entries;
  static std::vector<char*> pointers;
  entries.reserve(variables.size());
  pointers.reserve(variables.size() + 1);
  for (const auto& [name, value] : variables)
    pointers.push_back(entries.emplace_back(fmt::format("{}={}", name, value)).data());
  pointers.push_back(nullptr);
  environ = pointers.data();
  return job;
}

}  // namespace init
