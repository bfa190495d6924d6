// Steps of the ledger's operations. The caller holds the key's lock (KeyLock), unless a function states otherwise.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/ledger/index.hpp"
#include "hook/ledger/locks.hpp"
#include "hook/ledger/store.hpp"

namespace hook {

// Adds a user with these HCAs and unfinished steps of `worker`. If the user exists, these HCAs are added to its steps.
// If the process of `worker` has already begun steps of this user, their worker stays. Returns the worker of the steps;
// nullopt: the user is unchanged and has these HCAs already. Errors (EBUSY): the grant has a user of this key with
// another process that is not proven gone (check_ended()).
Result<std::optional<StepWorker>> add_steps(StoredGrant& grant, GrantUser user, const std::vector<PlannedHca>& hcas,
                                            const StepWorker& worker);

// Reads the grant, rolls back the steps of dead workers, drops a pod's dead tokens, and releases a stale grant. Returns
// the result; nullopt: there is no grant any more. binding: the key of a token that counts as alive although its
// requester is gone.
Result<std::optional<StoredGrant>> refresh(const LedgerFiles& files, const std::string& key,
                                           std::string_view binding = {});
// Ends the grant: from here on its HCAs are free. Returns the name of the file in pending/ that lists the index entries
// to remove.
Result<std::string> begin_return(const LedgerFiles& files, const StoredGrant& grant);
// Removes these index entries and the file. Also finishes the release of a process that was killed after
// begin_return().
Result<void> finish_return(const LedgerFiles& files, const std::string& name, const StoredGrant& grant);
// Releases the grant: undoes its effects (GrantEffects), then begin_return() and finish_return(). Adds it to
// files.released.
Result<void> return_grant(const LedgerFiles& files, const StoredGrant& grant);
// Writes the grant without the user that left. First undoes the effects on HCAs that the grant no longer holds. Instead
// calls return_grant() if no user is left, unless the owner is a pod and an HCA is left. before: the grant with the
// user; it is added to files.released.
Result<void> write_left(const LedgerFiles& files, const StoredGrant& before, std::optional<StoredGrant>& grant);

// Checks an index entry. Returns false and removes the entry if no living grant holds the HCA. Corrects an entry with
// wrong units.
// Locks: takes the lock of the entry's key, so the caller holds no key's lock. The same holds for the next two
// functions.
Result<bool> check_entry(const LedgerFiles& files, const std::string& hca, const IndexEntry& entry,
                         int timeout_ms = kKeyLockTimeoutMs);
// Returns the grant of this key if it holds the HCA exclusively. Otherwise removes the exclusive link if it names this
// key, and returns nullopt.
Result<std::optional<StoredGrant>> check_exclusive(const LedgerFiles& files, const std::string& hca,
                                                   const std::string& key, int timeout_ms = kKeyLockTimeoutMs);
// Adds the index entries of this HCA for this grant, if the grant holds it. Locks: the caller holds the HCA's lock too.
Result<void> restore_entry(const LedgerFiles& files, const std::string& hca, const std::string& key,
                           int timeout_ms = kKeyLockTimeoutMs);

}  // namespace hook
