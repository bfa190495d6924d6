#include "hook/program/options.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "hook/admin/install/distribution.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/node_options.hpp"

namespace hook {
namespace {

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

// HCAs cannot be granted at these stages: they run inside the container's namespaces or after its program has started
// (runtime-spec 1.3.0).
constexpr std::array<std::string_view, 3> kUselessStages = {"createContainer", "startContainer", "poststart"};

Error usage_error(std::string message) {
  return {std::move(message), EINVAL, "run `rdma-hook --help` for commands and options"};
}

Result<Command> parse_command(std::string_view text) {
  if (const auto command = from_word(kCommands, text)) return *command;
  if (std::ranges::find(kUselessStages, text) != kUselessStages.end())
    return Error{fmt::format("`{}` runs in the container or after its start: HCAs cannot be granted there", text),
                 ENOTSUP, "use createRuntime"};
  if (text == "uninstall") return usage_error("unknown command `uninstall` (did you mean `install --uninstall`?)");
  std::vector<std::string_view> words;
  for (const auto& command : kCommands)
    words.push_back(command.word);
  return usage_error(
      fmt::format("unknown command `{}`{}", printable(text), base::suggestion("", base::nearest_word(text, words))));
}

template <std::optional<std::string> Options::*member>
Result<void> set_text(Options& options, std::string_view value) {
  options.*member = std::string(value);
  return {};
}

template <bool Options::*member>
Result<void> set_flag(Options& options, std::string_view) {
  options.*member = true;
  return {};
}

template <bool InstallOptions::*member>
Result<void> set_install_flag(Options& options, std::string_view) {
  options.install.*member = true;
  return {};
}

std::vector<std::string_view> engine_words() {
  return base::words_of(kEngineWords);
}

// Leaves out runc and crun, which have no configuration that install could change.
std::vector<std::string_view> install_engine_words() {
  auto words = engine_words();
  std::erase(words, to_string(Engine::kRunc));
  for (const std::string_view name : distribution_names())
    words.push_back(name);
  words.emplace_back(kSlurm);
  return words;
}

Result<void> set_engine(Options& options, std::string_view value) {
  const bool installs = options.command == Command::kInstall;
  // A distribution is stored for each command, so that complete() can refuse it for other commands with the reason.
  if (is_distribution(value) || (installs && value == kSlurm)) {
    options.install.distribution = std::string(value);
    return {};
  }
  const auto engine = parse_engine(value);
  // A stage makes no list of words at each start of a container.
  if (installs || !engine)
    TRY_VOID(base::check_word("engine", value, installs ? install_engine_words() : engine_words()));
  options.node.engine = *engine;
  options.node.engine_is_named = true;
  return {};
}

Result<void> set_snapshot(Options& options, std::string_view value) {
  options.node.snapshot = std::string(value);
  options.snapshots.emplace_back(value);
  return {};
}

std::vector<std::string_view> starter_words() {
  return base::words_of(kStarters);
}

Result<void> set_starter(Options& options, std::string_view value) {
  TRY_VOID(base::check_word("for", value, starter_words()));
  options.generate.started_by = *from_word(kStarters, value);
  return {};
}

Result<void> set_rails(Options& options, std::string_view) {
  options.generate.rails = true;
  return {};
}

// If a key occurs twice, the last value counts, as with `podman run --annotation`.
Result<void> set_annotation(Options& options, std::string_view value) {
  const std::size_t equals = value.find('=');
  if (equals == 0 || equals == std::string_view::npos)
    return make_error("--annotation `{}`: expected KEY=VALUE", printable(value));
  options.annotations[std::string(value.substr(0, equals))] = value.substr(equals + 1);
  return {};
}

std::vector<std::string_view> way_words() {
  return base::words_of(kInstallWays);
}

Result<void> set_way(Options& options, std::string_view value) {
  TRY_VOID(base::check_word("way", value, way_words()));
  options.install.way = from_word(kInstallWays, value);
  return {};
}

Result<void> set_installed(Options& options, std::string_view) {
  options.node.is_installed = true;
  return {};
}

Result<void> set_help(Options& options, std::string_view) {
  options.command = Command::kHelp;
  return {};
}

Result<void> set_version(Options& options, std::string_view) {
  options.command = Command::kVersion;
  return {};
}

constexpr std::string_view kInstall = "install";

constexpr base::Option<Options> only_for(base::Option<Options> option, std::string_view commands) {
  option.commands = commands;
  return option;
}

constexpr base::Option<Options> with_text(base::Option<Options> option, std::string_view text) {
  option.help = text;
  return option;
}

constexpr base::Option<Options> kOptions[] = {
    {"engine", "NAME",
     "decides whether annotations may request HCAs. Default: by the bundle; otherwise runc for plan, and podman, where "
     "annotations only narrow, for createRuntime and verify",
     set_engine, "createRuntime prestart poststop verify plan cdi"},
    {"engine", "NAME", "what install configures, in place of the engine of this node", set_engine, kInstall},
    only_for(kConfigOption<Options>,
             "createRuntime prestart poststop verify plan devices recover check-config cdi doctor"),
    {"snapshot", "FILE", "use this output of `rdma-init snapshot` in place of the node", set_snapshot,
     "createRuntime prestart verify plan devices check-config cdi doctor"},
    {"snapshot", "FILE",
     "config generate: a node, in place of this one; can be repeated; a directory stands for its files NODE.json",
     set_snapshot, "config"},
    {"for", "NAME", "config generate: adds what this system needs", set_starter, "config"},
    {"rails", "",
     "config generate: adds a network with a child netdev for each rail; values that no node shows are marked FILL, "
     "and "
     "check-config refuses them",
     set_rails, "config"},
    with_text(kRootOption<Options>,
              "the node's files are below DIR: /sys, /dev and /proc; install: also the engine's files and programs, "
              "which it reads, changes and executes there (a mounted node, or an image)"),
    only_for(kLedgerOption<Options>,
             "createRuntime prestart poststop verify plan devices recover metrics doctor install"),
    {"bundle", "DIR", "the container's bundle", set_text<&Options::bundle>, "plan"},
    {"annotation", "KEY=VALUE", "plan: in place of a bundle, an empty container with this annotation; can be repeated",
     set_annotation, "plan"},
    {"namespace", "NS",
     "plan: the Kubernetes namespace of that container's pod; the engine is then containerd unless --engine names crio",
     set_text<&Options::pod_namespace>, "plan"},
    {"out", "FILE", "cdi: replace this file in place of printing", set_text<&Options::out>, "cdi"},
    {"kind", "KIND", "cdi: in place of rdma-init.io/hca", set_text<&Options::kind>, "cdi"},
    {"hook", "PATH", "cdi, base-spec: path of rdma-hook on the node, in place of this program's path",
     set_text<&Options::hook>, "cdi base-spec install"},
    {"nodes", "FILE",
     "check-config: names of nodes, one a line (and an index, if it is not by the name); checks that the nodes' slices "
     "of the subnets exist and do not "
     "overlap",
     set_text<&Options::nodes>, "check-config"},
    {"listen", "WHERE", "metrics: unix:PATH, unix: for /run/rdma-init/metrics.sock, 127.0.0.1:9100 or [::1]:9100",
     set_text<&Options::listen>, "metrics"},
    {"watch", "", "config apply: apply each change of DIR until SIGTERM", set_flag<&Options::watch>, "config"},
    {"probe", "", "config apply: print whether the node has the configuration of DIR, and why not; change nothing",
     set_flag<&Options::probe>, "config"},
    {"way", "NAME", "what install sets up, in place of the best way for the engine", set_way, kInstall},
    {"dry-run", "", "install: print a diff of each file that would change; change nothing",
     set_install_flag<&InstallOptions::dry_run>, kInstall},
    {"restart", "",
     "install: restart or reload the engine if it may not have read the installed files; below --root with the "
     "systemctl of that root",
     set_install_flag<&InstallOptions::restart>, kInstall},
    {"programs", "DIR",
     "install in an image: directory below --root for rdma-hook and rdma-runtime if no bin directory of its /usr has "
     "them (/opt/rdma-init/bin)",
     set_text<&Options::programs>, kInstall},
    {"uninstall", "", "install: restore the files that install wrote", set_flag<&Options::uninstall>, kInstall},
    {"force", "", "install --uninstall: drop and print later changes to the files that install wrote",
     set_install_flag<&InstallOptions::force>, kInstall},
    {"status", "", "install: print the files that install wrote", set_flag<&Options::status>, kInstall},
    {"json", "", "print JSON", set_flag<&Options::json>, "plan devices recover check-config config doctor install"},
    {"claim", "UID", "recover: end only this prepared claim, if rdma-dra is gone for ever and no container uses it",
     set_text<&Options::claim>, "recover"},
    {"refused", "", "devices: list the last containers that were refused, with reason and remedy",
     set_flag<&Options::refused>, "devices"},
    {"verify", "", "base-spec: add only `rdma-hook verify`, for use with rdma-nri", set_flag<&Options::verify>,
     "base-spec"},
    {"installed", "", "doctor: report as broken that rdma-init is not installed, in place of a note", set_installed,
     "doctor"},
    {"quiet", "", "doctor: print only warnings and errors", set_flag<&Options::quiet>, "doctor"},
    {"job", "",
     "doctor: print only a fault that certainly breaks a job with RDMA, in one line, and exit with 2 (for Slurm's "
     "Prolog)",
     set_flag<&Options::job>, "doctor"},
    {"grants", "", "metrics: add a series for each container and HCA", set_flag<&Options::grants>, "metrics"},
    {"help", "", "print this text; after a command: only its part", set_help},
    {"version", "", "print the version", set_version}};
constexpr std::span<const base::Option<Options>> kTable(kOptions);

// Returns the words that an option accepts, none for another kind of value.
std::vector<std::string_view> words_of(const base::Option<Options>& option) {
  if (option.apply == set_way) return way_words();
  if (option.apply == set_starter) return starter_words();
  if (option.apply != set_engine) return {};
  return option.commands == kInstall ? install_engine_words() : engine_words();
}

// Returns the help of the options; it lists the words of an option in front of its text.
std::string help_of_options(std::string_view topic) {
  std::vector<base::Option<Options>> rows(kTable.begin(), kTable.end());
  std::vector<std::string> texts(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto words = words_of(rows[i]);
    if (words.empty()) continue;
    texts[i] = fmt::format("{}: {}", base::listed(words), rows[i].help);
    rows[i].help = texts[i];
  }
  return base::option_help(std::span<const base::Option<Options>>(rows), topic);
}

struct Usage {
  std::string_view command;
  std::string_view arguments;
  std::string_view text;
};
constexpr Usage kStageUsages[] = {
    {"createRuntime", "--engine NAME", "nodes, device cgroup, memlock, sysfs view, rails (`prestart` is the same)"},
    {"poststop", "--engine NAME", "releases the container's HCAs; never fails"},
    {"verify", "--engine NAME", "with rdma-nri, at createRuntime: fails if a request was not granted"}};
constexpr Usage kUsages[] = {
    {"plan", "--bundle DIR [--json]", "prints the HCAs that a container of this bundle would get; books nothing"},
    {"plan", "--annotation KEY=VALUE", "prints the HCAs that an empty container with this annotation would get"},
    {"devices", "[--json]", "lists the node's HCAs and their owners"},
    {"devices", "--refused [--json]", "lists the last refused containers with reason and remedy"},
    {"recover", "[--claim UID] [--json]", "releases the HCAs of containers that have ended"},
    {"metrics", "[--grants]", "prints Prometheus text: owners, grants, failures, durations, port counters"},
    {"metrics", "--listen WHERE", "serves the text of `metrics --grants` over HTTP until SIGTERM"},
    {"check-config", "[--json]", "prints errors of the configuration with line and remedy"},
    {"config", "apply DIR [--watch|--probe]",
     "checks DIR/config.json of a mounted ConfigMap and makes it the cluster's file"},
    {"config", "generate [--snapshot FILE]...", "prints a complete configuration for this node or these nodes"},
    {"cdi", "generate [--out FILE]", "prints HCAs as CDI devices, `rdma-init.io/hca=mlx5_0`"},
    {"base-spec", "[--verify] < SPEC", "adds this hook and RLIMIT_MEMLOCK to the output of `ctr oci spec`"},
    {"doctor", "[--json|--quiet] [--installed]",
     "checks the node from kernel to engine; prints problems with remedies"},
    {"install", "[--way NAME]", "configures containerd, CRI-O, Docker, Podman or Slurm"},
    {"install", "--uninstall", "restores the engine's files"},
    {"install", "--status [--json]", "prints the installed files and their changes since"}};

std::string usage_lines(std::span<const Usage> usages, std::string_view topic) {
  constexpr std::size_t kText = 42;
  std::string lines;
  for (const Usage& usage : usages) {
    if (!topic.empty() && usage.command != topic) continue;
    lines += base::help_lines(fmt::format("  rdma-hook {} {}", usage.command, usage.arguments), usage.text, kText);
  }
  return lines;
}

Result<void> check_apply(Options& options) {
  if (!options.snapshots.empty() || options.generate.rails || options.generate.started_by != StartedBy::kAny)
    return usage_error("--snapshot, --for and --rails are only for config generate");
  if (options.source.empty()) return usage_error("config apply requires the directory of config.json");
  if (options.probe && (options.watch || options.json))
    return usage_error("--probe cannot be combined with --watch or --json");
  if (options.watch && options.json) return usage_error("--json cannot be combined with --watch");
  if (!options.node.root.empty() && !options.node.root.starts_with('/'))
    return usage_error("config apply requires an absolute path for --root");
  options.node.config = config_paths_below(options.node.root);
  return {};
}

Result<void> check_generate(const Options& options) {
  if (options.watch || options.probe || options.json)
    return usage_error("--watch, --probe and --json are only for config apply");
  if (!options.snapshots.empty() && !options.node.root.empty())
    return usage_error("--snapshot cannot be combined with --root");
  return {};
}

// An option with which a command uses only the options in `used`.
struct OptionMode {
  std::string_view command;
  std::string_view option;
  std::string_view used;
};
constexpr OptionMode kModes[] = {{"devices", "refused", "refused json ledger"},
                                 {"doctor", "job", "job config root ledger"},
                                 {"doctor", "json", "json config snapshot root ledger installed"},
                                 {kInstall, "status", "status json root"},
                                 {kInstall, "uninstall", "uninstall force dry-run restart root ledger"}};

// Refuses an option that has no effect with another one. passed: the names of the options.
Result<void> check_modes(std::string_view command, const std::vector<std::string_view>& passed) {
  const auto has = [&](std::string_view name) { return std::ranges::find(passed, name) != passed.end(); };
  for (const OptionMode& mode : kModes) {
    if (mode.command != command || !has(mode.option)) continue;
    for (const std::string_view name : passed)
      if (!base::is_for(mode.used, name)) return usage_error(fmt::format("--{} excludes --{}", mode.option, name));
  }
  if (command == kInstall && has("json") && !has("status")) return usage_error("install: --json requires --status");
  return {};
}

// Checks the second word of "cdi generate", "config apply" and "config generate". The word is required so that more
// subcommands can be added later.
Result<void> check_second_word(Command& command, std::span<char* const> arguments, std::size_t& first) {
  const char* second = command == Command::kCdiGenerate   ? "generate"
                       : command == Command::kConfigApply ? "apply"
                                                          : nullptr;
  if (!second) return {};
  const std::string_view word = arguments.size() > 1 ? arguments[1] : "";
  if (command == Command::kConfigApply && word == "generate") {
    command = Command::kConfigGenerate;
    second = "generate";
  }
  // `rdma-hook cdi --help` must work without the second word.
  if (word == "--help" || word == "-h") return {};
  if (word != second)
    return usage_error(fmt::format("`{0}` requires a second word: `{0} {1}`{2}", arguments.front(), second,
                                   command == Command::kConfigApply ? " or `config generate`" : ""));
  first = 2;
  return {};
}

// Without a bundle, the engine is runc, the default of `plan`, whose annotations are trusted. With --namespace the
// engine must be containerd or CRI-O, because only pods have a namespace. "annotations_may_request" decides which
// namespaces may request HCAs.
Result<void> check_plan(Options& options) {
  const bool has_annotations = !options.annotations.empty();
  if (!options.bundle && !has_annotations) return usage_error("plan requires --bundle DIR or --annotation KEY=VALUE");
  if (options.bundle && has_annotations) return usage_error("--annotation cannot be combined with --bundle");
  if (!options.pod_namespace) return {};
  if (!has_annotations) return usage_error("--namespace requires --annotation KEY=VALUE");
  Engine& engine = options.node.engine;
  if (!options.node.engine_is_named) engine = Engine::kContainerd;
  if (engine != Engine::kContainerd && engine != Engine::kCrio)
    return usage_error("--namespace requires --engine containerd or crio");
  return {};
}

// Completes options that depend on other options, and refuses combinations.
Result<void> complete(Options& options) {
  const bool allocates = options.command == Command::kCreateRuntime || options.command == Command::kVerify ||
                         options.command == Command::kCdiGenerate;
  if (options.node.engine_is_named) options.install.engine = options.node.engine;
  options.install.root = options.node.root;
  if (options.programs && (!options.programs->starts_with('/') || options.hook))
    return usage_error("--programs requires an absolute path on the node and excludes --hook");
  if (options.install.distribution && (options.command != Command::kInstall || options.install.way))
    return usage_error(fmt::format("--engine {} is only for install without --way", *options.install.distribution));
  if (options.install.force && !options.uninstall) return usage_error("--force requires --uninstall");
  // An unknown engine counts as Podman, whose annotations can come from the image and are therefore not trusted.
  if (allocates && !options.node.engine_is_named) options.node.engine = Engine::kPodman;
  if (options.command == Command::kConfigApply) TRY_VOID(check_apply(options));
  if (options.command == Command::kConfigGenerate) TRY_VOID(check_generate(options));
  // A relative path would be lost, because the server changes its working directory to /.
  const auto is_relative = [](const std::string& path) { return !path.empty() && !path.starts_with('/'); };
  if (options.listen && (is_relative(options.node.ledger) || is_relative(options.node.root)))
    return usage_error("--listen requires absolute paths for --ledger and --root");
  if (options.command == Command::kPlan) return check_plan(options);
  return {};
}

}  // namespace

bool is_stage(std::string_view command) {
  constexpr std::array kStages = {Command::kCreateRuntime, Command::kVerify, Command::kPoststop};
  const auto known = parse_command(command);
  return known ? std::ranges::find(kStages, *known) != kStages.end() : known.error().code == ENOTSUP;
}

std::string help_text(std::string_view topic) {
  const std::string options = "\nOptions:\n" + help_of_options(topic);
  const std::string exit_codes =
      "\n" + base::wrapped(
                 "Exit codes: 0 done, or nothing was requested; 1 refused or failed; 2 usage." +
                 std::string(topic.empty() || topic == "doctor" ? " doctor: 0 no problem, 1 warnings, 2 broken." : "") +
                 (topic.empty() || topic == "install" ? " install: 3 nothing can be set up on this node." : ""));
  const std::string stage = usage_lines(kStageUsages, topic == "prestart" ? "createRuntime" : topic);
  const std::string on_command_line = usage_lines(kUsages, topic);
  if (!topic.empty()) return stage + on_command_line + options + exit_codes;
  return "rdma-hook: grants RDMA devices to containers and releases them.\n\n"
         "As an OCI hook, with the state on stdin:\n" +
         stage + "\nOn the command line:\n" + on_command_line + options + exit_codes;
}

Result<Options> parse_options(std::span<char* const> arguments) {
  if (arguments.empty()) return usage_error("no command");
  Options options;
  const std::string_view word = arguments.front();
  options.command = TRY(parse_command(word));
  options.node.engine_is_named = false;
  std::size_t first = 1;
  TRY_VOID(check_second_word(options.command, arguments, first));
  const Command command = options.command;
  const bool has_modes = std::ranges::find(kModes, word, &OptionMode::command) != std::end(kModes);
  std::vector<std::string_view> passed;  // the names of the passed options, for commands with modes
  for (std::size_t i = first; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (command == Command::kConfigApply && options.source.empty() && !argument.starts_with('-')) {
      options.source = argument;
      continue;
    }
    const auto* const option = base::find_option(kTable, base::split_argument(argument).name, word);
    if (has_modes && option && base::is_option(argument)) passed.push_back(option->name);
    // A command would ignore an option of other commands, and the caller would think that it had an effect.
    auto done = option && !base::is_for(option->commands, word)
                    ? Result<void>(make_error("`{}` has no option `--{}`", word, option->name))
                    : base::apply_option(kTable, arguments, i, options);
    if (!done) return usage_error(std::move(done).error().message);
  }
  // `rdma-hook plan --help` describes only plan.
  if (options.command == Command::kHelp && command != Command::kHelp) options.topic = word;
  if (options.command == Command::kHelp || options.command == Command::kVersion) return options;
  if (has_modes) TRY_VOID(check_modes(word, passed));
  TRY_VOID(complete(options));
  return options;
}

}  // namespace hook
