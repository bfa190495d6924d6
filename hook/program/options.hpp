// The command line of rdma-hook: one command and its options.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hook/base/result.hpp"
#include "hook/grant/node.hpp"
#include "hook/install/install.hpp"

namespace hook {

enum class Command {
  kCreateRuntime,  // and prestart, its older name
  kPoststop,
  kVerify,
  kPlan,
  kDevices,
  kRecover,
  kMetrics,
  kCheckConfig,
  kConfigApply,
  kCdiGenerate,
  kBaseSpec,
  kDoctor,
  kInstall,
  kHelp,
  kVersion,
};

struct Options {
  Command command = Command::kHelp;
  std::string topic;  // kHelp: the command that it is about; empty: all
  NodeSettings node;
  std::optional<std::string> bundle;
  // cdi generate, and base-spec the last; nullopt: standard output, the default kind, this program.
  std::optional<std::string> out;
  std::optional<std::string> kind;
  std::optional<std::string> hook;
  std::optional<std::string> nodes;     // check-config: the file that lists them
  std::optional<std::string> listen;    // metrics: served there
  std::string source;                   // config apply: the directory that has config.json
  InstallOptions install;               // install; its engine and root are made of those above
  std::optional<std::string> programs;  // install: where an image's programs are put
  bool uninstall = false;
  bool status = false;
  bool json = false;
  bool grants = false;  // metrics: each grant, too
  bool quiet = false;   // doctor: what is wrong alone
  bool watch = false;   // config apply: whenever the directory changes
  bool verify = false;  // base-spec: rdma-hook verify in place of the hooks that give
};

// Errors: an unknown command or option (code EINVAL), and for a stage of the runtime specification at which nothing can
// be given, that createRuntime is the one (code ENOTSUP).
Result<Options> parse_options(std::span<char* const> arguments);

// The command is a stage of the runtime specification, whether something can be given there or not.
bool is_stage(std::string_view command);

// What --help prints. topic: as in Options.
std::string help_text(std::string_view topic);

}  // namespace hook
