// The ledger's index: for each HCA, who holds it, as names of empty files and one link, so that a question about an HCA
// costs one system call or one directory, and no grant is read unless the answer depends on it.
//
//   DIR/hca/DEVICE/holders/KEY@UNITS
//   DIR/hca/DEVICE/exclusive -> KEY     a link that is only ever read: made atomically, and never over another one
//
// DEVICE is booked_as(), which every `hca` here is.
// All are reached by path from DIR/hca: only root can write below DIR, and could write the names as well.
//
// And for each id of a container or a pod, the grants that have to do with it:
//
//   DIR/ids/DIGEST/KEY                  a link that is only ever a name
//
// An entry is made as one of the steps that bring the id, when the grant lists them, so that they are undone together;
// and removed after the grant that had it: recover() removes what a process leaves that is killed in between.
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

// nullopt: the name is not of that form.
std::optional<IndexEntry> parse_index_entry(std::string_view name);
std::string index_entry_name(std::string_view key, unsigned units);

// Makes the index say `after` of this key, instead of `before` (every claim that may have left a trace). Idempotent.
// The caller holds the key's lock, and where an HCA is in `after` but was not held before, that HCA's too. replaces: a
// key whose exclusive link this one takes over. Errors: an exclusive link that names another key.
Result<void> set_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& before,
                       const std::vector<PlannedHca>& after, std::string_view replaces = {});

// The second half of set_index(): removes the entries of these claims, unless `keep` has the same.
Result<void> remove_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& claims,
                          const std::vector<PlannedHca>& keep);

// Removes one entry; success when it is not there.
Result<void> remove_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned units);

// Puts the right entry in the place of a wrong one of the same grant; whether that was its only one.
Result<bool> correct_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned wrong,
                           unsigned units);

// The key that the exclusive link names; nullopt: there is no link. Errors: EBADMSG, it names no grant.
Result<std::optional<std::string>> exclusive_key(const LedgerFiles& files, const std::string& hca);
// Removes the link only if it names this key. The caller holds the key's lock, so that no process can put another in
// its place in between.
Result<void> remove_exclusive(const LedgerFiles& files, const std::string& hca, std::string_view key);

// Makes the link name this key, whatever it names; empty: removes it. The caller holds the HCA's lock.
Result<void> replace_exclusive(const LedgerFiles& files, const std::string& hca, const std::string& key);

// Units that others than `key` hold, exact up to `most`: when the sum of the entries reaches it, each is asked for
// with is_valid (which removes what is stale), until as many are sure or all are read.
using IsValid = std::function<bool(const IndexEntry&)>;
Result<unsigned> count_others(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned most,
                              const IsValid& is_valid);
// All of them, for recover().
Result<std::vector<IndexEntry>> list_entries(const LedgerFiles& files, const std::string& hca);

// Makes the entries of the ids that `after` has and `before` has not. The caller holds the key's lock.
Result<void> add_ids(const LedgerFiles& files, const StoredGrant& after, const std::optional<StoredGrant>& before);
// Removes the entries of the ids that `before` has and `after` has not. The caller holds the key's lock.
Result<void> remove_ids(const LedgerFiles& files, const StoredGrant& before, const std::optional<StoredGrant>& after);

// The keys that an id leads to; some may be stale.
Result<std::vector<std::string>> keys_of_id(const LedgerFiles& files, std::string_view id);

std::set<std::string> ids_of(const std::optional<StoredGrant>& grant);
// What grants have, by their keys.
using IdsOfKeys = std::map<std::string, std::set<std::string>>;
// Makes the index say what all grants have. Only where it does not is the lock of a key taken, of one at a time, within
// timeout_ms each. Those of `unread` stay. Errors: the first; the rest is put right.
Result<void> recover_ids(const LedgerFiles& files, const IdsOfKeys& grants, const std::set<std::string>& unread,
                         int timeout_ms);

}  // namespace hook
