// Where the addresses of rails come from: config.json's ranges, or a CNI plugin.
#pragma once

#include <string>

#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/rails/record/network_record.hpp"

namespace hook {

class IpamHelper;

// nullptr: config.json has none of this name (any more).
const Network* find_network(const Config& config, const std::string& name);

// Notes in the record from which plugin a rail will have its lease, so that it is known before the plugin is asked.
void note_leases(const Config& config, NetworkRecord& record);

// Fills the addresses of rails that have none yet. Errors: a range that is used up, what a plugin says.
fabric::Result<void> take_addresses(const Config& config, const std::string& ledger_directory, IpamHelper* ipam,
                                    NetworkRecord& record);
// Gives back what these rails have of ranges and plugins. Leases that could not be given back stay in the rails.
fabric::Result<void> return_addresses(const std::string& ledger_directory, IpamHelper* ipam, const std::string& key,
                                      const NetnsIdentity& netns, std::vector<RailRecord>& rails);

}  // namespace hook
