// Repairs the unfinished changes of killed processes (repair_pending) and releases stale grants (recover). Both
// functions take the lock of one grant at a time, so that hooks of other containers can continue, and read the grant
// again under its lock. An unfinished change does no harm (see the top of ledger.cpp), so if it cannot be repaired, no
// container is refused.
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/text.hpp"
#include "hook/ledger/absence.hpp"
#include "hook/ledger/changes.hpp"
#include "hook/ledger/index.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/ledger/record.hpp"
#include "hook/ledger/views.hpp"

namespace hook {
namespace {

Result<void> repair_released(const LedgerFiles& files, const std::string& name, const std::string& key) {
  const auto text = TRY(read_ledger_file(files.pending, name));
  if (!text) return {};  // another call has repaired the change
  return finish_release(files, name, TRY(parse_grant(*text, files.pending.path + "/" + name, key)));
}

Result<void> repair(const LedgerFiles& files, const std::string& name, const PendingName& pending, int timeout_ms) {
  if (pending.kind == PendingName::Kind::kTemporary) return remove_tree(files.pending, name);
  const KeyLock lock = TRY(KeyLock::take(files, {pending.key}, timeout_ms));
  if (pending.kind == PendingName::Kind::kReleased) return repair_released(files, name, pending.key);
  const auto grant = TRY(refresh(files, pending.key));
  return remove_marker(files, pending.key, pending.worker, grant);
}

// The grants and files that could not be released, by name, with the error.
using Unreleased = std::map<std::string, Error>;

void note_unreleased(Unreleased& stuck, const std::string& name, const Result<void>& done) {
  if (!done) stuck.try_emplace(name, base::wrap(done.error(), fmt::format("`{}`", base::printable(name))));
}

// Repairs the changes in pending/ whose processes are dead. Adds each change that it cannot repair to `stuck`, and
// continues.
void repair_all(const LedgerFiles& files, const std::vector<std::string>& names, Deadline deadline, Unreleased& stuck) {
  for (const std::string& name : names) {
    const auto pending = parse_pending_name(name);
    if (!pending || !is_worker_absent(pending->worker)) continue;
    const bool is_marker = pending->kind == PendingName::Kind::kMarker;
    note_unreleased(stuck, is_marker ? pending->key : name,
                    repair(files, name, *pending, ms_until(deadline, kKeyLockTimeoutMs)));
  }
}

// Repairs and releases in the whole ledger, in rounds. A round continues after an error.
class Recovery {
 public:
  explicit Recovery(const LedgerFiles& files) : files_(files) {}

  // Checks pending/, then all grants, then the index. Grants come before the index: the release of a grant removes its
  // entries, so an entry that is still wrong afterwards belongs to no grant. If the repair of a change in pending/
  // failed, this round does not try its grant again.
  Result<void> run(Deadline deadline) {
    deadline_ = deadline;
    stuck.clear();
    warnings.clear();
    unread_.clear();
    repair_all(files_, TRY(list_names(files_.pending)), deadline_, stuck);
    ClaimsByHca claims;
    ListsOfKeys lists;
    for (const std::string& key : TRY(grant_keys(files_))) {
      auto read = read_grant(files_, key);
      if (!read) {
        note_unreleased(stuck, key, read.error());
        unread_.insert(key);
      }
      if (!read || !*read) continue;
      std::optional<StoredGrant>& grant = *read;
      if (!stuck.contains(key)) note_unreleased(stuck, key, recover_grant(key, grant));
      if (!grant) continue;
      for (PlannedHca& hca : held_hcas(*grant))
        if (hca.claim.empty()) claims[booked_as(hca)].emplace(key, hca);
      add_views_of(*grant, views);
      warn_of_unseen(*grant);
      lists.emplace(key, lists_of(grant));
    }
    for (const std::string& hca : TRY(list_names(files_.hca)))
      claims.try_emplace(hca);
    for (const auto& claimed : claims) {
      if (!is_file_name(claimed.first, kLongestHcaName)) continue;
      note_unreleased(stuck, claimed.first, recover_hca(claimed));
    }
    // Now the index has each HCA of each grant.
    if (stuck.empty()) files_.seal_hcas();
    note_unreleased(stuck, "ids", recover_lists(files_, lists, unread_, patience()));
    return {};
  }

  Unreleased stuck;                   // the grants and files that the last round could not release
  std::vector<std::string> warnings;  // users that the last round could not prove gone
  std::set<std::string> views;        // the views that users name

 private:
  // The grants that hold one HCA: the HCA as each grant holds it, by the grant's key.
  using Claims = std::map<std::string, PlannedHca>;
  using ClaimsByHca = std::map<std::string, Claims>;  // claims by the name under which the HCA is booked

  int patience() const { return ms_until(deadline_, kKeyLockTimeoutMs); }

  // Releases the grant if it is stale. Otherwise removes from it the unfinished changes of dead processes, and the
  // tokens for which the requesting process is dead. Sets `grant` to the result. Does not lock a grant that needs no
  // change.
  Result<void> recover_grant(const std::string& key, std::optional<StoredGrant>& grant) {
    auto seen = *grant;
    if (drop_dead(seen, {}) == Left::kAll) return {};
    const KeyLock lock = TRY(KeyLock::take(files_, {key}, patience()));
    grant = TRY(refresh(files_, key));
    return {};
  }

  // Warns of users that cannot be proven gone. If the runtime's root directory was made again, for example after /run
  // was emptied, the new directory never shows whether an earlier container has ended.
  void warn_of_unseen(const StoredGrant& grant) {
    for (const StoredUser& user : grant.users) {
      const auto seen = check_seen(user);
      if (seen) continue;
      warnings.push_back(fmt::format(
          "the grant of {} is held for container `{}`: {}; {}if no container that uses it runs, remove `{}` and call "
          "`rdma-hook recover` again",
          grant.owner.label, base::printable(user.user.id), seen.error().message,
          seen.error().hint.empty() ? "" : seen.error().hint + "; or, ", grant_path(files_, grant.owner.key)));
    }
  }

  // Adds the index entry of an HCA that a grant holds, or for an exclusive grant the link `exclusive` to the grant, if
  // the index lacks it. Replaces a link that is "none".
  Result<void> restore_index(const std::string& hca, const std::string& key) {
    const auto lock = TRY(lock_hca(files_, hca, LockTime(patience())));
    return restore_entry(files_, hca, key, patience());
  }

  // Replaces a damaged exclusive link, and returns the key that it then names. While the HCA is locked, no grant can
  // take the HCA, so either a grant in the index or in `claims` holds the HCA exclusively, or no grant does. If one of
  // these grants cannot be read, the link stays.
  Result<std::optional<std::string>> repair_exclusive(const std::string& hca, const Claims& claims) {
    const auto lock = TRY(lock_hca(files_, hca, LockTime(patience())));
    std::set<std::string> keys;
    for (const IndexEntry& entry : TRY(list_entries(files_, hca)))
      keys.insert(entry.key);
    for (const auto& [key, claim] : claims)
      keys.insert(key);
    std::string owner_key;
    for (const std::string& key : keys) {
      const KeyLock key_lock = TRY(KeyLock::take(files_, {key}, patience()));
      const auto grant = TRY(refresh(files_, key));
      const auto found = held_hca(grant, hca);
      if (found && found->mode == Mode::kExclusive) owner_key = key;
    }
    using enum HcaState::Kind;
    TRY_VOID(write_state(files_, hca, {owner_key.empty() ? kUnknown : kExclusive, owner_key}));
    return owner_key.empty() ? std::nullopt : std::optional(std::move(owner_key));
  }

  // Corrects the index of one HCA to agree with `claims`, the grants that hold it. Takes a lock only for an entry that
  // does not agree. The entries of grants that could not be read stay.
  Result<void> recover_hca(const ClaimsByHca::value_type& claimed) {
    const auto& [hca, claims] = claimed;
    const auto note = [&](const std::string& key, const auto& checked) {
      note_unreleased(stuck, key, checked.has_value() ? Result<void>() : checked.error());
    };
    const auto is_alone = [](const Claims::value_type& claim) { return claim.second.mode == Mode::kExclusive; };
    auto missing = claims;
    const auto state = read_state(files_, hca);
    const bool is_damaged = !state && state.error().code == EBADMSG;
    const auto alone = is_damaged ? TRY(repair_exclusive(hca, claims)) : TRY(state).exclusive_key();
    const auto exclusive_claim = std::ranges::find_if(claims, is_alone);
    if (alone && (exclusive_claim == claims.end() || exclusive_claim->first != *alone) && !unread_.contains(*alone))
      note(*alone, check_exclusive(files_, hca, *alone, patience()));
    for (const IndexEntry& entry : TRY(list_entries(files_, hca))) {
      const auto claim = claims.find(entry.key);
      if (claim != claims.end() && claim->second.units == entry.units) {
        missing.erase(entry.key);
      } else if (!unread_.contains(entry.key)) {
        note(entry.key, check_entry(files_, hca, entry, patience()));
      }
    }
    if (exclusive_claim != claims.end() && alone != exclusive_claim->first) missing.insert(*exclusive_claim);
    const bool seems_free = state.has_value() && state->kind == HcaState::Kind::kFree;
    if (seems_free && !claims.empty()) missing.insert(*claims.begin());
    for (const auto& [key, claim] : missing)
      note(key, restore_index(hca, key));
    return {};
  }

  const LedgerFiles& files_;
  Deadline deadline_;
  std::set<std::string> unread_;  // keys of grants that could not be read
};

// Returns one error with all messages, and with code and hint of the first one.
Result<void> to_result(const Unreleased& stuck) {
  if (stuck.empty()) return {};
  Error all = stuck.begin()->second;
  for (auto more = std::next(stuck.begin()); more != stuck.end(); ++more)
    all.message += "; " + more->second.message;
  return all;
}

// Limits the time that GrantEffects wait to the deadline, as long as this object lives.
class Patience {
 public:
  Patience(const LedgerFiles& files, Deadline deadline) : files_(files) { files_.wait_until(deadline); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
  ~Patience() { files_.wait_until(Deadline::max()); }

 private:
  const LedgerFiles& files_;
};

// Returns true if pending/ has a marker for the grant of this key, and the process of the marker is not proven gone.
// The grant itself may be gone.
Result<bool> is_worked_on(const LedgerFiles& files, const std::string& key) {
  const auto names = TRY(list_names(files.pending));
  return std::ranges::any_of(names, [&](const std::string& name) {
    const auto pending = parse_pending_name(name);
    return pending && pending->kind == PendingName::Kind::kMarker && pending->key == key &&
           !is_worker_absent(pending->worker);
  });
}

}  // namespace

Result<void> Ledger::repair_pending() const {
  Unreleased ignored;
  repair_all(*files_, TRY(list_names(files_->pending)), Deadline(), ignored);
  return {};
}

Result<Recovered> Ledger::recover(Deadline deadline) const {
  Recovery recovery(*files_);
  const std::size_t before = files_->released.size();
  // List the views before the grants are read. A view is made only after a grant has a user that names the view. So the
  // grants, read later, name each listed view that is in use.
  const auto directory = files_->open_views();
  const auto views = directory ? list_names(*directory) : directory.error();
  // The first round does not wait, so one stuck grant does not delay the release of the rest. The second round retries
  // until the deadline.
  for (const Deadline until : {Deadline(), deadline}) {
    const Patience patience(*files_, until);
    TRY_VOID(recovery.run(until));
    if (recovery.stuck.empty()) break;
  }
  const auto left = views ? recover_views(*files_, *directory, *views, std::move(recovery.views),
                                          ms_until(deadline, kKeyLockTimeoutMs))
                          : views.error();
  remove_old_checks(*files_, ms_until(deadline, kKeyLockTimeoutMs));
  Recovered recovered{.released = {}, .warnings = std::move(recovery.warnings)};
  if (!left) recovered.warnings.push_back(left.error().message);
  TRY_VOID(to_result(recovery.stuck));
  for (std::size_t i = before; i < files_->released.size(); ++i)
    recovered.released.push_back(files_->released[i].grant.owner.label);
  return recovered;
}

Result<std::vector<std::string>> Ledger::release_claim(const std::string& key, Deadline deadline) const {
  std::vector<std::string> users;
  if (!is_file_name(key, kLongestKey)) return users;
  const Patience patience(*files_, deadline);
  // A pod's grant whose release no event has reported is released here. A process that has the lock of a key takes no
  // other, so the claim is locked afterwards.
  for (const std::string& name : TRY(keys_of_id(*files_, key))) {
    const KeyLock lock = TRY(KeyLock::take(*files_, {name}, ms_until(deadline, kKeyLockTimeoutMs)));
    TRY(refresh(*files_, name));
  }
  // From here on no grant can begin to use the claim: book() and bind() need this lock.
  const KeyLock lock = TRY(KeyLock::take(*files_, {key}, ms_until(deadline, kKeyLockTimeoutMs)));
  for (const std::string& name : TRY(keys_of_id(*files_, key)))
    if (const auto grant = TRY(read_grant(*files_, name)); grant && uses_claim(*grant, key))
      users.push_back(grant->owner.label);
  const auto grant = users.empty() ? TRY(read_grant(*files_, key)) : std::nullopt;
  if (grant) TRY_VOID(release_stored_grant(*files_, *grant));
  return users;
}

Result<bool> Ledger::release(const std::string& key, Deadline deadline,
                             const std::function<Result<void>()>& rest) const {
  if (!is_file_name(key, kLongestKey)) return false;
  const Patience patience(*files_, deadline);
  const KeyLock lock = TRY(KeyLock::take(*files_, {key}, ms_until(deadline, kKeyLockTimeoutMs)));
  if (TRY(refresh(*files_, key)) || TRY(is_worked_on(*files_, key))) return false;
  TRY_VOID(files_->release_except(key, {}, nullptr));
  TRY_VOID(rest());
  return true;
}

}  // namespace hook
