// The ledger's index: DIR/hca, DIR/ids and DIR/lent (ledger.hpp). A lookup costs one system call or the list of one
// directory, and reads a grant only if the answer depends on that grant.
//
// The link `exclusive` (HcaState) is read by readlink(2) and replaced by write_state() only. Each HCA has the link,
// also a free one. So a link that was removed by hand does not look like a free HCA: the decision about the HCA then
// reads all grants and makes its index again (rebuild_hca()). The decision does the same if the link is "shared" and a
// request for mode exclusive finds no entry. Only DIR/hca shows whether an HCA without a directory was never held
// (LedgerFiles::begin_hca()). One removed entry of several grants that share an HCA is restored by recover() alone:
// until then, it does not count for a limit.
//
// DEVICE is the HCA's device, or its name if it has no device (booked_as()). Each parameter `hca` below is such a
// DEVICE. All files are reached by path from DIR/hca, without a check of each directory on the way, because only root
// can write below DIR.
//
// The names of the links below DIR/ids and DIR/lent count; their targets are not read. A release reads all grants to
// prove that no user names a view with copies (is_lending_view()), and only if the view has no entry in DIR/lent.
// A program of an older version makes and removes no such entry. Then an entry stays, or is missing, until recover().
//
// DIR/ids also lists the grants that use HCAs through a claim, by the key of the claim, and the claims of a pod, by the
// pod's UID. DIR/hca has no entry of an HCA that a grant uses through a claim: the claim's own entry counts.
//
// The entry of an id or view is made after the unfinished change that adds the id is written into the grant, so a
// roll-back of the change also removes the entry. Ledger::note_pod() changes a grant in one write, and makes the entry
// before that write. An entry is removed after the grant has lost the id or view. If a process is killed before the
// removal, recover() removes the entry.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
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

// Changes the index entries of this key from `before` to `after`. before: all HCAs that may have an entry
// (all_claims()). Idempotent. replaces: the key of another grant; an exclusive link that names it then names this key.
// Locks: the caller holds the key's lock, and the lock of each HCA in `after` that the key did not hold before.
// Errors: an exclusive link names a third key; an entry cannot be written or removed.
Result<void> set_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& before,
                       const std::vector<PlannedHca>& after, std::string_view replaces = {});

// Removes the key's entries and exclusive links for the HCAs in `claims`, except those that the HCAs in `keep` need.
// The second half of set_index().
Result<void> remove_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& claims,
                          const std::vector<PlannedHca>& keep);

// Removes one entry. Succeeds if there is none.
Result<void> remove_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned units);

// Replaces an entry with wrong units by one with the right units. Returns false if the entry with the right units
// existed already, so that the caller does not count this grant twice.
Result<bool> correct_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned wrong,
                           unsigned units);

// The state of an HCA that its link `exclusive` shows.
struct HcaState {
  enum class Kind {
    kUnknown,    // there is no link: removed by hand, or not made by an earlier version
    kFree,       // -> "none": grants do not hold the HCA
    kShared,     // -> "shared": grants may hold the HCA, but none exclusively
    kExclusive,  // -> KEY: this grant holds the HCA exclusively, or has ended
  };
  Kind kind = Kind::kUnknown;
  std::string key = {};

  // Returns the key of the grant that holds the HCA exclusively by its link; nullopt: there is none.
  std::optional<std::string> exclusive_key() const;
};
// Errors: EBADMSG, the file is no link or its target is not a key.
Result<HcaState> read_state(const LedgerFiles& files, const std::string& hca);
// Returns the state, or the error of read_state(), of each HCA that was held since the boot, except the HCAs in
// `except`. Leaves out names that are no directory. Errors: DIR/hca cannot be listed.
Result<std::map<std::string, Result<HcaState>>> read_states(const LedgerFiles& files,
                                                            const std::set<std::string>& except);
// Replaces the link, whatever it named before. kUnknown: removes it. Locks: the caller holds the HCA's lock.
Result<void> write_state(const LedgerFiles& files, const std::string& hca, const HcaState& state);
// If the link names this key, replaces it by the state `then`. Keeps a damaged link, which recover() repairs.
// Locks: the caller holds the key's lock, so that no other process can replace the link between its read and its
// replacement.
Result<void> remove_exclusive(const LedgerFiles& files, const std::string& hca, std::string_view key,
                              HcaState::Kind then);

using IsValid = std::function<bool(const IndexEntry&)>;
// Returns the units of this HCA in the entries of other keys, stale entries included. If their sum reaches
// bounds.least, checks the entries with is_valid(), which removes stale ones, and goes on with the valid ones. So a
// result of bounds.least or more counts valid entries only. Stops counting at bounds.most. bounds: both are at least 1.
// Returns nullopt if the directory of the entries is missing.
Result<std::optional<unsigned>> count_others(const LedgerFiles& files, const std::string& hca, std::string_view key,
                                             UnitBounds bounds, const IsValid& is_valid);
// Returns all entries of an HCA, also stale ones.
Result<std::vector<IndexEntry>> list_entries(const LedgerFiles& files, const std::string& hca);

// Adds the grant to the index of each id and view that `after` has and `before` has not. Locks: the caller holds the
// key's lock.
Result<void> add_ids(const LedgerFiles& files, const StoredGrant& after, const std::optional<StoredGrant>& before);
// Removes the grant from the index of each id and view that `before` has and `after` has not. Adds these views to
// files.left_views. Locks: the caller holds the key's lock.
Result<void> remove_ids(const LedgerFiles& files, const StoredGrant& before, const std::optional<StoredGrant>& after);

// Returns whether the index has a list for a container or pod id.
Result<bool> has_list_of_id(const LedgerFiles& files, std::string_view id);
// Returns the keys of the grants that the index lists for a container or pod id. Some of these grants may be gone or
// may no longer have the id.
Result<std::vector<std::string>> keys_of_id(const LedgerFiles& files, std::string_view id);

// Returns the keys of the grants that the index lists for a view with copies. Errors: those of keys_of_id().
Result<std::vector<std::string>> keys_of_view(const LedgerFiles& files, const std::string& view);

// Returns the directories of the index that list the grant, as paths below DIR: those for the ids of its users and of
// their pods, for their views with copies, for the claims that the grant uses, and for the pods of a claim.
std::set<std::string> lists_of(const std::optional<StoredGrant>& grant);
// The result of lists_of() for each grant, by its key.
using ListsOfKeys = std::map<std::string, std::set<std::string>>;
// Corrects the index of ids and views so that it agrees with all grants. Locks a key only where index and grant do not
// agree, one key at a time, and waits at most timeout_ms for each. unread: keys of grants that could not be read; their
// entries stay. Returns the first error. An entry that cannot be corrected does not stop the rest.
Result<void> recover_lists(const LedgerFiles& files, const ListsOfKeys& grants, const std::set<std::string>& unread,
                           int timeout_ms);

}  // namespace hook
