// What the operations of the ledger are made of. The caller holds the key's lock (KeyLock).
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

// A user joins with these HCAs, its steps in the hands of `worker`; one that is there already goes on with them, in the
// change that its process has begun. Returns the worker that has them; nullopt: the user has all of it already. Errors
// (EBUSY): the grant has a user of this key with another process, which is not proven to have ended (check_ended()).
Result<std::optional<StepWorker>> add_steps(StoredGrant& grant, GrantUser user, const std::vector<PlannedHca>& hcas,
                                            const StepWorker& worker);

// The grant as it is once the steps of dead workers are undone, a pod's dead tokens are dropped and, if it has
// vanished, it is returned (nullopt). binding: the key of a token that counts though its requester is dead.
Result<std::optional<StoredGrant>> refresh(const LedgerFiles& files, const std::string& key,
                                           std::string_view binding = {});
// Ends the grant: from here on it is not held. Returns the name of the file in pending/ that lists what remains to be
// cleaned.
Result<std::string> begin_return(const LedgerFiles& files, const StoredGrant& grant);
// Cleans that rest, also after a process that was killed there.
Result<void> finish_return(const LedgerFiles& files, const std::string& name, const StoredGrant& grant);
// Both, once what the grant has beyond the ledger is undone (GrantEffects). Noted in files.released.
Result<void> return_grant(const LedgerFiles& files, const StoredGrant& grant);
// Undoes what the grant has beyond these HCAs when one of its users leaves; return_grant() if it has no more users and
// no HCAs of a pod. Writes the rest of it. before: as it was. Noted in files.released.
Result<void> write_left(const LedgerFiles& files, const StoredGrant& before, std::optional<StoredGrant>& grant);

// The caller holds no key's lock: these three take that of the key in question. False, and the entry is removed, if no
// living grant holds that HCA so.
Result<bool> check_entry(const LedgerFiles& files, const std::string& hca, const IndexEntry& entry,
                         int timeout_ms = kKeyLockTimeoutMs);
// The grant that the exclusive link of this HCA names; nullopt, and the link is removed, if none lives.
Result<std::optional<StoredGrant>> check_exclusive(const LedgerFiles& files, const std::string& hca,
                                                   const std::string& key, int timeout_ms = kKeyLockTimeoutMs);
// Makes the index say again that this grant holds this HCA, if it does. The caller holds the HCA's lock.
Result<void> restore_entry(const LedgerFiles& files, const std::string& hca, const std::string& key,
                           int timeout_ms = kKeyLockTimeoutMs);

}  // namespace hook
