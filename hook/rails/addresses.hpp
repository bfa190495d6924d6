// Allocates and releases the addresses of rails: from the ranges of config.json, or by a CNI plugin.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

class IpamHelper;
struct IpamProgram;

// Returns the network of this name; nullptr: config.json does not have it (any more).
const Network* find_network(const Config& config, const std::string& name);

// Returns the programs for IpamHelper::start(): the plugins of the configuration and of recorded leases. An older
// configuration may have allocated a lease, so that its plugin is searched in all directories of the configuration, and
// in those of CNI and Debian.
// config: nullptr: the configuration cannot be read. Skips a record that cannot be read: its leases are not released.
std::vector<IpamProgram> ipam_programs(const Config* config, const std::string& ledger_directory);
// Adds plugin and CNI_ARGS of the future lease to each rail of the record. The record is written before the plugin is
// called, so that a later call can release the lease. args: cni_args().
void note_leases(const Config& config, const std::string& args, NetworkRecord& record);

// Allocates the addresses of rails that have none yet, and the values that VFs get from ranges. If a range is used up,
// releases the addresses of one stale grant after the other (release_addresses()) until an address is free.
// Locks: the caller holds no lock of the ledger.
// Errors: a range is used up; a plugin fails.
Result<void> take_addresses(const Config& config, const Ledger& ledger, const std::string& ledger_directory,
                            IpamHelper* ipam, NetworkRecord& record);
// Releases the addresses and leases of these rails. Removes each released lease from its rail. Continues after an error
// and returns the first one.
// deadline: for locks and plugins, which get at least one second each.
Result<void> return_addresses(const std::string& ledger_directory, IpamHelper* ipam, const std::string& key,
                              const NetnsIdentity& netns, std::vector<RailRecord>& rails, Deadline deadline);

// Returns the keys that have addresses of ranges, those of stale grants included. network: only of this network; empty:
// of all.
Result<std::set<std::string>> address_owners(const std::string& ledger_directory, const std::string& network = {});
// Releases the rails and addresses of this key if it has no grant that is held (Ledger::release()). Returns false if it
// has one, or if leases of it could not be released.
Result<bool> release_addresses(const Ledger& ledger, const std::string& ledger_directory, const std::string& key,
                               Deadline deadline);

}  // namespace hook
