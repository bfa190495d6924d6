#include "hook/config/reader.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.hpp"

namespace hook {
namespace {

// A longer or deeper text is not a configuration but a wrong file.
constexpr JsonLimits kLimits = {.bytes = std::size_t{1} << 20, .depth = 16};

// Returns a remedy with the word that the user probably meant; otherwise one with all words.
std::string remedy_for(std::string_view text, const std::vector<std::string>& words) {
  const std::string_view nearest = base::nearest_word(text, std::vector<std::string_view>(words.begin(), words.end()));
  return nearest.empty() ? "write one of: " + base::join(words, ", ") : fmt::format("did you mean `{}`?", nearest);
}

constexpr Word<Json::value_t> kKinds[] = {
    {"an object", Json::value_t::object},        {"a list", Json::value_t::array},
    {"a text", Json::value_t::string},           {"true or false", Json::value_t::boolean},
    {"a number", Json::value_t::number_integer}, {"a number", Json::value_t::number_unsigned},
    {"a number", Json::value_t::number_float},   {"null", Json::value_t::null}};

std::string_view kind_of(const Json& json) {
  const auto* const text = json.get_ptr<const std::string*>();
  return text && text->empty() ? "an empty text" : to_word(kKinds, json.type());
}

std::string not_a(std::string_view wanted, const Json& json) {
  return fmt::format("expected {}, found {}", wanted, kind_of(json));
}

// Decodes a part of a JSON pointer (RFC 6901): "~1" is "/", "~0" is "~".
std::string unescape_pointer(std::string_view part) {
  std::string name;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const bool escaped = part[i] == '~' && i + 1 < part.size();
    name += escaped ? (part[++i] == '1' ? '/' : '~') : part[i];
  }
  return name;
}

// Returns "pools[0].modes" for "/pools/0/modes". "0" is an index if "/pools" is an array in `root`, and otherwise the
// name of a member.
std::string place_of(const Json& root, std::string_view pointer) {
  std::string place;
  const Json* at = &root;
  for (const std::string_view part : base::split(pointer.substr(1), '/')) {
    if (at && at->is_array()) {
      const auto index = base::parse_number<std::size_t>(part);
      at = index && *index < at->size() ? &(*at)[*index] : nullptr;
      place += fmt::format("[{}]", part);
      continue;
    }
    const std::string name = unescape_pointer(part);
    const auto member = at ? at->find(name) : root.end();
    at = at && member != at->end() ? &*member : nullptr;
    place += (place.empty() ? "" : ".") + (name.empty() ? "\"\"" : shown(name));
  }
  return place;
}

}  // namespace

bool ConfigReader::parse_document() {
  JsonFault fault;
  auto json = try_parse_json(text_->text, kLimits, fault);
  if (!json) {
    const std::string column = fault.column == 0 ? "" : fmt::format(" in column {}", fault.column);
    problems_->push_back({text_->file, fault.line, fmt::format("invalid JSON{}: {}", column, fault.message),
                          "remove comments, trailing commas and duplicate keys; an empty configuration is {}", true});
    return false;
  }
  json_ = *std::move(json);
  if (json_.is_object()) return true;
  error(root(), not_a("an object", json_), "begin with { and end with }");
  return false;
}

void ConfigReader::members(const ConfigValue& object, const Readers& known) {
  for (const auto& [name, value] : entries(object)) {
    // Editors use $schema; JSON has no comments.
    if (name == "$schema" || name == "$comment") continue;
    const auto found =
        std::ranges::find_if(known, [&, &key = name](const Member& member) { return member.name == key; });
    if (found != known.end()) {
      found->read(value);
      continue;
    }
    std::vector<std::string> names;
    for (const Member& member : known)
      if (member.known) names.emplace_back(member.name);
    error(value, "unknown key", remedy_for(name, names));
  }
}

std::vector<ConfigValue> ConfigReader::elements(const ConfigValue& list) {
  std::vector<ConfigValue> values;
  if (!list.json().is_array()) {
    error(list, not_a("a list", list.json()), "write it in brackets: [ ... ]");
    return values;
  }
  values.reserve(list.json().size());
  for (std::size_t i = 0; i < list.json().size(); ++i)
    values.emplace_back(&list.json()[i], fmt::format("{}/{}", list.pointer(), i));
  return values;
}

std::vector<std::pair<std::string, ConfigValue>> ConfigReader::entries(const ConfigValue& object) {
  std::vector<std::pair<std::string, ConfigValue>> values;
  if (!object.json().is_object()) {
    error(object, not_a("an object", object.json()), "write it in braces: { ... }");
    return values;
  }
  values.reserve(object.json().size());
  for (const auto& [name, value] : object.json().items())
    values.emplace_back(name, ConfigValue(&value, fmt::format("{}/{}", object.pointer(), escape_pointer(name))));
  return values;
}

std::optional<ConfigValue> ConfigReader::find(const ConfigValue& object, const char* name) {
  if (!object.json().is_object() || !object.json().contains(name)) return std::nullopt;
  return ConfigValue(&object.json()[name], fmt::format("{}/{}", object.pointer(), name));
}

std::optional<std::string> ConfigReader::text(const ConfigValue& value) {
  const auto* text = value.json().get_ptr<const std::string*>();
  if (text && !text->empty()) return *text;
  error(value, not_a("a text", value.json()), text ? "write a value or remove the key" : "write it in quotes");
  return std::nullopt;
}

std::optional<std::uint64_t> ConfigReader::number(const ConfigValue& value, std::uint64_t lowest,
                                                  std::uint64_t highest) {
  const std::string remedy = fmt::format("write a whole number from {} to {}, without quotes", lowest, highest);
  if (!value.json().is_number()) {
    error(value, not_a("a number", value.json()), remedy);
    return std::nullopt;
  }
  // The parser stores negative and fractional numbers as other types.
  if (value.json().is_number_unsigned()) {
    const auto number = value.json().get<std::uint64_t>();
    if (number >= lowest && number <= highest) return number;
  }
  error(value, fmt::format("{} is not a valid number here", value.json().dump()), remedy);
  return std::nullopt;
}

std::optional<bool> ConfigReader::boolean(const ConfigValue& value) {
  if (const auto* flag = value.json().get_ptr<const bool*>()) return *flag;
  error(value, not_a("true or false", value.json()), "write true or false, without quotes");
  return std::nullopt;
}

std::optional<std::string> ConfigReader::word(const ConfigValue& value, const std::vector<std::string>& words) {
  auto chosen = text(value);
  if (!chosen || std::ranges::find(words, *chosen) != words.end()) return chosen;
  error(value, fmt::format("`{}` is unknown", shown(*chosen)), remedy_for(*chosen, words));
  return std::nullopt;
}

void ConfigReader::texts(const ConfigValue& list, std::vector<std::string>& target,
                         const std::function<std::optional<std::string>(const ConfigValue&)>& read) {
  target.clear();
  std::set<std::string> known;
  for (const ConfigValue& element : elements(list)) {
    auto one = read(element);
    if (!one) continue;
    if (!known.insert(*one).second) {
      error(element, fmt::format("duplicate entry `{}`", shown(*one)), "remove one of them");
      continue;
    }
    target.push_back(*std::move(one));
  }
}

ConfigReader::Read ConfigReader::words_into(std::vector<std::string>& target, std::vector<std::string> words) {
  return [this, &target, words = std::move(words)](const ConfigValue& list) {
    target.clear();
    for (const ConfigValue& element : elements(list))
      if (auto one = word(element, words)) target.push_back(*std::move(one));
  };
}

void ConfigReader::error(const ConfigValue& value, const std::string& message, std::string remedy) {
  note(value, message, std::move(remedy), true);
}

void ConfigReader::warning(const ConfigValue& value, const std::string& message, std::string remedy) {
  note(value, message, std::move(remedy), false);
}

std::optional<unsigned> ConfigReader::line_of(const std::string& pointer) const {
  // json_lines() reads the text a second time to count lines, because the JSON parser does not keep line numbers.
  if (!lines_) lines_ = json_lines(text_->text);
  const auto line = lines_->find(pointer);
  return line == lines_->end() ? std::nullopt : std::optional(line->second);
}

void ConfigReader::note(const ConfigValue& value, const std::string& message, std::string remedy, bool is_error) {
  const std::string place = value.pointer().empty() ? "" : fmt::format("`{}`: ", place_of(json_, value.pointer()));
  problems_->push_back(
      {text_->file, line_of(value.pointer()).value_or(0), place + message, std::move(remedy), is_error});
}

}  // namespace hook
