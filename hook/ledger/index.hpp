// The ledger's index. For each HCA, it names the grants that hold the HCA, by empty files and one link. A lookup costs
// one system call or the list of one directory. It reads a grant only if the answer depends on that grant.
//
//   DIR/hca/DEVICE/holders/KEY@UNITS
//   DIR/hca/DEVICE/exclusive -> KEY     read by readlink(2) only; replaced by replace_exclusive() only
//
// DEVICE is booked_as(), and so is each parameter `hca` below. All files are reached by path from DIR/hca, without a
// check of each directory on the way, because only root can write below DIR.
//
// For each id of a container or a pod, the index names the grants with a user of this id:
//
//   DIR/ids/DIGEST/KEY                  a link of which only the name counts
//
// The entry of an id is made after the grant lists the steps that bring the id, so that both are undone together.
// Ledger::note_pod() has no steps, and makes the entry before it writes the grant. An entry is removed after the grant
// has lost the id. If a process is killed in between, recover() removes the entry.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

struct IndexEntry {
  std::string key;
  unsigned units = 1;
};

// Parses KEY@UNITS; nullopt: the name has another form.
std::optional<IndexEntry> parse_index_entry(std::string_view name);
std::string index_entry_name(std::string_view key, unsigned units);

// Changes the index entries of this key from `before` (every claim that may have left an entry) to `after`. Idempotent.
// replaces: the key of another grant; an exclusive link that names it then names this key.
// Locks: the caller holds the key's lock, and the lock of each HCA in `after` that the key did not hold before.
// Errors: an exclusive link names a third key; an entry cannot be written or removed.
Result<void> set_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& before,
                       const std::vector<PlannedHca>& after, std::string_view replaces = {});

// Removes the entries and exclusive links of these claims, except those that `keep` needs. The second half of
// set_index().
Result<void> remove_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& claims,
                          const std::vector<PlannedHca>& keep);

// Removes one entry. Succeeds if there is none.
Result<void> remove_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned units);

// Replaces an entry with wrong units by the right one of the same grant. Returns true if the wrong entry was the
// grant's only one.
Result<bool> correct_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned wrong,
                           unsigned units);

// Returns the key that the exclusive link names; nullopt: there is no link. Errors: EBADMSG, the file is no link or its
// target is not a key.
Result<std::optional<std::string>> exclusive_key(const LedgerFiles& files, const std::string& hca);
// Removes the exclusive link if it names this key. Keeps a damaged link, which recover() repairs.
// Locks: the caller holds the key's lock, so that no other process can replace the link between its read and its
// removal.
Result<void> remove_exclusive(const LedgerFiles& files, const std::string& hca, std::string_view key);

// Makes the exclusive link name this key, whatever it named before. Empty key: removes the link.
// Locks: the caller holds the HCA's lock.
Result<void> replace_exclusive(const LedgerFiles& files, const std::string& hca, const std::string& key);

using IsValid = std::function<bool(const IndexEntry&)>;
// Returns the units that other keys hold, exact up to `most`. When the sum of the entries reaches `most`, checks each
// entry with is_valid(), which removes stale entries, until `most` units are certain or all entries are checked.
Result<unsigned> count_others(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned most,
                              const IsValid& is_valid);
// Returns all entries of an HCA, stale ones too.
Result<std::vector<IndexEntry>> list_entries(const LedgerFiles& files, const std::string& hca);

// Makes the entries of the ids that `after` has and `before` has not. Locks: the caller holds the key's lock.
Result<void> add_ids(const LedgerFiles& files, const StoredGrant& after, const std::optional<StoredGrant>& before);
// Removes the entries of the ids that `before` has and `after` has not. Locks: the caller holds the key's lock.
Result<void> remove_ids(const LedgerFiles& files, const StoredGrant& before, const std::optional<StoredGrant>& after);

// Returns the keys of an id; some may be stale.
Result<std::vector<std::string>> keys_of_id(const LedgerFiles& files, std::string_view id);

// Returns the ids of the grant's users and of their pods.
std::set<std::string> ids_of(const std::optional<StoredGrant>& grant);
// The ids of each grant, by its key.
using IdsOfKeys = std::map<std::string, std::set<std::string>>;
// Corrects the index of ids to match all grants. Locks a key only where index and grant do not agree, one key at a
// time, at most timeout_ms each. unread: keys of grants that could not be read; their entries stay. Errors: the first
// one. An entry that cannot be corrected does not stop the rest.
Result<void> recover_ids(const LedgerFiles& files, const IdsOfKeys& grants, const std::set<std::string>& unread,
                         int timeout_ms);

}  // namespace hook
