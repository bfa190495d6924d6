#include "hook/ledger/changes.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "hook/ledger/absence.hpp"

namespace hook {
namespace {

using Clock = std::chrono::steady_clock;

// Returns a user that stands for the pod itself. Such a user has no process, so it stays until the pod's namespace is
// gone.
StoredUser pod_itself(const Owner& owner) {
  StoredUser pod;
  pod.user = {owner.key, "pod", {}};
  pod.settled = true;
  return pod;
}

// Adds the grant to files.released, unless the grant has only an unfinished start that this process rolls back, which
// no log line has reported.
void note_released(const LedgerFiles& files, const StoredGrant& grant, bool stays, Clock::duration rails_time) {
  const auto is_settled = [](const StoredUser& user) { return user.settled; };
  const auto is_worked_on = [](const StoredUser& user) { return user.worker && !user.worker_absent; };
  const auto& users = grant.users;
  const bool was_allocated = !grant.hcas.empty() || std::ranges::any_of(users, is_settled);
  if (!was_allocated && std::ranges::any_of(users, is_worked_on)) return;
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(rails_time);
  files.released.push_back({recorded_grant(grant), was_allocated, stays, static_cast<std::uint64_t>(us.count())});
}

// Records in the grant that all its users have ended (StoredUser::ended), because its release has failed. Because of
// this record, a later release that runs during a start also searches for processes that still have an HCA open
// (NodeRails::check_left()). Best effort.
void note_all_ended(const LedgerFiles& files, StoredGrant grant) {
  bool changed = false;
  for (StoredUser& user : grant.users)
    changed = !std::exchange(user.ended, true) || changed;
  if (changed) (void)write_grant(files, grant).has_value();
}

// Removes the index entries of the ended grant, except those of `current`, the grant that the owner has now. Then
// removes the file of the ended grant.
Result<void> remove_ended(const LedgerFiles& files, const std::string& name, const StoredGrant& grant,
                          const std::optional<StoredGrant>& current) {
  TRY_VOID(remove_index(files, grant.owner.key, all_claims(grant),
                        current ? all_claims(*current) : std::vector<PlannedHca>()));
  TRY_VOID(remove_ids(files, grant, current));
  return remove_file(files.pending, name);
}

}  // namespace

Result<std::optional<StepWorker>> add_steps(StoredGrant& grant, GrantUser user, const std::vector<PlannedHca>& hcas,
                                            const StepWorker& worker) {
  const auto same = [&](const StoredUser& other) { return other.user.key == user.key; };
  // A pod keeps its HCAs between two containers. Without a user that stands for the pod, a roll-back of the next
  // container's start would leave the grant without users and release it.
  if (grant.users.empty() && !grant.hcas.empty() && grant.owner.kind == Owner::Kind::kNetns)
    grant.users.push_back(pod_itself(grant.owner));
  auto found = std::ranges::find_if(grant.users, same);
  if (found == grant.users.end()) found = grant.users.insert(found, StoredUser{});
  if (!found->ended && found->user.process != user.process) TRY_VOID(check_ended(found->user));
  if (user.pod.empty()) user.pod = found->user.pod;  // keep the recorded pod: this call may not know it
  // A later call for the same process may mount another view or none. The earlier mounts still use the recorded views.
  if (user.view.empty() || user.process == found->user.process) {
    auto views = views_of(user);
    for (std::string& view : views_of(found->user))
      views.push_back(std::move(view));
    set_views(user, views);
  }
  const bool is_own = found->worker && found->worker->process == worker.process;
  // Count only the HCAs of the grant and of this user's change: the changes of other users may be rolled back.
  auto sure = grant.hcas;
  merge_hcas(sure, found->hcas);
  const auto before = sure;
  merge_hcas(sure, hcas);
  const bool goes_on = is_own || (!found->worker && found->settled);
  if (goes_on && !found->ended && found->user == user && sure == before) return std::optional<StepWorker>();
  found->user = std::move(user);
  found->ended = false;
  if (!is_own) found->worker = worker;
  merge_hcas(found->hcas, hcas);
  return std::optional(found->worker);
}

Result<void> finish_release(const LedgerFiles& files, const std::string& name, const StoredGrant& grant) {
  // The owner may have a new grant by now. Keep the index entries of the new grant.
  return remove_ended(files, name, grant, TRY(read_grant(files, grant.owner.key)));
}

Result<std::string> begin_release(const LedgerFiles& files, const StoredGrant& grant) {
  // "KEY" and temporary_name() "@PID.START.N" give "KEY@PID.START@N", the name of a released grant.
  std::string name = grant.owner.key + files.temporary_name();
  name[name.rfind('.')] = '@';
  const std::string file = record_file(grant.owner.key);
  // The record moves to pending/ and replaces nothing: rename(2) makes the release of all its HCAs one step.
  if (::renameat(files.grants.fd.get(), file.c_str(), files.pending.fd.get(), name.c_str()) == 0) return name;
  return sys_error(errno, "cannot release grant `{}`", grant.owner.label);
}

Result<void> release_stored_grant(const LedgerFiles& files, const StoredGrant& grant) {
  const auto begin = Clock::now();
  if (auto done = files.release_except(grant.owner.key, {}, &grant); !done) {
    note_all_ended(files, grant);
    return done;
  }
  const auto rails_time = Clock::now() - begin;
  const auto name = begin_release(files, grant);
  if (!name) return name.error().code == ENOENT ? Result<void>() : name.error();
  note_released(files, grant, false, rails_time);
  // The caller has locked the key, so the owner has no new grant.
  return remove_ended(files, *name, grant, std::nullopt);
}

Result<void> write_left(const LedgerFiles& files, const StoredGrant& before, std::optional<StoredGrant>& grant) {
  const auto held = held_hcas(*grant);
  if (grant->users.empty() && (grant->owner.kind != Owner::Kind::kNetns || held.empty())) {
    grant.reset();
    return release_stored_grant(files, before);
  }
  const auto begin = Clock::now();
  // Undo the effects first, so that the grant holds the HCAs until their netdevs are back in the node's namespace.
  TRY_VOID(files.release_except(before.owner.key, held, &before));
  note_released(files, before, !held.empty(), Clock::now() - begin);
  TRY_VOID(set_index(files, before.owner.key, all_claims(before), held));
  TRY_VOID(write_grant(files, *grant));
  return remove_ids(files, before, grant);
}

Result<std::optional<StoredGrant>> refresh(const LedgerFiles& files, const std::string& key, std::string_view binding) {
  auto grant = TRY(read_grant(files, key));
  if (!grant) return grant;
  const StoredGrant before = *grant;
  const Left left = drop_dead(*grant, binding);
  if (left == Left::kAll) return grant;
  if (left == Left::kNothing) {
    TRY_VOID(release_stored_grant(files, before));
    return std::optional<StoredGrant>();
  }
  TRY_VOID(files.release_except(key, held_hcas(*grant), &before));
  // The index is written before the grant: if this process is killed in between, the grant still lists the unfinished
  // change of the dead process, and the next call repeats both writes.
  TRY_VOID(set_index(files, key, all_claims(before), held_hcas(*grant)));
  TRY_VOID(write_grant(files, *grant));
  TRY_VOID(remove_ids(files, before, grant));
  return grant;
}

Result<bool> check_entry(const LedgerFiles& files, const std::string& hca, const IndexEntry& entry, int timeout_ms) {
  const KeyLock lock = TRY(KeyLock::take(files, {entry.key}, timeout_ms));
  const auto grant = TRY(refresh(files, entry.key));
  const auto found = held_hca(grant, hca);
  if (found && found->units == entry.units) return true;
  // The grant holds the HCA, but the entry shows other units.
  if (found) return correct_entry(files, hca, entry.key, entry.units, found->units);
  TRY_VOID(remove_entry(files, hca, entry.key, entry.units));
  return false;
}

Result<std::optional<StoredGrant>> check_exclusive(const LedgerFiles& files, const std::string& hca,
                                                   const std::string& key, int timeout_ms) {
  const KeyLock lock = TRY(KeyLock::take(files, {key}, timeout_ms));
  auto grant = TRY(refresh(files, key));
  const auto found = held_hca(grant, hca);
  if (found && found->mode == Mode::kExclusive) return grant;
  TRY_VOID(remove_exclusive(files, hca, key, HcaState::Kind::kUnknown));
  return std::optional<StoredGrant>();
}

Result<void> restore_entry(const LedgerFiles& files, const std::string& hca, const std::string& key, int timeout_ms) {
  const KeyLock lock = TRY(KeyLock::take(files, {key}, timeout_ms));
  const auto grant = TRY(read_grant(files, key));
  const auto found = held_hca(grant, hca);
  if (!found) return {};
  TRY_VOID(set_index(files, key, {}, {*found}));
  const bool is_free = found->mode != Mode::kExclusive && TRY(read_state(files, hca)).kind == HcaState::Kind::kFree;
  return is_free ? write_state(files, hca, {HcaState::Kind::kShared}) : Result<void>();
}

Result<void> rebuild_hca(const LedgerFiles& files, const std::string& hca, std::string& looked_at) {
  bool is_held = false;
  for (const std::string& key : TRY(grant_keys(files))) {
    looked_at = key;
    const auto grant = TRY(read_grant(files, key));
    if (!held_hca(grant, hca)) continue;
    TRY_VOID(restore_entry(files, hca, key));
    is_held = true;
  }
  looked_at.clear();
  if (TRY(read_state(files, hca)).kind == HcaState::Kind::kExclusive) return {};
  return write_state(files, hca, {is_held ? HcaState::Kind::kShared : HcaState::Kind::kFree});
}

}  // namespace hook
