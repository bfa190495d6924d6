#include "init/ping/options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "base/options.hpp"
#include "base/text.hpp"
#include "init/ping/messages.hpp"
#include "init/ping/ranks.hpp"

namespace init::ping {
namespace {

constexpr double kLongestTimeout = 86400;

Result<void> set_number(std::optional<unsigned>& target, std::string_view text, unsigned least) {
  const auto number = parse_number<unsigned>(text);
  if (!number || *number < least || *number > kMostRanks)
    return make_error("expected a number from {} to {}, got `{}`", least, kMostRanks, printable(text));
  target = number;
  return {};
}

Result<void> set_rails(Options& options, std::string_view text) {
  if (text != "same" && text != "all") return make_error("expected same or all, got `{}`", printable(text));
  options.all_rails = text == "all";
  return {};
}

// Reads a number of bytes with an optional K or M.
Result<void> set_bytes(Options& options, std::string_view text) {
  std::string_view digits = text;
  std::uint32_t unit = 1;
  if (text.ends_with('K') || text.ends_with('M')) {
    unit = text.ends_with('K') ? 1U << 10 : 1U << 20;
    digits.remove_suffix(1);
  }
  const auto number = parse_number<std::uint32_t>(digits);
  if (!number || *number == 0 || *number > kMostBytes / unit)
    return make_error("expected 1 to 1M, got `{}`", printable(text));
  options.bytes = *number * unit;
  return {};
}

Result<void> set_timeout(Options& options, std::string_view text) {
  const auto seconds = base::parse_decimal(text);
  if (!seconds || *seconds <= 0 || *seconds > kLongestTimeout)
    return make_error("expected seconds up to {:.0f}, got `{}`", kLongestTimeout, printable(text));
  options.timeout = *seconds;
  return {};
}

constexpr base::Option<Options> kOptions[] = {
    {"rank", "R",
     "number of this rank, from 0 (RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMIX_RANK, JOB_COMPLETION_INDEX)",
     [](Options& o, std::string_view t) { return set_number(o.rank, t, 0); }},
    {"size", "N", "number of ranks (WORLD_SIZE, SLURM_NTASKS, OMPI_COMM_WORLD_SIZE)",
     [](Options& o, std::string_view t) { return set_number(o.size, t, 1); }},
    {"master", "HOST[:PORT]",
     "where rank 0 listens (MASTER_ADDR and MASTER_PORT, or the first host of Slurm's list; 4792)",
     [](Options& o, std::string_view t) -> Result<void> {
       o.master = std::string(t);
       return {};
     }},
    {"rails", "same|all", "all: also test two different rails, which is reported and never a failure (same)",
     set_rails},
    {"bytes", "N", "bytes of a write, up to 1M (64K)", set_bytes},
    {"bw", "", "write for one second per pair, and name pairs below 80 % of the median",
     [](Options& o, std::string_view t) { return base::set_switch(o.bandwidth, t); }},
    {"timeout", "SECONDS", "how long the ranks wait for each other at the start (30)", set_timeout},
    {"json", "", "rank 0 prints the report as JSON",
     [](Options& o, std::string_view t) { return base::set_switch(o.json, t); }},
    {"svg", "FILE", "rank 0 writes a heat map of all pairs to this file",
     [](Options& o, std::string_view t) -> Result<void> {
       o.svg = std::string(t);
       return {};
     }},
    {"help", "", "print this help",
     [](Options& o, std::string_view) -> Result<void> {
       o.command = Command::kHelp;
       return {};
     }},
    {"version", "", "print the version",
     [](Options& o, std::string_view) -> Result<void> {
       o.command = Command::kVersion;
       return {};
     }},
};
constexpr std::span<const base::Option<Options>> kTable(kOptions);
// --help and --version have no variable.
constexpr auto kTwins = kTable.first(kTable.size() - 2);

Result<void> apply(Options& options, std::span<char* const> arguments, std::size_t& at) {
  const std::string_view argument = arguments[at];
  if (!base::is_option(argument))
    return make_error("unexpected argument `{}`; put the command after `--`", printable(argument));
  const std::string_view name = base::split_argument(argument).name;
  const auto* const option = base::find_option(kTable, name);
  if (option == nullptr) return base::unknown_option(kTable, name);
  const std::string_view value = TRY(base::take_value(arguments, at, option->value));
  if (auto done = option->apply(options, value); !done)
    return base::wrap(std::move(done).error(), fmt::format("--{}", name));
  return {};
}

}  // namespace

Result<Options> parse_options(int argc, char** argv, const char* const* environment) {
  Options options;
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  // An image with a fixed ENTRYPOINT has only variables to set options.
  const auto given = base::given_options(arguments);
  const bool about_itself = std::ranges::any_of(given, [](auto name) { return name == "help" || name == "version"; });
  // --help must work with an invalid variable.
  if (!about_itself)
    TRY_VOID(base::apply_variables(kTwins, {"RDMA_PING_", kOtherVariables}, environment, std::span(given), options));
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (std::string_view(arguments[i]) == "--") {
      if (i + 1 >= arguments.size()) return make_error("no command after `--`");
      options.program = argv + i + 1;
      break;
    }
    TRY_VOID(apply(options, arguments, i));
  }
  return options;
}

std::string help_text() {
  return base::wrapped(
             "rdma-ping tests, before a job starts, that every rank reaches every other rank on every rail, with the "
             "HCAs, GID index, traffic class and service level that NCCL will use. Start it as a "
             "rank of the job. It needs no GPU, no MPI and no ssh.") +
         "\nUsage:\n  rdma-ping [options] [-- command [args]]\n\n" +
         base::wrapped("The command is executed if all tests are good.") + "\n" +
         base::wrapped(
             "Options (default, or the variables that set it, in brackets; all except the last two can also be set as "
             "RDMA_PING_NAME in the environment):") +
         base::option_help(kTable) + "\n" +
         base::wrapped(
             "Exit codes: 0 all tests are good; 1 a test failed, or a rank did not come; 2 usage; 69 no rank "
             "has an HCA that NCCL uses; 126 and 127 command cannot be executed or found.");
}

}  // namespace init::ping
