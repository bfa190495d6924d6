// Where the addresses of rails come from: config.json's ranges, or a CNI plugin.
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

// nullptr: config.json has none of this name (any more).
const Network* find_network(const Config& config, const std::string& name);

// For IpamHelper::start(): the plugins of the configuration, and those of leases on record, which may be an older
// one's: looked for in the directories of the configuration and in those of CNI and of Debian. config: nullptr: none
// can be read. The leases of a record that cannot be read stay.
std::vector<IpamProgram> ipam_programs(const Config* config, const std::string& ledger_directory);
// Notes in the record from which plugin a rail will have its lease, and with which CNI_ARGS, so that it is known before
// the plugin is asked, and to whoever gives it back. args: cni_args().
void note_leases(const Config& config, const std::string& args, NetworkRecord& record);

// Fills the addresses of rails that have none yet, and what their functions get of ranges. When a range is used up,
// what grants have of it that are gone is taken back first, as release_addresses() does, one grant after the other
// until that is enough. The caller holds no lock of the ledger. Errors: a range that is used up, what a plugin says.
Result<void> take_addresses(const Config& config, const Ledger& ledger, const std::string& ledger_directory,
                            IpamHelper* ipam, NetworkRecord& record);
// Gives back what these rails have of ranges and plugins, until the deadline or a second longer. Leases that could not
// be given back stay in the rails. The error is the first, and keeps nothing else from being given back.
Result<void> return_addresses(const std::string& ledger_directory, IpamHelper* ipam, const std::string& key,
                              const NetnsIdentity& netns, std::vector<RailRecord>& rails, Deadline deadline);

// The keys that have addresses of ranges; network: only of this one. Of grants that are gone, too.
Result<std::set<std::string>> address_owners(const std::string& ledger_directory, const std::string& network = {});
// Takes back all that is left of this key, rails and addresses, if no grant of it is held (Ledger::release()). False:
// one is, or leases of it are.
Result<bool> release_addresses(const Ledger& ledger, const std::string& ledger_directory, const std::string& key,
                               Deadline deadline);

}  // namespace hook
