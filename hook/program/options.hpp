// The command line of rdma-hook: one command and its options.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/admin/cluster/generate_config.hpp"
#include "hook/admin/install/install.hpp"
#include "hook/grant/node.hpp"

namespace hook {

enum class Command {
  kCreateRuntime,  // createRuntime, and prestart, its older name
  kPoststop,
  kVerify,
  kPlan,
  kDevices,
  kRecover,
  kMetrics,
  kCheckConfig,
  kConfigApply,
  kConfigGenerate,
  kCdiGenerate,
  kBaseSpec,
  kDoctor,
  kInstall,
  kHelp,
  kVersion,
};

struct Options {
  Command command = Command::kHelp;
  std::string topic;  // kHelp: the command to describe; empty: all
  NodeSettings node;
  std::optional<std::string> bundle;
  // plan without a bundle: the annotations of an empty container, and the namespace of the container's pod.
  std::map<std::string, std::string> annotations;
  std::optional<std::string> pod_namespace;
  // cdi generate: the file, kind and hook path; base-spec uses `hook` too. Defaults, in this order: standard output,
  // the default kind, this program.
  std::optional<std::string> out;
  std::optional<std::string> kind;
  std::optional<std::string> hook;
  std::optional<std::string> nodes;     // check-config: the file that lists the nodes
  std::optional<std::string> listen;    // metrics: the address to serve
  std::string source;                   // config apply: the directory of the cluster's config.json
  std::vector<std::string> snapshots;   // config generate: files, or directories of files
  GenerateWishes generate;              // config generate
  InstallOptions install;               // options of install; engine and root are copied from `node`
  std::optional<std::string> programs;  // install: directory of the copied programs
  std::optional<std::string> claim;     // recover: the UID of a claim to end
  bool uninstall = false;
  bool status = false;
  bool json = false;
  bool refused = false;  // devices: the last refusals in place of the HCAs
  bool grants = false;   // metrics: a series for each grant
  bool quiet = false;    // doctor: only warnings and errors
  bool job = false;      // doctor: only a fault that breaks every job with RDMA, in one line
  bool watch = false;    // config apply: applies again at each change of the directory
  bool probe = false;    // config apply: only reports whether the node has the configuration of the directory
  bool verify = false;   // base-spec: adds rdma-hook verify instead of the hooks that grant HCAs
};

// Parses the command line. Errors: EINVAL, unknown command or option, or a wrong combination; ENOTSUP, a stage of the
// runtime specification at which HCAs cannot be granted.
Result<Options> parse_options(std::span<char* const> arguments);

// Returns whether the command is a stage of the runtime specification, supported or not.
bool is_stage(std::string_view command);

// Returns the text of --help. topic: as in Options.
std::string help_text(std::string_view topic);

}  // namespace hook
