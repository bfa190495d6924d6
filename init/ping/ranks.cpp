#include "init/ping/ranks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "base/text.hpp"

namespace init::ping {
namespace {

using Environment = const char* const*;

// Returns the value, nullopt if the variable is not set or empty.
std::optional<std::string_view> find(Environment environment, std::string_view name) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.size() > name.size() + 1 && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

// A number and the option or variable that it comes from.
struct Number {
  unsigned value = 0;
  std::string source;
};

// The variables of a launcher.
struct Launcher {
  std::vector<std::string_view> rank;
  std::vector<std::string_view> size;
};

bool is_inside_other_launcher(Environment environment) {
  return find(environment, "TORCHELASTIC_RUN_ID") || find(environment, "OMPI_COMM_WORLD_RANK");
}

// Returns the variables of the innermost launcher. A process inherits those of the launchers around it, whose ranks are
// nodes or batch steps: torchrun in a Job, mpirun in a batch script of Slurm.
Launcher launcher_of(Environment environment) {
  if (find(environment, "TORCHELASTIC_RUN_ID")) return {{"RANK"}, {"WORLD_SIZE"}};
  if (find(environment, "OMPI_COMM_WORLD_RANK"))
    return {{"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"}, {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}};
  // Kubeflow's trainer sets RANK to the number of the pod, and WORLD_SIZE to the processes of all pods.
  const auto nodes = find(environment, "PET_NNODES");
  const bool has_fixed_size = nodes && parse_number<unsigned>(*nodes);
  if (has_fixed_size && find(environment, "PET_NODE_RANK")) return {{"PET_NODE_RANK"}, {"PET_NNODES"}};
  return {{"RANK", "SLURM_PROCID", "PMIX_RANK", "JOB_COMPLETION_INDEX"}, {"WORLD_SIZE", "SLURM_NTASKS"}};
}

// Returns the number of the command line, or of the environment. Errors: there is none, or two variables contradict
// each other.
Result<Number> number_of(const std::optional<unsigned>& passed, Environment environment,
                         std::span<const std::string_view> names, std::string_view option) {
  if (passed) return Number{*passed, fmt::format("--{}", option)};
  std::optional<Number> found;
  for (const std::string_view name : names) {
    const auto text = find(environment, name);
    if (!text) continue;
    const auto value = parse_number<unsigned>(*text);
    if (!value || *value > kMostRanks)
      return make_error("{}: expected a number up to {}, got `{}`", name, kMostRanks, printable(*text));
    if (!found) found = Number{*value, std::string(name)};
    if (found->value != *value)
      return base::Error{
          fmt::format("{}={} and {}={} contradict each other", found->source, found->value, name, *value), 0,
          fmt::format("pass --{}, or unset the wrong variable", option)};
  }
  if (found) return std::move(*found);
  return base::Error{fmt::format("the {} of this job is not known", option == "rank" ? "rank" : "number of ranks"), 0,
                     fmt::format("pass --{}, or set {}", option, names.front())};
}

struct HostPort {
  std::string host;
  std::optional<std::uint16_t> port;
};

Result<std::uint16_t> parse_port(std::string_view text, std::string_view source) {
  const auto port = parse_number<std::uint16_t>(text);
  if (!port || *port == 0) return make_error("{}: expected a port from 1 to 65535, got `{}`", source, printable(text));
  return *port;
}

// Splits HOST, HOST:PORT, [IPV6]:PORT or IPV6, which has more than one colon.
Result<HostPort> split_master(std::string_view text, std::string_view source) {
  HostPort split{std::string(text), std::nullopt};
  std::optional<std::string_view> port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return make_error("{}: `{}` has no ]", source, printable(text));
    split.host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (rest.starts_with(':')) port = rest.substr(1);
    if (!rest.empty() && !port) return make_error("{}: `{}` is not [ADDRESS]:PORT", source, printable(text));
  } else if (std::ranges::count(text, ':') == 1) {
    split.host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':') + 1);
  }
  if (port) split.port = TRY(parse_port(*port, source));
  if (split.host.empty()) return make_error("{}: `{}` names no host", source, printable(text));
  return split;
}

Result<HostPort> find_master(const std::optional<std::string>& passed, Environment environment) {
  if (passed) return split_master(*passed, "--master");
  if (const auto address = find(environment, "MASTER_ADDR")) {
    HostPort master = TRY(split_master(*address, "MASTER_ADDR"));
    const auto port = find(environment, "MASTER_PORT");
    if (!port) return master;
    const std::uint16_t number = TRY(parse_port(*port, "MASTER_PORT"));
    if (master.port && *master.port != number)
      return make_error("MASTER_ADDR={} and MASTER_PORT={} contradict each other", printable(*address), number);
    master.port = number;
    return master;
  }
  for (const std::string_view name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const auto list = find(environment, name);
    if (!list) continue;
    HostPort master{first_host(*list), std::nullopt};
    if (master.host.empty()) return make_error("{}: `{}` names no host", name, printable(*list));
    return master;
  }
  return HostPort{};
}

// Returns the same text for all ranks of a job, and another one for most other jobs.
std::string token_of(Environment environment, unsigned size) {
  if (const auto token = find(environment, "RDMA_PING_TOKEN")) return std::string(token->substr(0, kLongestToken));
  std::string token = std::to_string(size);
  for (const std::string_view name :
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "TORCHELASTIC_RUN_ID"}) {
    // mpirun starts the ranks of its own node outside of a step, and those of other nodes in one.
    const bool differs = name == "SLURM_STEP_ID" && is_inside_other_launcher(environment);
    const auto id = find(environment, name);
    if (id && !differs) token += fmt::format(" {}", *id);
  }
  return token.substr(0, kLongestToken);
}

}  // namespace

std::string first_host(std::string_view list) {
  const std::size_t end = list.find_first_of(",[");
  std::string host(list.substr(0, end));
  if (end == std::string_view::npos || list[end] == ',') return host;
  const std::string_view rest = list.substr(end + 1);
  const std::size_t close = rest.find(']');
  if (close == std::string_view::npos) return "";
  const std::string_view number = rest.substr(0, rest.find_first_of(",-]"));
  // A host of a multidimensional name has more brackets; their text follows up to the next comma.
  const std::string_view after = rest.substr(close + 1);
  const std::string tail = after.empty() || after.starts_with(',') ? "" : first_host(after);
  const bool is_number = !number.empty() && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? host + std::string(number) + tail : "";
}

Result<Place> find_place(std::optional<unsigned> passed_rank, std::optional<unsigned> passed_size,
                         const std::optional<std::string>& passed_master, const char* const* environment) {
  const Launcher launcher = launcher_of(environment);
  const Number rank = TRY(number_of(passed_rank, environment, launcher.rank, "rank"));
  const Number size = TRY(number_of(passed_size, environment, launcher.size, "size"));
  if (size.value == 0) return make_error("{}=0: a job has at least one rank", size.source);
  if (rank.value >= size.value) {
    return make_error("{}={} is not below {}={}", rank.source, rank.value, size.source, size.value);
  }
  const HostPort master = TRY(find_master(passed_master, environment));
  if (master.host.empty() && size.value > 1) {
    return base::Error{"the host of rank 0 is not known", 0, "pass --master HOST:PORT, or set MASTER_ADDR"};
  }
  return Place{rank.value,
               size.value,
               master.host,
               master.port.value_or(kMeetingPort),
               token_of(environment, size.value),
               fmt::format("{} and {}", rank.source, size.source)};
}

}  // namespace init::ping
