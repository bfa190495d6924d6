// The ledger's second index: for each id of a container or a pod, whose grants have to do with it.
//
//   DIR/ids/DIGEST/KEY      a link that is only ever a name
//
// An entry is made before the grant that has the id, and removed after the one that had it. DIR/ids as a whole appears
// with the entries of all grants that are there, so it holds for those of programs that knew no ids, too.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/ledger/ledger_files.hpp"
#include "hook/ledger/ledger_grant.hpp"

namespace hook {

// Makes the entries of the ids that `after` has and `before` has not. The caller holds the key's lock.
fabric::Result<void> add_ids(const LedgerFiles& files, const StoredGrant& after,
                             const std::optional<StoredGrant>& before);
// Removes the entries of the ids that `before` has and `after` has not. The caller holds the key's lock.
fabric::Result<void> remove_ids(const LedgerFiles& files, const StoredGrant& before,
                                const std::optional<StoredGrant>& after);

// The keys that an id leads to; some may be stale. nullopt: there is no index yet, so every grant may have the id.
fabric::Result<std::optional<std::vector<std::string>>> keys_of_id(const LedgerFiles& files, std::string_view id);

// Removes the entries without a grant that has their id, taking the lock of one key at a time, within timeout_ms each.
fabric::Result<void> recover_ids(const LedgerFiles& files, int timeout_ms);

}  // namespace hook
