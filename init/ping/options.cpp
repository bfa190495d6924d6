#include "init/ping/options.hpp"

#include <fmt/core.h>

#include <algorithm>
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
  return base::store(target, *number);
}

// Reads "all", or the word of the default.
Result<void> set_all(bool& target, std::string_view text, std::string_view usual) {
  const bool all = text == "all";
  return base::expect(target, all || text == usual ? &all : nullptr, fmt::format("{} or all", usual), text);
}

// Reads a number of bytes with an optional K or M.
Result<void> set_bytes(Options& options, std::string_view text) {
  const std::uint32_t unit = text.ends_with('K') ? 1U << 10 : text.ends_with('M') ? 1U << 20 : 1;
  const auto number = parse_number<std::uint32_t>(text.substr(0, text.size() - (unit > 1 ? 1 : 0)));
  if (!number || *number == 0 || *number > kMostBytes / unit)
    return make_error("expected 1 to 1M, got `{}`", printable(text));
  return base::store(options.bytes, *number * unit);
}

Result<void> set_timeout(Options& options, std::string_view text) {
  const auto seconds = base::parse_decimal(text);
  if (!seconds || *seconds <= 0 || *seconds > kLongestTimeout)
    return make_error("expected seconds up to {:.0f}, got `{}`", kLongestTimeout, printable(text));
  return base::store(options.timeout, *seconds);
}

constexpr base::Option<Options> kOptions[] = {
    {"rank", "R",
     "number of this rank, from 0 (RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMIX_RANK, JOB_COMPLETION_INDEX)",
     [](Options& o, std::string_view t) { return set_number(o.rank, t, 0); }},
    {"size", "N", "number of ranks (WORLD_SIZE, SLURM_NTASKS, OMPI_COMM_WORLD_SIZE)",
     [](Options& o, std::string_view t) { return set_number(o.size, t, 1); }},
    {"master", "HOST[:PORT]",
     "where rank 0 listens (MASTER_ADDR and MASTER_PORT, or the first host of Slurm's list; 4792)",
     [](Options& o, std::string_view t) { return base::store(o.master, t); }},
    {"rails", "same|all", "all: also test two different rails, which is reported and never a failure (same)",
     [](Options& o, std::string_view t) { return set_all(o.all_rails, t, "same"); }},
    {"pairs", "auto|all",
     "auto: from 128 nodes on, each meets about 2 log2(N) nodes in place of all; the report has the probability that "
     "one bad pair is found (auto)",
     [](Options& o, std::string_view t) { return set_all(o.all_pairs, t, "auto"); }},
    {"bytes", "N", "bytes of a write, up to 1M (64K)", set_bytes},
    {"bw", "", "write for one second per pair, and name pairs below 80 % of the median",
     [](Options& o, std::string_view t) { return base::set_switch(o.bandwidth, t); }},
    {"timeout", "SECONDS", "how long the ranks wait for each other at the start (30)", set_timeout},
    {"json", "", "rank 0 prints the report as JSON",
     [](Options& o, std::string_view t) { return base::set_switch(o.json, t); }},
    {"svg", "FILE", "rank 0 writes a heat map of all tested pairs to this file",
     [](Options& o, std::string_view t) { return base::store(o.svg, t); }},
    {"help", "", "print this help",
     [](Options& o, std::string_view) { return base::store(o.command, Command::kHelp); }},
    {"version", "", "print the version",
     [](Options& o, std::string_view) { return base::store(o.command, Command::kVersion); }},
};
constexpr std::span<const base::Option<Options>> kTable(kOptions);
// --help and --version have no variable.
constexpr auto kWithVariable = kTable.first(kTable.size() - 2);

}  // namespace

Result<Options> parse_options(int argc, char** argv, const char* const* environment) {
  Options options;
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  // An image with a fixed ENTRYPOINT has only variables to set options.
  const auto passed = base::passed_options(arguments);
  TRY_VOID(
      base::apply_variables(kWithVariable, {"RDMA_PING_", kOtherVariables}, environment, std::span(passed), options));
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (std::string_view(arguments[i]) == "--") {
      if (i + 1 >= arguments.size()) return make_error("no command after `--`");
      options.program = argv + i + 1;
      break;
    }
    if (!base::is_option(arguments[i]))
      return make_error("unexpected argument `{}`; put the command after `--`", printable(arguments[i]));
    TRY_VOID(base::take_option(kTable, arguments, i, options));
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
