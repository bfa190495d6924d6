// The parts of which the ledger's operations (book, bind, leave, release, recover) consist. Locks: the caller holds the
// key's lock (KeyLock), unless a function states otherwise.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/ledger/index.hpp"
#include "hook/ledger/locks.hpp"
#include "hook/ledger/store.hpp"

namespace hook {

// Adds a user with these HCAs as steps, an unfinished change that `worker` makes. If the user exists, adds the HCAs to
// its steps. If the same process has already begun steps of this user, their first worker (with its change number)
// stays. Returns the worker that is now recorded; nullopt: the user has these HCAs already, and the grant is unchanged.
// Errors (EBUSY): the grant has this user with another process, and check_ended() cannot prove that the earlier user is
// gone.
Result<std::optional<StepWorker>> add_steps(StoredGrant& grant, GrantUser user, const std::vector<PlannedHca>& hcas,
                                            const StepWorker& worker);

// Reads the grant and brings it up to date: rolls back the unfinished changes (steps) of dead processes, removes a
// pod's tokens if the processes that requested HCAs for them are dead, and releases a stale grant. Returns the changed
// grant; nullopt: there is no grant any more. binding: key of a token that counts as alive, because its container is
// about to bind it.
Result<std::optional<StoredGrant>> refresh(const LedgerFiles& files, const std::string& key,
                                           std::string_view binding = {});
// Ends the grant: from here on its HCAs are free. Moves its record to pending/, and returns the new file name. The
// record there lists the index entries to remove.
Result<std::string> begin_release(const LedgerFiles& files, const StoredGrant& grant);
// Removes the index entries of the ended grant, then its file in pending/. name: from begin_release(). Also finishes
// the release of a process that was killed after begin_release().
Result<void> finish_release(const LedgerFiles& files, const std::string& name, const StoredGrant& grant);
// Releases the grant: ends its effects (GrantEffects), then begin_release() and finish_release(). Adds it to
// files.released. Locks: the caller holds the lock of the owner's key.
Result<void> release_stored_grant(const LedgerFiles& files, const StoredGrant& grant);
// Writes `grant`, from which a user was removed. First ends the effects (GrantEffects) on HCAs that the grant no
// longer holds. If no user is left, releases the grant instead; a pod's grant without users is released only if it has
// no HCA left. Adds `before`, the grant with that user, to files.released.
Result<void> write_left(const LedgerFiles& files, const StoredGrant& before, std::optional<StoredGrant>& grant);

// Checks an index entry. Returns false and removes the entry if its grant is gone or does not hold the HCA. Corrects an
// entry with wrong units.
// Locks: takes the lock of the entry's key, so the caller holds no key's lock. The same holds for check_exclusive() and
// restore_entry().
Result<bool> check_entry(const LedgerFiles& files, const std::string& hca, const IndexEntry& entry,
                         int timeout_ms = kUsualWait);
// Returns the grant of this key if it holds the HCA exclusively. Otherwise removes the HCA's exclusive link if it names
// this key, so that the state of the HCA is unknown, and returns nullopt.
Result<std::optional<StoredGrant>> check_exclusive(const LedgerFiles& files, const std::string& hca,
                                                   const std::string& key, int timeout_ms = kUsualWait);
// Adds the index entries of this HCA for this grant, if the grant holds the HCA. Locks: takes the key's lock; the
// caller holds the HCA's lock.
Result<void> restore_entry(const LedgerFiles& files, const std::string& hca, const std::string& key,
                           int timeout_ms = kUsualWait);
// Makes the index of this HCA again, from all grants. looked_at: receives the key of the grant that was read last, on
// error. Errors: a grant cannot be read, so that it may hold the HCA. Locks: those of restore_entry().
Result<void> rebuild_hca(const LedgerFiles& files, const std::string& hca, std::string& looked_at);

}  // namespace hook
