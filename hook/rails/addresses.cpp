#include "hook/rails/addresses.hpp"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <utility>

#include "fabric/read_network.hpp"
#include "hook/rails/address/ipam.hpp"
#include "hook/rails/address/node_ranges.hpp"
#include "hook/rails/address/pool.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

using Keys = std::set<std::string>;

IpamCall call_for(const RailRecord& rail, IpamCall::Command command, const NetworkRecord& record) {
  IpamCall call;
  call.command = command;
  call.plugin = rail.lease->plugin;
  call.network = rail.lease->network;
  const auto ipam = parse_json(rail.lease->ipam, "ipam");
  if (ipam) call.ipam = *ipam;
  call.container_id = record.key;
  call.netns = record.netns.path;
  call.ifname = rail.lease->ifname;
  call.args = rail.lease->args;
  return call;
}

using Directories = std::vector<std::string>;

constexpr const char* kDebiansPlugins = "/usr/lib/cni";

void add_program(std::vector<IpamProgram>& programs, const IpamLease& lease, const Directories& directories,
                 bool may_allocate) {
  auto ipam = parse_json(lease.ipam, "ipam");
  if (ipam) programs.push_back({lease.plugin, lease.network, *std::move(ipam), directories, may_allocate});
}

// Returns the directories in which the plugin of a recorded lease is searched, the directories of its network first.
// Records name no directory: the main process, which must not execute programs, writes records, so a record must not
// choose the program that the helper executes as root.
Directories plugin_directories(const Config* config, const std::string& network) {
  Directories directories;
  const auto add = [&](const std::string& directory) {
    if (std::ranges::find(directories, directory) == directories.end()) directories.push_back(directory);
  };
  if (const Network* const own = config ? find_network(*config, network) : nullptr) add(own->ipam_dir);
  for (const auto& entry : config ? config->networks : decltype(config->networks)())
    add(entry.second.ipam_dir);
  add(kIpamDirectory);
  add(kDebiansPlugins);
  return directories;
}

IpamLease lease_of(const Network& network, const std::string& ifname = {}, const std::string& args = {}) {
  return {network.ipam_plugin, network.name, *network.ipam, ifname, args};
}

Error no_helper(const std::string& plugin) {
  return Error{fmt::format("cannot run the IPAM plugin `{}`: this process has no helper that executes plugins", plugin),
               0, "run `rdma-hook recover`"};
}

Result<void> take_leases(IpamHelper* ipam, NetworkRecord& record) {
  std::vector<RailRecord*> rails;
  std::vector<IpamCall> calls;
  for (RailRecord& rail : record.rails) {
    if (!rail.lease || !rail.rail.addresses.empty()) continue;
    if (!ipam) return no_helper(rail.lease->plugin);
    rails.push_back(&rail);
    calls.push_back(call_for(rail, IpamCall::Command::kAdd, record));
  }
  if (calls.empty()) return {};
  // All plugins are called at once, because each can take seconds.
  const auto results = ipam->run(calls);
  for (std::size_t i = 0; i < rails.size(); ++i) {
    // A roll back also releases the leases of plugins that succeeded, because the record has the leases of all plugins
    // (note_leases()).
    if (!results[i]) return results[i].error();
    rails[i]->rail.addresses = results[i]->addresses;
    if (rails[i]->rail.addresses.empty())
      return make_error("the IPAM plugin `{}` returned no address for `{}`", calls[i].plugin, calls[i].ifname);
  }
  return {};
}

// The least time for a lock or a plugin, even after the deadline: a lock is held only for microseconds, and a plugin
// answers soon.
constexpr int kShortestMs = 1000;
constexpr int kLongestMs = 10000;

int patience_until(Deadline deadline) {
  return std::max(ms_until(deadline, kLongestMs), kShortestMs);
}

using Taken = Result<std::vector<RailAddress>>;

bool is_used_up(const Taken& taken) {
  return !taken && taken.error().code == EADDRNOTAVAIL;
}

// Calls take(). If the range is used up, releases the addresses of one stale grant of this network after the other,
// until take() succeeds.
Taken take_or_release(const std::function<Taken()>& take, const std::string& network, const std::string& key,
                      const Ledger& ledger, const std::string& ledger_directory) {
  auto taken = take();
  const auto owners = is_used_up(taken) ? TRY(address_owners(ledger_directory, network)) : Keys();
  for (auto owner = owners.begin(); owner != owners.end() && is_used_up(taken); ++owner) {
    // The grant of `key` is skipped, because it is in use. Another grant that is in use or cannot be released keeps its
    // addresses.
    const auto released =
        *owner != key ? release_addresses(ledger, ledger_directory, *owner, Deadline()) : Result<bool>(false);
    if (released.has_value() && *released) taken = take();
  }
  return taken;
}

Result<void> take_for_functions(const Config& config, const Ledger& ledger, const std::string& ledger_directory,
                                NetworkRecord& record) {
  std::optional<AddressPool> pool;
  for (RailRecord& rail : record.rails) {
    const Network* network = find_network(config, rail.network);
    // Only rails with a recorded VF (host.pf) get a MAC address or GUIDs. take_vf_values() keeps values that an earlier
    // call recorded.
    if (!network || (!network->vf_macs && !network->vf_guids) || rail.host.pf.empty()) continue;
    if (!pool) pool = TRY(AddressPool::open(ledger_directory));
    const auto take = [&](const std::vector<AddressRange>& ranges) {
      // All networks allocate MAC addresses and GUIDs from one set (kVfValues), so that two networks cannot allocate
      // the same value.
      const auto once = [&] { return pool->take(kVfValues, rail.rail.rail, 0, ranges, record.key); };
      return take_or_release(once, kVfValues, record.key, ledger, ledger_directory);
    };
    TRY_VOID(take_vf_values(config, *network, take, rail.rail));
  }
  return {};
}

Result<void> take_from_ranges(const Config& config, const Ledger& ledger, const std::string& ledger_directory,
                              NetworkRecord& record) {
  std::optional<AddressPool> pool;
  std::map<std::pair<std::string, unsigned>, unsigned> children;
  for (RailRecord& rail : record.rails) {
    const Network* network = find_network(config, rail.network);
    // Rails that have addresses already are counted too, so that the number of a child does not depend on which
    // children are new.
    const unsigned nth = children[{rail.network, rail.rail.rail}]++;
    if (!network || network->ranges.empty() || !rail.rail.addresses.empty()) continue;
    if (!pool) pool = TRY(AddressPool::open(ledger_directory));
    const auto own = [&]() -> Result<std::vector<fabric::Address>> {
      return addresses_on(TRY(fabric::netlink::read_netdevs()), rail.rail.host);
    };
    const auto ranges = TRY(node_ranges(config, *network, rail.rail.rail, own));
    const auto take = [&] { return pool->take(rail.network, rail.rail.rail, nth, ranges, record.key); };
    rail.rail.addresses = TRY(take_or_release(take, rail.network, record.key, ledger, ledger_directory));
  }
  return {};
}

}  // namespace

const Network* find_network(const Config& config, const std::string& name) {
  const auto found = config.networks.find(name);
  return found == config.networks.end() ? nullptr : &found->second;
}

std::vector<IpamProgram> ipam_programs(const Config* config, const std::string& ledger_directory) {
  std::vector<IpamProgram> programs;
  for (const auto& entry : config ? config->networks : decltype(config->networks)())
    if (entry.second.ipam) add_program(programs, lease_of(entry.second), {entry.second.ipam_dir}, true);
  if (!NetworkRecordStore::has_any(ledger_directory)) return programs;
  // A record that cannot be read is skipped, because it must not prevent a container's start. Its leases are released
  // later.
  const auto store = NetworkRecordStore::open(ledger_directory);
  const auto keys = store ? store->keys() : Result<std::vector<std::string>>(store.error());
  for (const std::string& key : keys ? *keys : std::vector<std::string>()) {
    const auto record = store->read(key);
    if (!record || !*record) continue;
    for (const RailRecord& rail : (*record)->rails)
      if (rail.lease) add_program(programs, *rail.lease, plugin_directories(config, rail.lease->network), false);
  }
  return programs;
}

void note_leases(const Config& config, const std::string& args, NetworkRecord& record) {
  for (RailRecord& rail : record.rails) {
    const Network* network = find_network(config, rail.network);
    if (!network || !network->ipam || rail.lease || !rail.rail.addresses.empty()) continue;
    rail.lease = lease_of(*network, rail.rail.name, args);
  }
}

Result<void> take_addresses(const Config& config, const Ledger& ledger, const std::string& ledger_directory,
                            IpamHelper* ipam, NetworkRecord& record) {
  TRY_VOID(take_for_functions(config, ledger, ledger_directory, record));
  TRY_VOID(take_from_ranges(config, ledger, ledger_directory, record));
  return take_leases(ipam, record);
}

Result<void> release_rail_addresses(const std::string& ledger_directory, IpamHelper* ipam, const NetworkRecord& record,
                                    std::vector<RailRecord>& rails, Deadline deadline) {
  std::vector<AddressPool::NetworkRail> places;
  std::vector<RailRecord*> leased;
  std::vector<IpamCall> calls;
  for (RailRecord& rail : rails) {
    // A rail with a lease can also have a MAC address or GUIDs from a range (kVfValues).
    if (!rail.host.pf.empty()) places.push_back({kVfValues, rail.rail.rail});
    if (!rail.lease) {
      places.push_back({rail.network, rail.rail.rail});
      continue;
    }
    leased.push_back(&rail);
    calls.push_back(call_for(rail, IpamCall::Command::kDel, record));
  }
  Result<void> first;
  if (!places.empty()) {
    const auto pool = AddressPool::open(ledger_directory, patience_until(deadline));
    first = pool ? pool->release_grant(record.key, places) : pool.error();
  }
  if (calls.empty()) return first;
  if (!ipam) {
    keep_first(first, no_helper(calls.front().plugin));
    return first;
  }
  const auto results = ipam->run(calls, patience_until(deadline));
  for (std::size_t i = 0; i < leased.size(); ++i) {
    if (results[i]) {
      leased[i]->lease.reset();
    } else {
      keep_first(first, results[i].error());
    }
  }
  return first;
}

Result<Keys> address_owners(const std::string& ledger_directory, const std::string& network) {
  const auto pool = TRY(AddressPool::open(ledger_directory));
  Keys keys;
  for (const auto& [where, key] : TRY(pool.list()))
    if (network.empty() || where.starts_with(network + "/")) keys.insert(key);
  return keys;
}

Result<bool> release_addresses(const Ledger& ledger, const std::string& ledger_directory, const std::string& key,
                               Deadline deadline) {
  // While the record of the rails exists, the rails' netdevs can have the addresses. The ledger must first end the
  // rails, which removes the record.
  bool is_record_absent = false;
  const auto release_grant = [&]() -> Result<void> {
    is_record_absent = TRY(NetworkRecordStore::read_presence(ledger_directory, key)) == Presence::kAbsent;
    if (!is_record_absent) return {};
    return TRY(AddressPool::open(ledger_directory, patience_until(deadline))).release_grant(key, {});
  };
  return TRY(ledger.release(key, deadline, release_grant)) && is_record_absent;
}

}  // namespace hook
