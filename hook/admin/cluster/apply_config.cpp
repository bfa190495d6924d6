#include "hook/admin/cluster/apply_config.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <set>
#include <utility>

#include "base/process/root_lock.hpp"
#include "base/process/sandbox.hpp"
#include "base/text.hpp"
#include "base/text_digest.hpp"
#include "base/unique_fd.hpp"
#include "fabric/inventory.hpp"
#include "fabric/read_network.hpp"
#include "hook/admin/cluster/config_source.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/config/node_index.hpp"
#include "hook/config/node_slice.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/plan/pools.hpp"
#include "hook/rails/address/node_ranges.hpp"

namespace hook {
namespace {

using fabric::Address;
using Problems = std::vector<ConfigProblem>;

constexpr const char* kApplyLock = "/.rdma-hook-config-apply.lock";

ConfigProblem problem_of(const std::string& file, const Error& error, const char* remedy) {
  return {file, 0, error.message, base::remedy_of(error, remedy)};
}

// Returns the cluster's new text, followed by the texts of the node's own files: later texts have priority.
std::vector<ConfigText> below_own(ConfigText cluster, const std::vector<ConfigText>& present) {
  std::vector<ConfigText> texts;
  texts.reserve(present.size() + 1);
  texts.push_back(std::move(cluster));
  std::ranges::copy_if(present, std::back_inserter(texts), [](const ConfigText& one) { return !one.is_clusters; });
  return texts;
}

constexpr std::chrono::milliseconds kApplyPatience{10'000};
// Longest wait for the lock of an earlier version, which that version holds for milliseconds.
constexpr std::chrono::milliseconds kOldApplyPatience{2'000};

// The locks of one call, because two programs that write the file at the same time would use the same temporary file.
struct ApplyLock {
  LockFile file;
  UniqueFd directory;  // earlier versions lock the directory of the file
  std::string note;    // a warning if a process of another project has locked the directory
};

Result<UniqueFd> open_cluster_directory(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.ok()) return fd;
  Error error = sys_error(errno, "open `{}`", base::printable(directory));
  error.hint = fmt::format("create it as root: install -d -m 755 {}", base::printable(directory));
  return error;
}

Result<ApplyLock> lock_directory(const std::string& directory, UniqueFd fd) {
  auto file = TRY(LockFile::take(directory + kApplyLock, kApplyPatience));
  OldLock old = TRY(take_old_lock(fd.get(), directory, kOldApplyPatience));
  if (old.held) return ApplyLock{std::move(file), std::move(fd), {}};
  return ApplyLock{std::move(file), UniqueFd(),
                   fmt::format("{} has locked `{}`: this lock is ignored", old.process, base::printable(directory))};
}

// Removes the lock file of a call that was killed.
void remove_stale_lock(const std::string& directory) {
  const std::string path = directory + kApplyLock;
  struct stat status {};
  // The seccomp filter allows neither access(2) nor faccessat2(2).
  if (::lstat(path.c_str(), &status) == 0) static_cast<void>(LockFile::take(path, std::chrono::milliseconds(0)));
}

bool is_on(const Network& network, const Pool& pool) {
  return network.pool ? *network.pool == pool.name : pool.network == network.name;
}

// Returns the network's rails, each with the addresses of its netdev. Skips rails with a netdev in another network
// namespace.
Result<std::vector<std::pair<unsigned, std::vector<Address>>>> seen_rails(const Config& config, const Network& network,
                                                                          const NodeSettings& node) {
  auto inventory = TRY(read_whole_node(config, node, {.link_layer = true, .netdevs = true}));
  TRY_VOID(note_away_hcas(node, nullptr, inventory));
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

bool is_sliced(const Network& network) {
  const auto is_cut = [](const auto& range) { return range && range->per_node; };
  return is_cut(network.vf_macs) || is_cut(network.vf_guids) ||
         std::ranges::any_of(network.ranges, [](const AddressRange& range) { return range.per_node.has_value(); });
}

// Returns "rail 0: 7" for each slice of the network. Leaves out rails whose netdevs are in other network namespaces.
Result<std::vector<std::string>> indexes_by_address(const Config& config, const Network& network,
                                                    const NodeSettings& node) {
  std::vector<std::string> indexes;
  for (const auto& [rail, own] : TRY(seen_rails(config, network, node))) {
    const auto read_own = [&addresses = own]() -> Result<std::vector<Address>> { return addresses; };
    TRY(node_ranges(config, network, rail, read_own));
    for (const AddressRange& range : network.ranges) {
      if (!range.per_node || !range.is_for(rail)) continue;
      for (const Address& address : own) {
        const auto index = slice_with(range, address);
        if (index) indexes.push_back(fmt::format("rail {}: {}", rail, *index));
        if (index) break;
      }
    }
  }
  return indexes;
}

// Checks that each slice of the network can be determined. Returns "rail 0: 7" for each slice that is found by an
// address. Errors: those of node_ranges() and slice_of().
Result<std::vector<std::string>> resolve_slices(const Config& config, const Network& network,
                                                const NodeSettings& node) {
  const auto none = []() -> Result<std::vector<Address>> { return std::vector<Address>(); };
  // The addresses of netdevs are read only if the node's index comes from an address. Netdevs in other network
  // namespaces are skipped.
  if (config.node_index.value_or(NodeIndex()).by == NodeIndex::By::kAddress)
    return indexes_by_address(config, network, node);
  std::set<unsigned> rails;
  for (const AddressRange& range : network.ranges)
    if (range.per_node) rails.insert(range.rail.value_or(0));
  for (const unsigned rail : rails)
    TRY(node_ranges(config, network, rail, none));
  for (const auto* range : {&network.vf_macs, &network.vf_guids}) {
    if (!*range || !(*range)->per_node) continue;
    const auto slice = slice_of(**range, TRY(node_number(config)));
    if (!slice) return base::wrap(slice.error(), fmt::format("network `{}`", network.name));
  }
  return std::vector<std::string>();
}

// Returns the text for the log with the index of this node, for example "17 from NODE_NAME gpu-17"; empty: no network
// needs an index. by_address: from slice_problems().
std::string index_text(const Config& config, const std::vector<std::string>& by_address) {
  if (!config.node_index ||
      std::ranges::none_of(config.networks, [](const auto& one) { return is_sliced(one.second); }))
    return "";
  if (config.node_index->by == NodeIndex::By::kAddress)
    return fmt::format("by address: {}", by_address.empty() ? "no netdev is visible" : base::join(by_address, ", "));
  const auto number = node_number(config);
  if (!number) return "";
  const char* name = std::getenv(kNodeName);
  if (config.node_index->is_by_name() && name)
    return fmt::format("{} from NODE_NAME {}", *number, base::printable(name));
  return fmt::format("{}", *number);
}

// Returns a warning if other numbers in the name of the node do not count.
std::optional<ConfigProblem> warning_of_name(const Config& config, const std::string& file) {
  const char* name = std::getenv(kNodeName);
  if (!config.node_index || config.node_index->by != NodeIndex::By::kName || !name || !has_several_numbers(name))
    return std::nullopt;
  return ConfigProblem{
      file, 0,
      fmt::format("`node_index`: the last number of NODE_NAME `{}` is the index, and the numbers before "
                  "it do not count",
                  base::printable(name)),
      kSeveralNumbersRemedy, false};
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
  if (first_error(applied.problems)) return checked;
  std::vector<std::string> by_address;
  for (ConfigProblem& problem : slice_problems(parsed.config, node, source, &by_address))
    applied.problems.push_back(std::move(problem));
  if (first_error(applied.problems)) return checked;
  applied.index = index_text(parsed.config, by_address);
  if (auto warning = warning_of_name(parsed.config, source); warning && !applied.index.empty())
    applied.problems.push_back(std::move(*warning));
  const auto is_there = [&](const ConfigText& one) { return one.is_clusters && one.text == *text; };
  const bool same = std::ranges::any_of(present.texts, is_there);
  applied.outcome = same ? AppliedConfig::Outcome::kSame : AppliedConfig::Outcome::kDue;
  checked.would_have = config_summary(texts, parsed.config);
  checked.text = std::move(*text);
  return checked;
}

}  // namespace

std::vector<ConfigProblem> slice_problems(const Config& config, const NodeSettings& node, const std::string& file,
                                          std::vector<std::string>* by_address) {
  Problems problems;
  for (const auto& [name, network] : config.networks) {
    if (!is_sliced(network)) continue;
    auto resolved = resolve_slices(config, network, node);
    if (resolved) {
      if (by_address) std::ranges::move(*resolved, std::back_inserter(*by_address));
      continue;
    }
    problems.push_back(problem_of(file, resolved.error(), "correct `node_index`, or the network's `addresses`"));
    problems.back().message = fmt::format("`networks.{}`: {}", name, resolved.error().message);
  }
  return problems;
}

AppliedConfig check_cluster_config(const std::string& directory, const NodeSettings& node) {
  return check(directory, node).applied;
}

// The write is the last step, so that each error leaves the file unchanged. Before the write, applied.has describes the
// old configuration. The directory is locked only for a write, because the lock file wakes programs that watch the
// directory.
AppliedConfig apply_cluster_config(const std::string& directory, const NodeSettings& node) {
  const std::string& file = node.config.cluster;
  const std::string place = base::parent_of(file);
  auto opened = open_cluster_directory(place);
  Checked checked = check(directory, node);
  const auto refuse = [&](const Error& error) {
    checked.applied.outcome = AppliedConfig::Outcome::kRefused;
    checked.applied.problems.push_back(
        problem_of(file, error, "correct the cause and run `rdma-hook config apply` again"));
    return std::move(checked.applied);
  };
  if (!opened) {
    // If the directory is missing, `problems` has the same cause again for each file in the directory.
    checked.applied.problems.clear();
    return refuse(opened.error());
  }
  if (checked.applied.outcome != AppliedConfig::Outcome::kDue) {
    remove_stale_lock(place);
    return std::move(checked.applied);
  }
  const auto lock = lock_directory(place, std::move(*opened));
  if (!lock) return refuse(lock.error());
  // Compares the file again: another call can have written it before this call had the lock.
  checked = check(directory, node);
  if (!lock->note.empty())
    checked.applied.problems.push_back({file, 0, lock->note, "end that process; `lslocks` names it", false});
  if (checked.applied.outcome != AppliedConfig::Outcome::kDue) return std::move(checked.applied);
  if (const auto written = write_node_file("", file, checked.text); !written) return refuse(written.error());
  checked.applied.outcome = AppliedConfig::Outcome::kWritten;
  checked.applied.has = std::move(checked.would_have);
  return std::move(checked.applied);
}

}  // namespace hook
