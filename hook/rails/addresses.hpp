// Allocates and releases the addresses of rails, from the ranges of config.json or by a CNI plugin.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

class IpamHelper;
struct IpamProgram;

// Returns the network of this name; nullptr if the node's config.json has no network of this name.
const Network* find_network(const Config& config, const std::string& name);

// Returns the programs for IpamHelper::start(): the plugins of the configuration and of recorded leases. A lease can be
// from an older configuration, and does not name its directory. The plugin of a lease is therefore searched in all
// plugin directories of the configuration, and in the usual directories of CNI and Debian. Skips a record that cannot
// be read; its leases are then not released.
// config: nullptr if the configuration cannot be read.
std::vector<IpamProgram> ipam_programs(const Config* config, const std::string& ledger_directory);
// Adds a lease (plugin, CNI_ARGS) to each rail whose addresses a plugin will allocate: the rail's network has `ipam`,
// and the rail has neither lease nor address. The caller writes the record before it calls the plugin, so that a later
// call can release the lease.
// args: as cni_args() returns it.
void note_leases(const Config& config, const std::string& args, NetworkRecord& record);

// Allocates the addresses of rails that have none yet, and the MAC addresses and GUIDs that VFs get from ranges. If a
// range is used up, releases the addresses of one stale grant after the other (release_addresses()) until an address is
// free.
// Locks: the caller has no lock of the ledger.
// Errors: a range is used up; the node's index is unknown; a plugin fails; a rail needs a plugin and `ipam` is nullptr.
Result<void> take_addresses(const Config& config, const Ledger& ledger, const std::string& ledger_directory,
                            IpamHelper* ipam, NetworkRecord& record);
// Releases the addresses and leases of these rails, which are copies of rails of the record. Removes each released
// lease from its rail. Continues after an error and returns the first one. deadline: limit for locks and plugins. A
// lock or a plugin gets at least one second, even after the deadline. Errors: an address or a lease cannot be released;
// a rail has a lease and `ipam` is nullptr.
Result<void> release_rail_addresses(const std::string& ledger_directory, IpamHelper* ipam, const NetworkRecord& record,
                                    std::vector<RailRecord>& rails, Deadline deadline);

// Returns the keys of grants that have addresses, MAC addresses or GUIDs from ranges, even if the grant is stale or
// missing.
// network: leaves out all other networks; empty: returns the keys of all networks.
Result<std::set<std::string>> address_owners(const std::string& ledger_directory, const std::string& network = {});
// Releases the rails and addresses of this key, unless Ledger::release() finds that its grant is in use. Returns false
// if the grant is in use, or if rails or leases of the key stay in the record. The addresses then stay allocated.
Result<bool> release_addresses(const Ledger& ledger, const std::string& ledger_directory, const std::string& key,
                               Deadline deadline);

}  // namespace hook
