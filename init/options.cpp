#include "init/options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>
#include <vector>

#include "base/options.hpp"
#include "base/text.hpp"

namespace init {
namespace {

// Stores the path of a file or directory that must be named: a shell makes an empty one of a variable that is unset.
Result<void> store_path(std::string& target, std::string_view path) {
  if (path.empty()) return make_error("the path is empty");
  return store(target, path);
}

// Stores the value of a Result, or returns its error.
Result<void> take(auto& target, auto parsed) {
  return store(target, TRY(std::move(parsed)));
}

template <typename T>
using Named = std::pair<std::string_view, T>;

template <typename T>
Result<void> choose(auto& target, std::initializer_list<Named<T>> words, std::string_view expected,
                    std::string_view text) {
  const auto* const word = std::ranges::find(words, text, &Named<T>::first);
  return expect(target, word == words.end() ? nullptr : &word->second, expected, text);
}

Result<void> apply_wait(Options& options, std::string_view text) {
  const auto seconds = base::parse_decimal(text);
  return expect(options.wait_seconds, seconds && *seconds <= 86400 ? seconds : std::nullopt, "seconds from 0 to 86400",
                text);
}

Result<void> apply_cidr(Options& options, std::string_view text) {
  // A repeated option replaces the list and does not extend it.
  options.policy.gids.cidrs.clear();
  for (const std::string_view part : base::split(text, ',')) {
    TRY_VOID(
        expect(options.policy.gids.cidrs.emplace_back(), fabric::parse_cidr(base::trim(part)), "ADDRESS/PREFIX", part));
  }
  return {};
}

Result<void> apply_family(Options& options, std::string_view text) {
  return choose<fabric::Family>(options.policy.gids.family,
                                {{"4", fabric::Family::kIpv4}, {"6", fabric::Family::kIpv6}}, "4 or 6", text);
}

Result<void> apply_log(Options& options, std::string_view text) {
  return choose<LogLevel>(
      options.log,
      {{"quiet", LogLevel::kQuiet}, {"info", LogLevel::kInfo}, {"debug", LogLevel::kDebug}, {"json", LogLevel::kJson}},
      "quiet, info, debug or json", text);
}

Result<void> apply_format(Options& options, std::string_view text) {
  return choose<EnvFormat>(options.format,
                           {{"sh", EnvFormat::kSh}, {"json", EnvFormat::kJson}, {"dotenv", EnvFormat::kDotenv}},
                           "sh, json or dotenv", text);
}

// Commands of options. "--" executes a program.
constexpr std::string_view kDeciding = "-- env doctor topo";
constexpr std::string_view kOfOtherMachine = "env doctor topo snapshot";

constexpr base::Option<Options> kOptions[] = {
    {"wait", "SECONDS", "wait at most this long for GIDs, device nodes and carrier (10)", apply_wait},
    {"require", "N", "exit with 78 unless N HCAs have a usable port",
     [](Options& o, std::string_view t) {
       return expect(o.policy.require, base::parse_number<unsigned>(t), "a number of HCAs", t);
     }},
    {"require-used", "N", "exit with 78 unless N HCAs are chosen",
     [](Options& o, std::string_view t) {
       return expect(o.policy.require_used, base::parse_number<unsigned>(t), "a number of HCAs", t);
     }},
    {"strict", "", "exit with 78 instead of dropping a port without a right GID or keeping a wrong value",
     [](Options& o, std::string_view t) { return base::set_switch(o.policy.strict, t); }, "-- env doctor"},
    {"override", "", "replace wrong values that are already set",
     [](Options& o, std::string_view t) { return base::set_switch(o.policy.override_wrong, t); }, kDeciding},
    {"hca", "LIST",
     "use these HCAs, or with ^ all except these: NAME[:PORT], netdev:NAME, pci:ADDRESS, guid:GUID; * is a glob",
     [](Options& o, std::string_view t) { return take(o.policy.hcas, fabric::parse_selectors(t)); }},
    {"cidr", "LIST", "use only GIDs in one of these networks", apply_cidr},
    {"family", "4|6", "use only GIDs of this address family", apply_family},
    {"export", "LIST",
     "export for these libraries: nccl, ucx, nvshmem, mscclpp, gloo, uccl, mooncake, openmpi, libfabric, bootstrap or "
     "none (nccl,ucx,nvshmem)",
     [](Options& o, std::string_view t) { return take(o.policy.exports, parse_exports(t)); }, kDeciding},
    {"nccl-version", "X.Y.Z", "decide for this version of NCCL (the newest, and $NCCL_VERSION)",
     [](Options& o, std::string_view t) { return expect(o.policy.nccl_version, nccl::parse_version(t), "X.Y.Z", t); }},
    {"no-link-local", "", "never use a link-local GID",
     [](Options& o, std::string_view t) { return base::set_switch(o.policy.gids.link_local, t, false); }},
    {"no-node-gids", "", "never use a GID of the node's addresses if the container has no netdev of an HCA",
     [](Options& o, std::string_view t) { return base::set_switch(o.policy.gids.node_gids, t, false); }, kDeciding},
    {"node-addresses", "LIST", "the node's addresses as HCA:PORT=ADDRESS; rdma-runtime and rdma-nri set it",
     [](Options& o, std::string_view t) { return take(o.policy.gids.node_addresses, parse_node_addresses(t)); }},
    {"env-file", "FILE", "set unset library variables from this file (/etc/rdma-init/env.d/*.conf)",
     [](Options& o, std::string_view t) { return store(o.env_file, t); }},
    {"no-lent", "", "never use the libraries that the node lends in /run/rdma-init/lib",
     [](Options& o, std::string_view t) { return base::set_switch(o.lent, t, false); }},
    {"reap", "", "stay as init: forward signals, reap zombies",
     [](Options& o, std::string_view t) { return base::set_switch(o.reap, t); }, "--"},
    {"log", "LEVEL", "quiet, info, debug or json, on stderr (info)", apply_log},
    {"format", "FORMAT", "env: sh, json or dotenv (sh)", apply_format, "env"},
    {"json", "", "doctor, topo: JSON", [](Options& o, std::string_view t) { return base::set_switch(o.json, t); },
     "doctor topo"},
    {"all", "", "doctor: also checks without fault, all notes, all ports and the variables",
     [](Options& o, std::string_view t) { return base::set_switch(o.all, t); }, "doctor"},
    {"snapshot", "FILE", "read a snapshot (- is stdin) instead of this machine",
     [](Options& o, std::string_view t) { return store(o.snapshot, t); }, kOfOtherMachine},
    {"root", "DIR", "read /sys, /dev and /etc below DIR instead of this machine's",
     [](Options& o, std::string_view t) { return store(o.root, t); }, kOfOtherMachine},
    {"rootfs", "DIR",
     "env: decide for a container whose root file system is prepared at DIR: read files and device nodes below DIR, "
     "but "
     "addresses of this machine",
     [](Options& o, std::string_view t) { return store_path(o.rootfs, t); }, "env"},
    {"environ", "FILE", "env: variables of that container, NAME=value lines; they precede those of the environment",
     [](Options& o, std::string_view t) { return store_path(o.environ_file, t); }, "env"},
    {"help", "", "print this help", [](Options& o, std::string_view) { return store(o.command, Command::kHelp); }},
    {"version", "", "print the version",
     [](Options& o, std::string_view) { return store(o.command, Command::kVersion); }},
};

constexpr std::span<const base::Option<Options>> kTable(kOptions);
// The last nine options have no RDMA_INIT_* variable: each is for one call, and a variable would affect all calls.
constexpr std::size_t kWithoutVariable = 9;
constexpr auto kWithVariable = kTable.first(kTable.size() - kWithoutVariable);

constexpr std::array<Named<Command>, 4> kSubcommands = {
    {{"env", Command::kEnv}, {"doctor", Command::kDoctor}, {"topo", Command::kTopo}, {"snapshot", Command::kSnapshot}}};

constexpr std::string_view kPrefix = "RDMA_INIT_";

constexpr const char* kNoCommandRemedy =
    "name a command; in an image, write ENTRYPOINT and CMD as lists in brackets: an ENTRYPOINT in shell form gets none";

Result<void> apply_environment(Options& options, const char* const* environment,
                               std::span<const std::string_view> passed) {
  constexpr std::string_view kNote = "RDMA_INIT_NOTE=";
  for (const char* const* at = environment; *at; ++at) {
    const std::string_view entry = *at;
    // rdma-runtime and rdma-nri set RDMA_INIT_NOTE, but an image can set it too, so it is only shown.
    if (entry.starts_with(kNote)) options.note = printable(entry.substr(kNote.size()), kLongestNote);
  }
  return base::apply_variables(kWithVariable, {kPrefix, kOtherVariables}, environment, passed, options);
}

Result<void> apply_argument(Options& options, std::span<char* const> arguments, std::size_t& at) {
  const std::string_view name = base::split_argument(arguments[at]).name;
  const std::string_view value = TRY(base::take_option(kTable, arguments, at, options));
  constexpr std::array<std::string_view, 5> kNarrowing = {"hca", "cidr", "family", "no-link-local", "no-node-gids"};
  if (std::ranges::find(kNarrowing, name) != kNarrowing.end()) {
    const std::string variable = base::variable_of(kPrefix, name);
    std::erase_if(options.narrowing, [&](const auto& earlier) { return earlier.first == variable; });
    options.narrowing.emplace_back(variable, value);
  }
  return {};
}

Result<void> check_combination(const Options& options, const std::vector<std::string_view>& applied) {
  if (options.command == Command::kHelp || options.command == Command::kVersion) return {};
  const bool has_subcommand = !options.topic.empty();
  if (options.program && has_subcommand) return make_error("a subcommand takes no `-- command`");
  if (!options.program && !has_subcommand) {
    return make_error("no command: rdma-init [options] -- command [args]");
  }
  // A command would ignore an option of other commands. Their variables are for all commands of an image.
  const std::string_view word = options.topic.empty() ? "--" : options.topic;
  for (const std::string_view name : applied) {
    const std::string_view commands = base::find_option(kTable, name)->commands;
    if (base::is_for(commands, word)) continue;
    return make_error("`--{}` is no option of `{}`, but of: {}", name, word, commands);
  }
  if (!options.rootfs.empty() && (options.snapshot || !options.root.empty()))
    return make_error("--rootfs is of this machine, and --snapshot and --root are not; omit one");
  return {};
}

}  // namespace

Result<Options> parse_options(int argc, char** argv, const char* const* environment) {
  Options options;
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  TRY_VOID(apply_environment(options, environment, base::passed_options(arguments)));
  std::vector<std::string_view> applied;  // unlike `passed`, without values that look like options
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--") {
      if (i + 1 >= arguments.size()) return base::Error{"no command after `--`", 0, kNoCommandRemedy};
      options.program = argv + i + 1;
      break;
    }
    if (base::is_option(argument)) {
      TRY_VOID(apply_argument(options, arguments, i));
      applied.push_back(base::split_argument(argument).name);
      continue;
    }
    const auto* const subcommand = std::ranges::find(kSubcommands, argument, &Named<Command>::first);
    const bool has_subcommand = !options.topic.empty();
    if (subcommand == kSubcommands.end() || has_subcommand) {
      std::vector<std::string_view> names;
      // Suggests no word for a second subcommand, which is not misspelt.
      for (const auto& [name, command] : kSubcommands) {
        if (!has_subcommand) names.push_back(name);
      }
      return make_error("unexpected argument `{}`{}; put the command after `--`", printable(argument),
                        base::suggestion("", base::nearest_word(argument, names)));
    }
    options.topic = subcommand->first;
    if (options.command == Command::kExec) options.command = subcommand->second;
  }
  TRY_VOID(check_combination(options, applied));
  return options;
}

std::string help_text(std::string_view topic) {
  constexpr std::pair<std::string_view, std::string_view> kUsages[] = {
      {"-- command [args]", "export and execute"},
      {"env", "print the variables"},
      {"doctor", "check this container or node, print remedies"},
      {"topo", "draw GPUs, HCAs and NUMA nodes"},
      {"snapshot", "print this machine as JSON, for a bug report or --snapshot"}};
  std::string text =
      topic.empty()
          ? base::wrapped(
                "rdma-init finds the HCAs and the GID index that a training job can use here, exports the variables "
                "of NCCL, UCX and NVSHMEM, and executes the trainer.") +
                "\n"
          : "";
  text += "Usage:\n";
  for (const auto& [left, about] : kUsages)
    if (topic.empty() || topic == left)
      text += base::help_lines(fmt::format("  rdma-init [options] {}", left), about, 42);
  text +=
      "\n" +
      base::wrapped(
          "Options (default in brackets; those up to --log can also be set as RDMA_INIT_NAME in the environment):") +
      base::option_help(kTable, topic);
  if (!topic.empty()) return text;
  return text + "\n" +
         base::wrapped(
             "Exit codes: 0; 1 not fit for RDMA (doctor), or unreadable snapshot; 2 usage; 78 --require, "
             "--require-used or --strict not met; 126 and 127 command cannot be executed or found; with --reap 128+n "
             "for signal n.");
}

}  // namespace init
