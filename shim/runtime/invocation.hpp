// What an engine wants of the runtime: its command line, read and not changed.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace shim {

// How the runtime behind reads its options, where the two ways differ: `-b=X` and `-bundle`.
enum class Dialect {
  kRunc,  // Go: `-name` is `--name`, `-b=X` is X; options of create and run also after the container's id
  kCrun,  // argp: long options may be abbreviated, letters glued together, `-b=X` is "=X"
};
// By the name of the program: crun, krun and crun-* are crun, everything else is taken for a Go program.
Dialect dialect_of(std::string_view runtime);

enum class Action {
  kPass,     // nothing of ours
  kStart,    // create and run
  kRestore,  // restore, which makes a container too
  kExec,     // exec
  kDelete,   // delete
  kVersion,  // --version in front of a command
  kHelp,     // --help in front of a command
};

struct Invocation {
  Action action = Action::kPass;
  std::string root;          // empty: the runtime's own
  std::string log;           // of --log, as written
  std::string log_format;    // of --log-format
  bool json_log = false;     // it is "json"
  std::string bundle;        // kStart, kRestore; empty: the current directory
  std::string config_file;   // kStart: --config; empty: config.json of the bundle
  std::string process_file;  // kExec: --process; empty: none
  std::string id;            // of the container; empty: missing, or the command has none
  bool is_create = false;    // kStart: `create`, whose container stays until `delete`
};

// arguments: without the program's name. Of an option that is there twice the last one counts. Never fails: what a
// runtime would refuse, it shall refuse itself. An unknown option is taken to have a value when what follows is no
// option and, in front of the command, no command.
Invocation parse_invocation(std::span<char* const> arguments, Dialect dialect);

}  // namespace shim
