#include "init/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fabric/text.hpp"

namespace init {
namespace {

using fabric::make_error;
using fabric::printable;
using fabric::Result;

// What an option does with its text; a switch gets "1" or, from its twin, "0".
using Apply = Result<void> (*)(Options&, std::string_view);

struct Option {
  std::string_view name;      // without "--"
  std::string_view argument;  // empty: a switch
  bool twin;                  // RDMA_INIT_<NAME>
  Apply apply;
  std::string_view help;
};

// The row of that name; nullptr if there is none.
const auto* find_named(const auto& rows, std::string_view name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

Result<void> store(auto& target, const auto& value) {
  target = value;
  return {};
}

// parsed: the value of the text, or a null of its kind.
Result<void> expect(auto& target, const auto& parsed, std::string_view expected, std::string_view text) {
  if (!parsed) return make_error("expected {}, got `{}`", expected, printable(text));
  return store(target, *parsed);
}

template <typename T>
struct Word {
  std::string_view name;
  T value;
};

template <typename T>
Result<void> choose(auto& target, std::initializer_list<Word<T>> words, std::string_view expected,
                    std::string_view text) {
  const Word<T>* word = find_named(words, text);
  return expect(target, word ? &word->value : nullptr, expected, text);
}

Result<void> set_switch(bool& target, std::string_view text, bool on = true) {
  return choose<bool>(target, {{"0", !on}, {"1", on}}, "0 or 1", text);
}

Result<void> apply_wait(Options& options, std::string_view text) {
  const auto seconds = fabric::parse_decimal(text);
  return expect(options.wait_seconds, seconds && *seconds <= 86400 ? seconds : std::nullopt, "seconds from 0 to 86400",
                text);
}

Result<void> apply_hca(Options& options, std::string_view text) {
  options.policy.hcas = TRY(fabric::parse_selectors(text));
  return {};
}

Result<void> apply_cidr(Options& options, std::string_view text) {
  options.policy.gids.cidrs.clear();
  for (const std::string_view part : fabric::split(text, ',')) {
    TRY_VOID(expect(options.policy.gids.cidrs.emplace_back(), fabric::parse_cidr(fabric::trim(part)), "ADDRESS/PREFIX",
                    part));
  }
  return {};
}

Result<void> apply_family(Options& options, std::string_view text) {
  return choose<fabric::Family>(options.policy.gids.family,
                                {{"4", fabric::Family::kIpv4}, {"6", fabric::Family::kIpv6}}, "4 or 6", text);
}

Result<void> apply_export(Options& options, std::string_view text) {
  options.policy.exports = TRY(parse_exports(text));
  return {};
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

constexpr std::array kOptions = {
    Option{"wait", "SECONDS", true, apply_wait,
           "wait at most this long for GIDs, nodes and carrier that are on their way (10)"},
    Option{"require", "N", true,
           [](Options& o, std::string_view t) {
             return expect(o.policy.require, fabric::parse_number<unsigned>(t), "a number of HCAs", t);
           },
           "leave with 78 unless N HCAs have a usable port"},
    Option{"strict", "", true, [](Options& o, std::string_view t) { return set_switch(o.policy.strict, t); },
           "leave with 78 rather than drop a port whose GID cannot be right, or keep a wrong value"},
    Option{"override", "", true, [](Options& o, std::string_view t) { return set_switch(o.policy.override_wrong, t); },
           "replace values that are already set and were found wrong"},
    Option{"hca", "LIST", true, apply_hca,
           "take these HCAs, or with ^ all but these: NAME[:PORT], netdev:NAME, pci:ADDRESS, guid:GUID; * is a glob"},
    Option{"cidr", "LIST", true, apply_cidr, "take only GIDs in one of these networks"},
    Option{"family", "4|6", true, apply_family, "take only GIDs of this address family"},
    Option{"export", "LIST", true, apply_export, "write for these libraries, or none (nccl,ucx,nvshmem)"},
    Option{"nccl-version", "X.Y.Z", true,
           [](Options& o, std::string_view t) {
             return expect(o.policy.nccl_version, nccl::parse_version(t), "X.Y.Z", t);
           },
           "be right under this NCCL (the newest, and $NCCL_VERSION)"},
    Option{"no-link-local", "", true,
           [](Options& o, std::string_view t) { return set_switch(o.policy.gids.link_local, t, false); },
           "never take a link-local GID"},
    Option{"no-node-gids", "", true,
           [](Options& o, std::string_view t) { return set_switch(o.policy.gids.node_gids, t, false); },
           "never take a GID of the node's address where the container has no netdev of an HCA"},
    Option{"node-addresses", "LIST", true,
           [](Options& o, std::string_view t) -> Result<void> {
             o.policy.gids.node_addresses = TRY(parse_node_addresses(t));
             return {};
           },
           "which addresses those are, as HCA:PORT=ADDRESS; rdma-runtime and rdma-nri set it"},
    Option{"env-file", "FILE", true, [](Options& o, std::string_view t) { return store(o.env_file, t); },
           "set the libraries' variables of this file where they are unset (/etc/rdma-init/env.d/*.conf)"},
    Option{"reap", "", true, [](Options& o, std::string_view t) { return set_switch(o.reap, t); },
           "stay as init: forward signals, reap zombies"},
    Option{"log", "LEVEL", true, apply_log, "quiet, info, debug or json, on stderr (info)"},
    Option{"format", "FORMAT", false, apply_format, "env: sh, json or dotenv (sh)"},
    Option{"json", "", false, [](Options& o, std::string_view t) { return set_switch(o.json, t); }, "doctor: JSON"},
    Option{"snapshot", "FILE", false, [](Options& o, std::string_view t) { return store(o.snapshot, t); },
           "answer from a snapshot (- is stdin) instead of this machine"},
    Option{"root", "DIR", false, [](Options& o, std::string_view t) { return store(o.root, t); },
           "read /sys, /dev and /etc below DIR instead of this machine's"},
    Option{"help", "", false, [](Options& o, std::string_view) { return store(o.command, Command::kHelp); },
           "this text"},
    Option{"version", "", false, [](Options& o, std::string_view) { return store(o.command, Command::kVersion); },
           "print the version"},
};

constexpr std::array<Word<Command>, 4> kSubcommands = {
    {{"env", Command::kEnv}, {"doctor", Command::kDoctor}, {"topo", Command::kTopo}, {"snapshot", Command::kSnapshot}}};

std::string twin_name(std::string_view option) {
  std::string name = "RDMA_INIT_";
  for (const char c : option)
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

// Names of the options on the command line, in front of `--`.
std::vector<std::string_view> given_options(int argc, char** argv) {
  std::vector<std::string_view> names;
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--")) names.push_back(argument.substr(2, argument.find('=') - 2));
  }
  return names;
}

// Twins of the options that the command line does not give: it wins, also over a twin that is wrong.
Result<void> apply_twins(Options& options, const char* const* environment, const std::vector<std::string_view>& given) {
  constexpr std::string_view kPrefix = "RDMA_INIT_";
  for (; *environment; ++environment) {
    const std::string_view entry = *environment;
    if (!entry.starts_with(kPrefix)) continue;
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view value = entry.substr(std::min(equals + 1, entry.size()));
    if (value.empty()) continue;
    for (const Option& option : kOptions) {
      if (!option.twin || std::find(given.begin(), given.end(), option.name) != given.end()) continue;
      if (twin_name(option.name) != entry.substr(0, equals)) continue;
      if (auto done = option.apply(options, value); !done) {
        return fabric::wrap(std::move(done).error(), entry.substr(0, equals));
      }
    }
  }
  return {};
}

// One "--name", "--name=value" or "--name value" at argv[index]; index moves to the last argument used.
Result<void> apply_argument(Options& options, int argc, char** argv, int& index) {
  const std::string_view argument = argv[index];
  const std::size_t equals = argument.find('=');
  const std::string_view name = argument.substr(2, equals == std::string_view::npos ? equals : equals - 2);
  const Option* option = find_named(kOptions, name);
  if (!option) return make_error("unknown option `--{}`; see rdma-init --help", printable(name));
  std::string_view value = "1";
  if (equals != std::string_view::npos) {
    if (option->argument.empty()) return make_error("`--{}` takes no value", name);
    value = argument.substr(equals + 1);
  } else if (!option->argument.empty()) {
    if (index + 1 >= argc) return make_error("`--{}` needs a value: {}", name, option->argument);
    value = argv[++index];
  }
  if (auto done = option->apply(options, value); !done) {
    return fabric::wrap(std::move(done).error(), fmt::format("--{}", name));
  }
  return {};
}

Result<void> check_combination(const Options& options, bool has_subcommand) {
  if (options.command == Command::kHelp || options.command == Command::kVersion) return {};
  if (options.program && has_subcommand) return make_error("a subcommand takes no `-- command`");
  if (!options.program && !has_subcommand) {
    return make_error("no command: rdma-init [options] -- command [args], or see rdma-init --help");
  }
  if (options.program && (options.snapshot || !options.root.empty())) {
    return make_error(
        "--snapshot and --root answer for another machine, so nothing is executed: use env, doctor or topo");
  }
  return {};
}

}  // namespace

Result<Options> parse_options(int argc, char** argv, const char* const* environment) {
  Options options;
  const auto given = given_options(argc, argv);
  const bool about_itself = std::any_of(given.begin(), given.end(),
                                        [](std::string_view name) { return name == "help" || name == "version"; });
  // --help has to work where a twin is wrong.
  if (!about_itself) TRY_VOID(apply_twins(options, environment, given));
  bool has_subcommand = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") {
      if (i + 1 >= argc) return make_error("no command after `--`");
      options.program = argv + i + 1;
      break;
    }
    if (argument.starts_with("--")) {
      TRY_VOID(apply_argument(options, argc, argv, i));
      continue;
    }
    const Word<Command>* subcommand = find_named(kSubcommands, argument);
    if (!subcommand || has_subcommand) {
      return make_error("unexpected argument `{}`; a command to run goes after `--`", printable(argument));
    }
    has_subcommand = true;
    if (options.command == Command::kExec) options.command = subcommand->value;
  }
  TRY_VOID(check_combination(options, has_subcommand));
  return options;
}

std::string help_text() {
  std::string text =
      "rdma-init finds the HCAs and the GID index that a training job can use in this container, exports what NCCL, "
      "UCX\n"
      "and NVSHMEM read, and executes the trainer.\n"
      "\n"
      "Usage:\n"
      "  rdma-init [options] -- command [args]   export and execute\n"
      "  rdma-init [options] env                 print the variables\n"
      "  rdma-init [options] doctor              say what works, what does not, and the remedy\n"
      "  rdma-init [options] topo                draw GPUs, HCAs and NUMA nodes\n"
      "  rdma-init [options] snapshot            print this machine as JSON, for a bug report or --snapshot\n"
      "\n"
      "Options (in brackets the default; each but the last six has a twin RDMA_INIT_NAME in the environment):\n";
  for (const Option& option : kOptions) {
    const std::string left = fmt::format("--{}{}{}", option.name, option.argument.empty() ? "" : " ", option.argument);
    text += fmt::format("  {:<22}{}\n", left, option.help);
  }
  text +=
      "\n"
      "Exit: 0; 1 doctor found it unfit, or a snapshot cannot be read; 2 usage; 78 --require or --strict not met;\n"
      "126 and 127 command cannot be executed or found; with --reap 128+n for signal n.\n";
  return text;
}

}  // namespace init
