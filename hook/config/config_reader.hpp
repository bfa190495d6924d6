// Walks one text of the configuration: every value knows its place, and what is wrong is noted and read over, so that
// one run shows everything. Internal to hook/config*.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/json/json.hpp"
#include "hook/config/config.hpp"

namespace hook {

// What a message quotes of a value.
inline std::string shown(std::string_view text) {
  return shown(text, 64);
}

class ConfigValue {
 public:
  ConfigValue(const Json* json, std::string pointer) : json_(json), pointer_(std::move(pointer)) {}
  const Json& json() const { return *json_; }
  const std::string& pointer() const { return pointer_; }  // "/pools/0/modes"

 private:
  const Json* json_;
  std::string pointer_;
};

class ConfigReader {
 public:
  struct Member {
    std::string_view name;
    std::function<void(const ConfigValue&)> read;
    bool known = true;  // false: only read to say what is wrong with it
  };
  using Readers = std::vector<Member>;

  // Both have to outlive it.
  ConfigReader(const ConfigText& text, std::vector<ConfigProblem>& problems) : text_(&text), problems_(&problems) {}

  // False, with a problem noted, when the text is no JSON object.
  bool parse();
  ConfigValue root() const { return {&json_, ""}; }

  // Calls the reader of each member that is there. Unknown members are errors that name the nearest known one;
  // "$schema" and "$comment" are nobody's.
  void members(const ConfigValue& object, const Readers& known);
  std::vector<ConfigValue> elements(const ConfigValue& list);
  // Of an object whose names are free: name and value.
  std::vector<std::pair<std::string, ConfigValue>> entries(const ConfigValue& object);

  // nullopt, or nothing changed, with a problem noted, for a value of another type or an empty text.
  std::optional<std::string> text(const ConfigValue& value);
  std::optional<std::uint64_t> number(const ConfigValue& value, std::uint64_t lowest, std::uint64_t highest);
  void boolean(const ConfigValue& value, bool& target);
  // One of these words; a problem names the nearest.
  std::optional<std::string> word(const ConfigValue& value, const std::vector<std::string>& words);
  // A list of texts without repetition. accept may note a problem, and normalise.
  using Accept = std::function<bool(const ConfigValue&, std::string&)>;
  void texts(const ConfigValue& list, std::vector<std::string>& target, const Accept& accept);

  void error(const ConfigValue& value, const std::string& message, std::string remedy);
  void warning(const ConfigValue& value, const std::string& message, std::string remedy);
  // The line of a value that may be there in this text, by its pointer.
  std::optional<unsigned> line_of(const std::string& pointer) const;
  const std::string& file() const { return text_->file; }

 private:
  void note(const ConfigValue& value, const std::string& message, std::string remedy, bool is_error);

  const ConfigText* text_;
  std::vector<ConfigProblem>* problems_;
  Json json_;
  // Read when something is to be said: a configuration without problems needs no second pass.
  mutable std::optional<JsonLines> lines_;
};

}  // namespace hook
