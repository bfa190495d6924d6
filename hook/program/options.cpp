#include "hook/program/options.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "fabric/text.hpp"
#include "hook/base/take_option.hpp"
#include "hook/config/read_config.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::printable;
using fabric::Result;

constexpr Word<Command> kCommands[] = {
    {"createRuntime", Command::kCreateRuntime},
    {"prestart", Command::kCreateRuntime},
    {"poststop", Command::kPoststop},
    {"verify", Command::kVerify},
    {"plan", Command::kPlan},
    {"devices", Command::kDevices},
    {"recover", Command::kRecover},
    {"metrics", Command::kMetrics},
    {"check-config", Command::kCheckConfig},
    {"config", Command::kConfigApply},
    {"cdi", Command::kCdiGenerate},
    {"base-spec", Command::kBaseSpec},
    {"doctor", Command::kDoctor},
    {"install", Command::kInstall},
    {"help", Command::kHelp},
    {"--help", Command::kHelp},
    {"-h", Command::kHelp},
    {"--version", Command::kVersion},
};

constexpr Word<std::optional<std::string> Options::*> kTexts[] = {
    {"--bundle", &Options::bundle}, {"--out", &Options::out},     {"--kind", &Options::kind},
    {"--hook", &Options::hook},     {"--nodes", &Options::nodes}, {"--programs", &Options::programs},
    {"--listen", &Options::listen}};

constexpr Word<bool Options::*> kFlags[] = {{"--json", &Options::json},
                                            {"--grants", &Options::grants},
                                            {"--quiet", &Options::quiet},
                                            {"--watch", &Options::watch},
                                            {"--verify", &Options::verify}};

// Of install alone.
constexpr Word<bool& (*)(Options&)> kInstallFlags[] = {
    {"--dry-run", [](Options& options) -> bool& { return options.install.dry_run; }},
    {"--restart", [](Options& options) -> bool& { return options.install.restart; }},
    {"--uninstall", [](Options& options) -> bool& { return options.uninstall; }},
    {"--status", [](Options& options) -> bool& { return options.status; }}};

// Stages that run inside the container's namespaces or when its program runs already (runtime-spec 1.3.0).
constexpr std::array<std::string_view, 3> kUselessStages = {"createContainer", "startContainer", "poststart"};

Error usage_error(std::string message) {
  return {std::move(message), EINVAL, "`rdma-hook --help` lists commands and options"};
}

Result<Command> parse_command(std::string_view text) {
  if (const auto command = from_word(kCommands, text)) return *command;
  if (std::find(kUselessStages.begin(), kUselessStages.end(), text) != kUselessStages.end()) {
    return Error{fmt::format("`{}` is too late, or inside the container: devices cannot be given there", text), ENOTSUP,
                 "use createRuntime"};
  }
  return usage_error(fmt::format("unknown command `{}`", printable(text)));
}

// An option with a value: where it goes.
Result<void> set_value(Options& options, std::string_view name, std::string value) {
  if (set_node_option(options.node, name, value)) return {};
  if (name == "--engine") {
    const auto engine = parse_engine(value);
    if (!engine) {
      return usage_error(
          fmt::format("--engine `{}`: expected runc, docker, podman, crio or containerd", printable(value)));
    }
    options.node.engine = *engine;
  } else if (name == "--snapshot") {
    options.node.snapshot = std::move(value);
  } else if (name == "--way") {
    options.install.way = from_word(kInstallWays, value);
    if (!options.install.way)
      return usage_error(fmt::format("--way `{}`: expected nri, runtime, hook or cdi", printable(value)));
  } else if (const auto text = from_word(kTexts, name)) {
    options.*(*text) = std::move(value);
  } else {
    return usage_error(fmt::format("unknown option `{}`", printable(name)));
  }
  return {};
}

Result<void> check_apply(Options& options) {
  if (options.source.empty()) return usage_error("config apply needs the directory that has config.json");
  if (options.watch && options.json) return usage_error("--json is for one application, not for --watch");
  if (options.node.config.file_must_exist)
    return usage_error(fmt::format("config apply writes `{}`: it takes --root, not --config", kClusterConfigPath));
  if (!options.node.root.empty() && !options.node.root.starts_with('/'))
    return usage_error("config apply needs an absolute path behind --root");
  options.node.config = config_paths_below(options.node.root);
  return {};
}

}  // namespace

bool is_stage(std::string_view command) {
  constexpr std::array kStages = {Command::kCreateRuntime, Command::kVerify, Command::kPoststop};
  const auto known = parse_command(command);
  return known ? std::find(kStages.begin(), kStages.end(), *known) != kStages.end() : known.error().code == ENOTSUP;
}

const char* const kHelp =
    R"(rdma-hook: gives containers their RDMA devices, and takes them back.

As an OCI hook, with the state on stdin:
  rdma-hook createRuntime --engine NAME   nodes, device cgroup, memlock, sysfs view, rails (`prestart` is the same)
  rdma-hook poststop --engine NAME        takes back; never fails
  rdma-hook verify --engine NAME          at createRuntime beside rdma-nri: fails when what was asked was not granted

On the command line:
  rdma-hook plan --bundle DIR [--json]    what the container of this bundle would get, changing nothing
  rdma-hook devices [--json]              the node's HCAs and who holds them
  rdma-hook recover [--json]              returns what containers left that are gone
  rdma-hook metrics [--grants]            Prometheus text: holders, grants, failures, durations, port counters
  rdma-hook metrics --listen WHERE        the same with --grants over HTTP, until SIGTERM: unix:PATH or ADDRESS:PORT
  rdma-hook check-config [--json]         what is wrong in the configuration, with line and remedy
  rdma-hook config apply DIR [--watch]    DIR/config.json of a mounted ConfigMap becomes the cluster's file, if good
  rdma-hook cdi generate [--out FILE]     the HCAs as CDI devices, `rdma-init.io/hca=mlx5_0`, for /etc/cdi
  rdma-hook base-spec [--verify] < SPEC   what `ctr oci spec` prints, with this hook and RLIMIT_MEMLOCK, for containerd
  rdma-hook doctor [--json|--quiet]       what works on this node from kernel to engine, what does not, and the remedy
  rdma-hook install [--way NAME]          sets containerd, CRI-O, Docker or Podman up
  rdma-hook install --uninstall           takes that back: the engine's files are as they were
  rdma-hook install --status [--json]     what it wrote, and whether somebody changed it since

Options:
  --engine NAME    runc, docker, podman, crio, containerd: whose annotations may ask (rdma-hook(8)). Default: told by
                   the bundle; where that tells nothing, runc for plan, and podman, whose annotations only narrow, for
                   createRuntime and verify
  --config FILE    in place of /etc/rdma-init: cluster/config.json, config.json and conf.d/*.json
  --snapshot FILE  the node, as `rdma-init snapshot` prints one
  --root DIR       the node's /sys, /dev and /proc are below DIR
  --ledger DIR     in place of /run/rdma-hook
  --bundle DIR     the container's bundle
  --out FILE       cdi: written there, whole or not at all, in place of standard output
  --kind KIND      cdi: in place of rdma-init.io/hca
  --hook PATH      cdi, base-spec: where rdma-hook is on the node, in place of this program's own path
  --nodes FILE     check-config: the nodes that have this configuration, a line each of name and index: are their
                   slices of its subnets there, and apart?
  --listen WHERE   metrics: unix:PATH, unix: for /run/rdma-init/metrics.sock, 127.0.0.1:9100 or [::1]:9100
  --watch          config apply: goes on, and applies what comes into DIR, until SIGTERM
  --way NAME       install: nri, runtime, hook or cdi, in place of the one that fits the engine best
  --dry-run        install: says what would be written, and changes nothing
  --restart        install: restarts the engine, or has it read its configuration again, if it may not have read what
                   is written now; below --root by the systemctl that is there
  --programs DIR   install, of an image: where rdma-hook and rdma-runtime are put on the node of --root, if they are
                   neither in its /usr/bin nor in its /usr/local/bin. Default: /opt/rdma-init/bin
  --json           for machines
  --verify         base-spec: `rdma-hook verify` alone, beside rdma-nri
  --quiet          doctor: only what is wrong
  --grants         metrics: one more series for each container and HCA
  --help, --version

Exit codes: 0 done, or nothing was asked; 1 refused or failed; 2 usage. doctor: 0 nothing is wrong, 1 warnings,
2 something is broken.
)";

Result<Options> parse_options(std::span<char* const> arguments) {
  if (arguments.empty()) return usage_error("no command");
  Options options;
  options.command = TRY(parse_command(arguments.front()));
  bool engine_given = false;
  std::size_t first = 1;
  // "cdi generate" and "config apply": the word is there for those that may follow.
  const char* const second = options.command == Command::kCdiGenerate   ? "generate"
                             : options.command == Command::kConfigApply ? "apply"
                                                                        : nullptr;
  if (second) {
    const std::string_view word = arguments.size() > 1 ? arguments[1] : "";
    const bool help = word == "--help" || word == "-h";
    if (!help && word != second)
      return usage_error(fmt::format("`{0}` needs what to do: `{0} {1}`", arguments.front(), second));
    if (!help) first = 2;
  }
  for (std::size_t i = first; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (const auto flag = from_word(kFlags, argument)) {
      options.*(*flag) = true;
      continue;
    }
    if (const auto flag = from_word(kInstallFlags, argument); flag && options.command == Command::kInstall) {
      (*flag)(options) = true;
      continue;
    }
    if (argument == "--help" || argument == "-h") {
      options.command = Command::kHelp;
      continue;
    }
    if (options.command == Command::kConfigApply && options.source.empty() && !argument.starts_with('-')) {
      options.source = argument;
      continue;
    }
    auto option = TRY(take_option(arguments, i, usage_error));
    engine_given = engine_given || option.name == "--engine";
    TRY_VOID(set_value(options, option.name, std::move(option.value)));
  }
  const bool gives = options.command == Command::kCreateRuntime || options.command == Command::kVerify ||
                     options.command == Command::kCdiGenerate;
  options.node.engine_is_named = engine_given;
  if (engine_given) options.install.engine = options.node.engine;
  options.install.root = options.node.root;
  if (options.programs && (!options.programs->starts_with('/') || options.hook))
    return usage_error("--programs takes an absolute path on the node, without --hook");
  if (gives && !engine_given) options.node.engine = Engine::kPodman;  // whose annotations are not the operator's
  if (options.command == Command::kConfigApply) TRY_VOID(check_apply(options));
  const auto is_relative = [](const std::string& path) { return !path.empty() && !path.starts_with('/'); };
  if (options.listen && (is_relative(options.node.ledger) || is_relative(options.node.root)))
    return usage_error("--listen needs absolute paths behind --ledger and --root");
  if (options.command == Command::kPlan && !options.bundle) return usage_error("plan needs --bundle DIR");
  return options;
}

}  // namespace hook
