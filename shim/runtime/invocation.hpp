// Parses the command line that an engine passes to its runtime. The command line itself stays unchanged.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace shim {

// The option syntax of the real runtime. runc and crun interpret `-b=X` and `-bundle` differently.
enum class Dialect {
  kRunc,  // Go: `-name` is `--name`, `-b=X` has the value X; create and run accept options after the id
  kCrun,  // argp: long options may be abbreviated, letters combined; `-b=X` has the value "=X"
};
// Returns the syntax of a program by its name: kCrun for crun, krun and crun-*, else kRunc.
Dialect dialect_of(std::string_view runtime);

enum class Action {
  kPass,     // rdma-runtime only executes the runtime
  kStart,    // create and run
  kRestore,  // restore, which also creates a container
  kExec,     // exec
  kDelete,   // delete
  kVersion,  // --version before a command
  kHelp,     // --help before a command
};

struct Invocation {
  std::string runtime;  // absolute path of the real runtime; parse_invocation() leaves it empty
  Dialect dialect = Dialect::kRunc;
  Action action = Action::kPass;
  std::string root;          // value of --root; empty: the runtime's default
  std::string log;           // value of --log, unchanged
  std::string log_format;    // value of --log-format
  bool json_log = false;     // log_format is "json"
  std::string bundle;        // kStart, kRestore: value of --bundle; empty: the current directory
  std::string config_file;   // kStart: value of --config; empty: config.json of the bundle
  std::string process_file;  // kExec: value of --process; empty: none
  std::string id;            // the container's id; empty: missing, or the command takes none
  bool is_create = false;    // kStart by `create`, whose container exists until `delete`
  bool help = false;         // --help
  bool version = false;      // --version before a command
};

// Parses arguments, which exclude the program's name. The last occurrence of an option counts. Accepts all arguments:
// the runtime itself reports invalid ones. An unknown option is assumed to have a value if the next argument is not an
// option and, before the command, not a command.
Invocation parse_invocation(std::span<char* const> arguments, Dialect dialect);

}  // namespace shim
