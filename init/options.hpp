// The command line, and the RDMA_INIT_* variables that set the same options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "init/decision.hpp"
#include "init/log.hpp"

namespace init {

enum class Command { kExec, kEnv, kDoctor, kTopo, kSnapshot, kHelp, kVersion };
enum class EnvFormat { kSh, kJson, kDotenv };

struct Options {
  Command command = Command::kExec;
  std::string_view topic;  // the subcommand; empty: there is none, as with `-- command`
  Policy policy;
  double wait_seconds = 10;
  bool reap = false;
  LogLevel log = LogLevel::kInfo;
  EnvFormat format = EnvFormat::kSh;
  bool json = false;                    // doctor --json, topo --json
  bool all = false;                     // doctor --all
  std::optional<std::string> snapshot;  // value of the option --snapshot FILE
  std::string env_file;                 // --env-file FILE; empty: /etc/rdma-init/env.d
  std::string root;                     // --root DIR, for file trees
  std::string rootfs;                   // --rootfs DIR, of a container that is being prepared on this machine
  std::string environ_file;             // value of the option --environ FILE
  Variables job;                        // with --environ: variables of the environment that FILE lacks (load_environ())
  bool lent = true;                     // false: the option --no-lent is set
  std::string note;                     // RDMA_INIT_NOTE, escaped and cut: why an annotation of the pod has no effect
  char** program = nullptr;             // argv of the trainer; kExec only
  std::vector<std::string> warnings;    // about RDMA_INIT_* variables that are unknown
  Variables narrowing;                  // options of the command line that narrow the choice, as RDMA_INIT_* variables

  // Returns true if the command needs every fact of the snapshot format.
  bool reads_all() const { return command != Command::kExec && command != Command::kEnv; }
  // Returns the prefix of all files that are read, except those of --environ and --snapshot.
  const std::string& tree() const { return rootfs.empty() ? root : rootfs; }
};

// Longest text of RDMA_INIT_NOTE that is shown, in bytes.
inline constexpr std::size_t kLongestNote = 200;

// The ends of the names of RDMA_INIT_* variables that are no options.
inline constexpr std::string_view kOtherVariables = "DEVICES EXPORTS SITE RAILS NOTE";

// Parses the environment, then the command line, which has precedence. Errors are for exit code 2 and name the argument
// or the variable.
base::Result<Options> parse_options(int argc, char** argv, const char* const* environment);

// Returns the text of --help. topic: the subcommand that it describes; empty: all.
std::string help_text(std::string_view topic);

}  // namespace init
