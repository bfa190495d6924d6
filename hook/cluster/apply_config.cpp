#include "hook/cluster/apply_config.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <iterator>
#include <set>
#include <utility>

#include "fabric/inventory.hpp"
#include "fabric/netlink.hpp"
#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"
#include "hook/base/text_digest.hpp"
#include "hook/cluster/config_source.hpp"
#include "hook/config/read_config.hpp"
#include "hook/install/node_files.hpp"
#include "hook/plan/pools.hpp"
#include "hook/rails/address/node_ranges.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::UniqueFd;
using Problems = std::vector<ConfigProblem>;

constexpr int kLockTries = 100;
constexpr timespec kLockPause{.tv_sec = 0, .tv_nsec = 100'000'000};

bool has_error(const Problems& problems) {
  return std::any_of(problems.begin(), problems.end(), [](const ConfigProblem& problem) { return problem.is_error; });
}

ConfigProblem problem_of(const std::string& file, const Error& error, const char* remedy) {
  return {file, 0, error.message, fabric::remedy_of(error, remedy)};
}

// Returns the cluster's new text, followed by the texts of the node's own files: later texts have priority.
std::vector<ConfigText> below_own(ConfigText cluster, const std::vector<ConfigText>& present) {
  std::vector<ConfigText> texts;
  texts.reserve(present.size() + 1);
  texts.push_back(std::move(cluster));
  std::copy_if(present.begin(), present.end(), std::back_inserter(texts),
               [](const ConfigText& one) { return !one.is_clusters; });
  return texts;
}

// Locks the directory, because two programs that write the file at the same time would use the same temporary file.
Result<UniqueFd> lock_directory(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) {
    Error error = sys_error(errno, "open `{}`", fabric::printable(directory));
    error.hint = fmt::format("create it as root: install -d -m 755 {}", fabric::printable(directory));
    return error;
  }
  for (int left = kLockTries; ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0; --left) {
    // flock(2) has no timeout, so the lock is polled.
    if (errno != EWOULDBLOCK && errno != EINTR) return sys_error(errno, "lock `{}`", fabric::printable(directory));
    if (left == 0)
      return make_error("lock `{}`: another `rdma-hook config apply` has locked it", fabric::printable(directory));
    ::nanosleep(&kLockPause, nullptr);
  }
  return fd;
}

bool is_on(const Network& network, const Pool& pool) {
  return network.pool ? *network.pool == pool.name : pool.network == network.name;
}

// Returns the network's rails, each with the addresses of its netdev. Skips rails with a netdev in another network
// namespace.
Result<std::vector<std::pair<unsigned, std::vector<Address>>>> seen_rails(const Config& config, const Network& network,
                                                                          const NodeSettings& node) {
  const auto inventory = TRY(read_whole_node(config, node, {.link_layer = true, .netdevs = true}));
  const auto netdevs = TRY(fabric::netlink::read_netdevs());
  const NodeMap map(inventory, config);
  std::vector<std::pair<unsigned, std::vector<Address>>> rails;
  for (const NodeHca* hca : map.by_rail()) {
    if (!hca->pool || !hca->netdev || !is_on(network, *hca->pool)) continue;
    for (const fabric::Netdev& netdev : netdevs) {
      if (netdev.name != *hca->netdev) continue;
      std::vector<Address> addresses;
      addresses.reserve(netdev.addresses.size());
      for (const fabric::InterfaceAddress& own : netdev.addresses)
        addresses.push_back(own.address);
      rails.emplace_back(hca->rail, std::move(addresses));
    }
  }
  return rails;
}

Result<void> resolve_slices(const Config& config, const Network& network, const NodeSettings& node) {
  const auto none = []() -> Result<std::vector<Address>> { return std::vector<Address>(); };
  // The addresses of netdevs are read only if the node's index comes from an address. Netdevs in other network
  // namespaces are skipped.
  if (config.node_index.value_or(NodeIndex()).by == NodeIndex::By::kAddress) {
    for (const auto& rail : TRY(seen_rails(config, network, node)))
      TRY(node_ranges(config, network, rail.first, [&]() -> Result<std::vector<Address>> { return rail.second; }));
    return {};
  }
  std::set<unsigned> rails;
  for (const AddressRange& range : network.ranges)
    if (range.per_node) rails.insert(range.rail.value_or(0));
  for (const unsigned rail : rails)
    TRY(node_ranges(config, network, rail, none));
  return {};
}

// Describes the node's current configuration.
std::string summary_of(const ConfigFiles& present) {
  if (!present.problems.empty()) return "invalid files";
  if (present.texts.empty()) return config_summary({}, Config());
  const auto now = parse_config(present.texts);
  return now.ok() ? config_summary(present.texts, now.config)
                  : "a configuration with errors: containers that request HCAs do not start";
}

// Reads the node's configuration files, and checks their directories: users who can write to a directory could replace
// its files.
ConfigFiles read_present(const ConfigPaths& paths) {
  ConfigFiles present = read_config_files(paths);
  if (const auto safe = check_config_directories(paths); !safe && present.problems.empty())
    present.problems.push_back(
        problem_of(paths.cluster, safe.error(), "make root its owner, and remove write access for other users"));
  return present;
}

struct Checked {
  AppliedConfig applied;  // kDue, kSame or kRefused; applied.has describes the node's present configuration
  std::string text;       // the cluster's new text
  std::string would_have;
};

Checked check(const std::string& directory, const NodeSettings& node) {
  const std::string source = directory + "/config.json";
  Checked checked;
  AppliedConfig& applied = checked.applied;
  const ConfigFiles present = read_present(node.config);
  applied.has = summary_of(present);
  auto text = read_cluster_config(directory);
  if (!text) {
    applied.problems.push_back(problem_of(source, text.error(), "mount a ConfigMap that has the key config.json"));
    return checked;
  }
  applied.digest = text_digest(*text);
  // The cluster's text is checked together with the node's own files. If one of these files cannot be read, nothing is
  // checked.
  applied.problems = present.problems;
  if (!present.problems.empty()) return checked;
  const auto texts = below_own({source, *text, true}, present.texts);
  ParsedConfig parsed = parse_config(texts);
  applied.problems = std::move(parsed.problems);
  if (has_error(applied.problems)) return checked;
  for (ConfigProblem& problem : slice_problems(parsed.config, node, source))
    applied.problems.push_back(std::move(problem));
  if (has_error(applied.problems)) return checked;
  const auto is_there = [&](const ConfigText& one) { return one.is_clusters && one.text == *text; };
  const bool same = std::any_of(present.texts.begin(), present.texts.end(), is_there);
  applied.outcome = same ? AppliedConfig::Outcome::kSame : AppliedConfig::Outcome::kDue;
  checked.would_have = config_summary(texts, parsed.config);
  checked.text = std::move(*text);
  return checked;
}

}  // namespace

std::vector<ConfigProblem> slice_problems(const Config& config, const NodeSettings& node, const std::string& file) {
  Problems problems;
  for (const auto& [name, network] : config.networks) {
    if (std::none_of(network.ranges.begin(), network.ranges.end(),
                     [](const AddressRange& range) { return range.per_node.has_value(); }))
      continue;
    const auto resolved = resolve_slices(config, network, node);
    if (resolved) continue;
    problems.push_back(problem_of(file, resolved.error(), "correct `node_index`, or the network's `addresses`"));
    problems.back().message = fmt::format("`networks.{}.addresses`: {}", name, resolved.error().message);
  }
  return problems;
}

AppliedConfig check_cluster_config(const std::string& directory, const NodeSettings& node) {
  return check(directory, node).applied;
}

// The write is the last step, so that each error leaves the file unchanged. Before the write, applied.has describes the
// old configuration.
AppliedConfig apply_cluster_config(const std::string& directory, const NodeSettings& node) {
  const std::string& file = node.config.cluster;
  const auto lock = lock_directory(file.substr(0, std::max<std::size_t>(file.rfind('/'), 1)));
  Checked checked = check(directory, node);
  AppliedConfig& applied = checked.applied;
  const auto fail = [&](const Error& error) {
    applied.outcome = AppliedConfig::Outcome::kRefused;
    applied.problems.push_back(problem_of(file, error, ""));
  };
  if (!lock) {
    // Only the error of the lock is reported. If the directory is missing, `problems` has the same cause again for each
    // file in the directory.
    applied.problems.clear();
    fail(lock.error());
  } else if (applied.outcome == AppliedConfig::Outcome::kDue) {
    if (auto written = write_node_file("", file, checked.text); !written) {
      fail(written.error());
    } else {
      applied.outcome = AppliedConfig::Outcome::kWritten;
      applied.has = std::move(checked.would_have);
    }
  }
  return std::move(checked.applied);
}

}  // namespace hook
