// The first argument that is neither an option nor an option's value is the command; after that, each command has its
// own options. A container or directory of the name "create" is never taken for the command.
#include "shim/runtime/invocation.hpp"

#include <optional>

#include "shim/runtime/options.hpp"

namespace shim {
namespace {

struct Match {
  const OptionSpec* spec = nullptr;
  bool ambiguous = false;  // an abbreviation of several: all of one kind as to values
};

Match find_long(std::span<const OptionSpec> options, std::string_view name, bool abbreviated) {
  Match match;
  for (const OptionSpec& option : options) {
    if (option.name.empty()) continue;
    if (option.name == name) return {&option, false};
    if (!abbreviated || name.empty() || !option.name.starts_with(name)) continue;
    match.ambiguous = match.spec != nullptr;
    if (!match.spec) match.spec = &option;
  }
  return match;
}

const OptionSpec* find_letter(std::span<const OptionSpec> options, char letter) {
  for (const OptionSpec& option : options) {
    if (option.letter == letter) return &option;
  }
  return nullptr;
}

class Reader {
 public:
  Reader(std::span<char* const> arguments, Dialect dialect, Invocation& result)
      : arguments_(arguments), dialect_(dialect), result_(result) {}

  // The first argument that is no option; nullopt: none.
  std::optional<std::string_view> command() {
    const auto found = next_operand(global_options(), true);
    return found ? found : swallowed_;
  }

  void read_start() {
    while (const auto operand = next_operand(start_options(), false)) {
      if (result_.id.empty()) result_.id = *operand;
    }
    take_swallowed_id();
  }

  // What follows the id is the container's own command line.
  void read_exec() {
    result_.id = next_operand(exec_options(), false).value_or("");
    take_swallowed_id();
  }

  bool wants_help() const { return help_; }
  bool wants_version() const { return version_; }

 private:
  // The id is last: an unknown option that has no value after all did not own it.
  void take_swallowed_id() {
    if (result_.id.empty() && swallowed_ && at_ == arguments_.size()) result_.id = *swallowed_;
  }

  std::optional<std::string_view> next_operand(std::span<const OptionSpec> options, bool is_global) {
    while (at_ < arguments_.size()) {
      const std::string_view argument = arguments_[at_++];
      if (only_operands_ || argument.size() < 2 || argument[0] != '-') return argument;
      if (argument == "--") {
        only_operands_ = !is_global;
        if (is_global)
          return at_ < arguments_.size() ? std::optional<std::string_view>(arguments_[at_++]) : std::nullopt;
        continue;
      }
      read_option(options, argument, is_global);
    }
    return std::nullopt;
  }

  void read_option(std::span<const OptionSpec> options, std::string_view argument, bool is_global) {
    const bool two_dashes = argument.starts_with("--");
    const std::string_view body = argument.substr(two_dashes ? 2 : 1);
    const std::size_t equals = body.find('=');
    const std::string_view name = body.substr(0, equals);
    const auto glued =
        equals == std::string_view::npos ? std::nullopt : std::optional<std::string_view>(body.substr(equals + 1));
    if (two_dashes || dialect_ == Dialect::kRunc) {
      // Go knows no abbreviations, but who is behind a wrapper behind us is not known; runc itself refuses them.
      Match match = find_long(options, name, two_dashes);
      if (!match.spec && name.size() == 1) match.spec = find_letter(options, name[0]);
      if (match.spec) return take(*match.spec, match.ambiguous, glued);
    }
    if (!two_dashes && find_letter(options, body[0])) return read_letters(options, body);
    if (!glued) skip_value_of_unknown(is_global);
  }

  // `-dp FILE`, `-bDIR`
  void read_letters(std::span<const OptionSpec> options, std::string_view letters) {
    while (!letters.empty()) {
      const OptionSpec* spec = find_letter(options, letters[0]);
      letters.remove_prefix(1);
      if (!spec) continue;
      if (spec->takes == Takes::kNothing) {
        take(*spec, false, std::nullopt);
      } else {
        return take(*spec, false, letters.empty() ? std::nullopt : std::optional<std::string_view>(letters));
      }
    }
  }

  void take(const OptionSpec& spec, bool ambiguous, std::optional<std::string_view> value) {
    if (spec.takes == Takes::kValue && !value && at_ < arguments_.size()) value = arguments_[at_++];
    if (!ambiguous) keep(spec.field, std::string(value.value_or("")));
  }

  void keep(Field field, std::string value) {
    switch (field) {
      case Field::kRoot:
        result_.root = std::move(value);
        break;
      case Field::kLog:
        result_.log = std::move(value);
        break;
      case Field::kLogFormat:
        result_.json_log = value == "json";
        break;
      case Field::kBundle:
        result_.bundle = std::move(value);
        break;
      case Field::kConfig:
        result_.config_file = std::move(value);
        break;
      case Field::kProcess:
        result_.process_file = std::move(value);
        break;
      case Field::kHelp:
        help_ = true;
        break;
      case Field::kVersion:
        version_ = true;
        break;
      case Field::kNone:
        break;
    }
  }

  void skip_value_of_unknown(bool is_global) {
    if (at_ >= arguments_.size()) return;
    const std::string_view next = arguments_[at_];
    if (next.starts_with("-") || (is_global && is_command(next))) return;
    swallowed_ = next;
    ++at_;
  }

  std::span<char* const> arguments_;
  Dialect dialect_;
  Invocation& result_;
  std::size_t at_ = 0;
  std::optional<std::string_view> swallowed_;
  bool only_operands_ = false;
  bool help_ = false;
  bool version_ = false;
};

}  // namespace

Dialect dialect_of(std::string_view runtime) {
  const std::string_view name = runtime.substr(runtime.rfind('/') + 1);
  return name == "crun" || name == "krun" || name.starts_with("crun-") ? Dialect::kCrun : Dialect::kRunc;
}

Invocation parse_invocation(std::span<char* const> arguments, Dialect dialect) {
  Invocation result;
  Reader reader(arguments, dialect, result);
  const std::string_view command = reader.command().value_or("");
  if (reader.wants_version() || reader.wants_help()) {
    result.action = reader.wants_version() ? Action::kVersion : Action::kHelp;
  } else if (command == "create" || command == "run") {
    reader.read_start();
    result.action = reader.wants_help() ? Action::kPass : Action::kStart;
  } else if (command == "exec") {
    reader.read_exec();
    result.action = reader.wants_help() ? Action::kPass : Action::kExec;
  }
  return result;
}

}  // namespace shim
