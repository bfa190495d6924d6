// The command is the first argument that is neither an option nor an option's value. The options after it depend on the
// command. A container or directory named "create" is never mistaken for the command.
#include "shim/runtime/invocation.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.hpp"

namespace shim {
namespace {

enum class Takes {
  kNothing,
  kValue,     // `--x V` or `--x=V`
  kOptional,  // `--x`, `--x=V`, `-x` or `-xV`, but not `--x V`: crun's `--tty`
};

struct OptionSpec {
  std::string_view name;  // empty: the option has only a letter
  char letter = 0;        // 0: the option has no letter
  Takes takes = Takes::kNothing;
  std::string Invocation::*value = nullptr;
  bool Invocation::*flag = nullptr;  // set to true even if no command follows
};
using Options = std::span<const OptionSpec>;

// Returns true if Go's strconv.ParseBool takes the value for false, as in `--help=false`. crun accepts no value there
// and refuses the command.
bool is_false(std::string_view value) {
  constexpr std::array<std::string_view, 6> kWords = {"0", "f", "F", "false", "False", "FALSE"};
  return std::ranges::find(kWords, value) != kWords.end();
}

// Options of the runtimes that rdma-runtime can execute: runc 1.1 to 1.4 and its development branch (urfave/cli), crun
// 1.8 to 1.29 (argp). One table serves both, because options that runc and crun share have the same name and take the
// same kind of value.
constexpr Takes kValue = Takes::kValue;

// Options of every command, in addition to the options in the command's own table.
constexpr std::array kHelp = {
    OptionSpec{"help", 'h', Takes::kNothing, nullptr, &Invocation::help},
    OptionSpec{"usage", '?', Takes::kNothing, nullptr, &Invocation::help},
};

// Options before the command.
constexpr std::array kGlobal = {
    OptionSpec{"debug"},
    OptionSpec{"log", 0, kValue, &Invocation::log},
    OptionSpec{"log-format", 0, kValue, &Invocation::log_format},
    OptionSpec{"log-level", 0, kValue},  // crun has this option since 1.16
    OptionSpec{"root", 0, kValue, &Invocation::root},
    OptionSpec{"rootless", 0, kValue},
    OptionSpec{"criu", 0, kValue},  // runc up to 1.3
    OptionSpec{"systemd-cgroup"},
    OptionSpec{"cgroup-manager", 0, kValue},  // crun
    OptionSpec{"version", 'v', Takes::kNothing, nullptr, &Invocation::version},
    OptionSpec{"", 'V', Takes::kNothing, nullptr, &Invocation::version},
};

// Options of `create`, `run` and `restore`.
constexpr std::array kStart = {
    OptionSpec{"bundle", 'b', kValue, &Invocation::bundle},
    OptionSpec{"config", 'f', kValue, &Invocation::config_file},  // crun; runc after 1.4, without the letter
    OptionSpec{"console-socket", 0, kValue},
    OptionSpec{"pidfd-socket", 0, kValue},  // runc has this option since 1.2
    OptionSpec{"pid-file", 0, kValue},
    OptionSpec{"preserve-fds", 0, kValue},
    OptionSpec{"detach", 'd'},
    OptionSpec{"keep"},
    OptionSpec{"no-pivot"},
    OptionSpec{"no-new-keyring"},
    OptionSpec{"no-subreaper"},
};

// Options of `exec`.
constexpr std::array kExec = {
    OptionSpec{"process", 'p', kValue, &Invocation::process_file},
    OptionSpec{"console-socket", 0, kValue},
    OptionSpec{"pidfd-socket", 0, kValue},
    OptionSpec{"pid-file", 0, kValue},
    OptionSpec{"preserve-fds", 0, kValue},
    OptionSpec{"cwd", 0, kValue},
    OptionSpec{"env", 'e', kValue},
    OptionSpec{"user", 'u', kValue},
    OptionSpec{"additional-gids", 'g', kValue},
    OptionSpec{"cap", 'c', kValue},
    OptionSpec{"cgroup", 0, kValue},
    OptionSpec{"process-label", 0, kValue},
    OptionSpec{"apparmor", 0, kValue},
    OptionSpec{"tty", 't', Takes::kOptional},
    OptionSpec{"detach", 'd'},
    OptionSpec{"no-new-privs"},
    OptionSpec{"no-subreaper"},
    OptionSpec{"ignore-paused"},
};

// Options of all other commands that take a container's id. An option that is not in this table is assumed to have a
// value.
constexpr std::array kOther = {
    OptionSpec{"all", 'a'},      OptionSpec{"force", 'f'},
    OptionSpec{"stats"},         OptionSpec{"resources", 'r', kValue},
    OptionSpec{"leave-running"}, OptionSpec{"tcp-established"},
    OptionSpec{"ext-unix-sk"},   OptionSpec{"shell-job"},
    OptionSpec{"file-locks"},    OptionSpec{"lazy-pages"},
    OptionSpec{"pre-dump"},      OptionSpec{"auto-dedup"},
};

// Options of `ps`. Its -f means --format, while -f of other commands means --force.
constexpr std::array kPs = {
    OptionSpec{"format", 'f', kValue},
};

constexpr std::array<std::string_view, 10> kOfAContainer = {"checkpoint", "delete", "events", "kill",  "pause",
                                                            "ps",         "resume", "start",  "state", "update"};

constexpr std::array<std::string_view, 20> kCommands = {
    "checkpoint", "create", "delete",  "events", "exec", "features", "kill",  "list",   "mounts", "pause",
    "ps",         "resume", "restore", "run",    "spec", "start",    "state", "update", "help",   "init"};

bool is_command(std::string_view name) {
  return std::ranges::find(kCommands, name) != kCommands.end();
}

struct Match {
  const OptionSpec* spec = nullptr;
  bool ambiguous = false;  // the name abbreviates several options; all of them or none take a value
};

Match find_long(Options options, std::string_view name, bool abbreviated) {
  Match match;
  for (const Options table : {options, Options(kHelp)}) {
    for (const OptionSpec& option : table) {
      if (option.name.empty()) continue;
      if (option.name == name) return {&option, false};
      if (!abbreviated || name.empty() || !option.name.starts_with(name)) continue;
      match.ambiguous = match.spec != nullptr;
      if (!match.spec) match.spec = &option;
    }
  }
  return match;
}

const OptionSpec* find_letter(Options options, char letter) {
  for (const Options table : {options, Options(kHelp)}) {
    const auto found = std::ranges::find_if(table, [&](const auto& one) { return one.letter == letter; });
    if (found != table.end()) return &*found;
  }
  return nullptr;
}

class Reader {
 public:
  Reader(std::span<char* const> arguments, Invocation& result) : arguments_(arguments), result_(result) {}

  // Returns the first argument that is not an option. If there is none, returns the argument after an unknown option.
  std::optional<std::string_view> command() {
    const auto found = next_operand(kGlobal, true);
    return found ? found : swallowed_;
  }

  void read_start() {
    while (const auto operand = next_operand(kStart, false))
      if (result_.id.empty()) result_.id = *operand;
    take_swallowed_id();
  }

  // Reads the container's id. The arguments after it are the container's command line, or a signal.
  void read_id(Options options) {
    result_.id = next_operand(options, false).value_or("");
    take_swallowed_id();
  }

 private:
  // If no id was found, the last argument is the id. The parser may have skipped the id as the "value" of an unknown
  // option, which then has no value.
  void take_swallowed_id() {
    if (result_.id.empty() && swallowed_ && at_ == arguments_.size()) result_.id = *swallowed_;
  }

  std::optional<std::string_view> next_operand(Options options, bool is_global) {
    while (at_ < arguments_.size()) {
      const std::string_view argument = arguments_[at_++];
      if (only_operands_ || argument.size() < 2 || argument[0] != '-') return argument;
      if (argument == "--") {
        // Before the command, "--" ends only the global options: the next argument is the command, and its options
        // follow.
        only_operands_ = !is_global;
        if (is_global)
          return at_ < arguments_.size() ? std::optional<std::string_view>(arguments_[at_++]) : std::nullopt;
        continue;
      }
      read_option(options, argument, is_global);
    }
    return std::nullopt;
  }

  void read_option(Options options, std::string_view argument, bool is_global) {
    const bool two_dashes = argument.starts_with("--");
    const std::string_view body = argument.substr(two_dashes ? 2 : 1);
    const std::size_t equals = body.find('=');
    const std::string_view name = body.substr(0, equals);
    const auto glued =
        equals == std::string_view::npos ? std::nullopt : std::optional<std::string_view>(body.substr(equals + 1));
    if (two_dashes || result_.dialect == Dialect::kRunc) {
      // Go has no abbreviations, and runc refuses them. This parser accepts them, because a runtime with an unknown
      // name may be a wrapper that executes crun.
      Match match = find_long(options, name, two_dashes);
      if (!match.spec && name.size() == 1) match.spec = find_letter(options, name[0]);
      if (match.spec) return take(*match.spec, match.ambiguous, glued);
    }
    if (!two_dashes && find_letter(options, body[0])) return read_letters(options, body);
    if (!glued) skip_value_of_unknown(is_global);
  }

  // Reads combined letters: `-dp FILE`, `-bDIR`.
  void read_letters(Options options, std::string_view letters) {
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
    if (ambiguous) return;
    if (spec.value) result_.*spec.value = value.value_or("");
    if (spec.flag) result_.*spec.flag = !value || !is_false(*value);
  }

  void skip_value_of_unknown(bool is_global) {
    if (at_ >= arguments_.size()) return;
    const std::string_view next = arguments_[at_];
    // A command name after an unknown global option is the command and not the option's value, as in `--new-flag
    // create`.
    if (next.starts_with("-") || (is_global && is_command(next))) return;
    // take_swallowed_id() needs this argument: if no id follows, this argument is the id, and not the option's value.
    swallowed_ = next;
    ++at_;
  }

  std::span<char* const> arguments_;
  Invocation& result_;
  std::size_t at_ = 0;
  std::optional<std::string_view> swallowed_;
  bool only_operands_ = false;
};

}  // namespace

Dialect dialect_of(std::string_view runtime) {
  const std::string_view name = base::last_component(runtime);
  return name == "crun" || name == "krun" || name.starts_with("crun-") ? Dialect::kCrun : Dialect::kRunc;
}

Invocation parse_invocation(std::span<char* const> arguments, Dialect dialect) {
  Invocation result;
  result.dialect = dialect;
  Reader reader(arguments, result);
  const std::string_view command = reader.command().value_or("");
  if (result.version || result.help) {
    result.action = result.version ? Action::kVersion : Action::kHelp;
  } else if (command == "create" || command == "run") {
    reader.read_start();
    result.action = result.help ? Action::kPass : Action::kStart;
  } else if (command == "exec") {
    reader.read_id(kExec);
    result.action = result.help ? Action::kPass : Action::kExec;
  } else if (command == "restore") {
    reader.read_start();
    result.action = result.help ? Action::kPass : Action::kRestore;
  } else if (std::ranges::find(kOfAContainer, command) != kOfAContainer.end()) {
    reader.read_id(command == "ps" ? Options(kPs) : Options(kOther));
    result.action = result.help || command != "delete" ? Action::kPass : Action::kDelete;
  }
  result.is_create = result.action == Action::kStart && command == "create";
  result.json_log = result.log_format == "json";
  return result;
}

}  // namespace shim
