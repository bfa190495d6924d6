// The ledger's second index: for each id of a container or a pod, whose grants have to do with it.
//
//   DIR/ids/DIGEST/KEY      a link that is only ever a name
//
// An entry is made as one of the steps that bring the id, when the grant lists them, so that they are undone together;
// and removed after the grant that had it: recover() removes what a process leaves that is killed in between.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hook/ledger/files.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

// Makes the entries of the ids that `after` has and `before` has not. The caller holds the key's lock.
fabric::Result<void> add_ids(const LedgerFiles& files, const StoredGrant& after,
                             const std::optional<StoredGrant>& before);
// Removes the entries of the ids that `before` has and `after` has not. The caller holds the key's lock.
fabric::Result<void> remove_ids(const LedgerFiles& files, const StoredGrant& before,
                                const std::optional<StoredGrant>& after);

// The keys that an id leads to; some may be stale.
fabric::Result<std::vector<std::string>> keys_of_id(const LedgerFiles& files, std::string_view id);

std::set<std::string> ids_of(const std::optional<StoredGrant>& grant);
// What grants have, by their keys.
using IdsOfKeys = std::map<std::string, std::set<std::string>>;
// Makes the index say what all grants have. Only where it does not is the lock of a key taken, of one at a time, within
// timeout_ms each. Those of `unread` stay. Errors: the first; the rest is put right.
fabric::Result<void> recover_ids(const LedgerFiles& files, const IdsOfKeys& grants, const std::set<std::string>& unread,
                                 int timeout_ms);

}  // namespace hook
