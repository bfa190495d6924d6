// Why no crash and no race gives one exclusive HCA to two, or loses a grant.
//
// 1. The truth is DIR/grants/KEY.json: who is not there holds nothing. The index (holders/, exclusive) only says where
//    to look. It may say too much (an entry without a grant is stale, and removed when it matters), never too little.
// 2. Whatever carries a key (its grant, index entries, markers, the views of its users) changes only under that key's
//    lock. So between reading that an exclusive link names KEY and removing it, nobody can put another in its place.
// 3. What takes an HCA (an index entry where its owner had none) needs that HCA's lock as well; what frees one does
//    not. A grant that vanished is therefore returned by whoever holds the lock of any one of its HCAs.
// 4. Locks are taken in this order: HCAs by name, then keys (all that are needed at once). Who holds a key's lock asks
//    for no other.
//
// The order of writes, so that each prefix of it can be read:
//   book    marker, grant with the new user's steps, index. Killed: repair drops the steps of a worker that is dead,
//           first from the index, then from the grant, then the marker. Under the HCA's lock nobody saw the gap between
//           grant and index, and afterwards the dead worker's steps count for nobody: see refresh().
//   settle  grant, marker. Killed in between: a marker without steps, removed.
//   return  the grant moves to pending/ in one rename: from here on nobody holds it, and what is to be cleaned is
//           written down; then index, views, that file. Removing index entries first would, when killed half-way, leave
//           an owner that believes to hold an HCA that the index gives to the next.
//   return and leave undo what the grant has beyond the ledger (GrantEffects) before anything else: until that is done
//           the grant is held.
//   leave   view, grant without the user (or the return above).
//   bind    marker of the new owner, return of the token's grant up to the rename, the new owner's grant with the
//           steps, index (an exclusive link is replaced by rename), view, rest of the return. Killed: neither holds.
#include "hook/ledger/ledger.hpp"

#include <algorithm>
#include <utility>

#include "hook/ledger/ledger_locked.hpp"
#include "hook/ledger/ledger_steps.hpp"

namespace hook {

using fabric::Result;

Ledger::Ledger(std::shared_ptr<const LedgerFiles> files) : files_(std::move(files)) {}

Result<Ledger> Ledger::open(const std::string& path, std::shared_ptr<const GrantEffects> effects) {
  return Ledger(TRY(LedgerFiles::open(path, std::move(effects))));
}

Result<LockedHcas> Ledger::lock(std::vector<std::string> hcas, int timeout_ms) const {
  std::sort(hcas.begin(), hcas.end());
  hcas.erase(std::unique(hcas.begin(), hcas.end()), hcas.end());
  std::vector<LockedHcas::Locked> locked;
  for (const std::string& name : hcas) {
    const auto directory = TRY(files_->open_hca(name, true));
    auto lock = TRY(lock_hca(directory, name, *files_, timeout_ms));
    locked.push_back({name, std::move(lock)});
  }
  return LockedHcas(files_, std::move(locked));
}

Result<std::optional<Grant>> Ledger::find(std::string_view key) const {
  if (!is_file_name(key, kLongestKey)) return std::optional<Grant>();
  const auto grant = TRY(read_grant(*files_, std::string(key)));
  return grant ? std::optional(to_grant(*grant)) : std::nullopt;
}

Result<std::vector<Grant>> Ledger::list() const {
  std::vector<Grant> grants;
  auto names = TRY(list_names(files_->grants));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!name.ends_with(".json")) continue;
    auto grant = TRY(find(std::string_view(name).substr(0, name.size() - 5)));
    if (grant) grants.push_back(std::move(*grant));
  }
  return grants;
}

Result<void> Ledger::settle(std::string_view key) const {
  if (!is_file_name(key, kLongestKey)) return {};
  const std::string name(key);
  const KeyLock lock = TRY(KeyLock::take(*files_, {name}));
  auto grant = TRY(read_grant(*files_, name));
  if (grant) {
    const auto before = grant->users;
    settle_users(*grant, files_->self);
    if (grant->users != before) TRY_VOID(write_grant(*files_, *grant));
  }
  return remove_marker(*files_, name, files_->self, grant);
}

Result<void> Ledger::leave(const Owner& owner, std::string_view user_key) const {
  if (!is_file_name(owner.key, kLongestKey) || !is_file_name(user_key, kLongestKey)) return {};
  const KeyLock lock = TRY(KeyLock::take(*files_, {owner.key}));
  const auto before = TRY(read_grant(*files_, owner.key));
  const auto leaves = [&](const StoredUser& user) { return user.user.key == user_key; };
  std::optional<ProcessIdentity> worker;
  auto grant = before;
  if (before) {
    const auto user = std::find_if(before->users.begin(), before->users.end(), leaves);
    if (user == before->users.end()) return {};
    worker = user->worker;
    std::erase_if(grant->users, leaves);
  }
  TRY_VOID(remove_tree(files_->views, std::string(user_key)));
  if (!grant) return {};
  const auto held = held_hcas(*grant);
  const bool pod = grant->owner.kind == Owner::Kind::kNetns;
  if (grant->users.empty() && (!pod || held.empty())) {
    TRY_VOID(return_grant(*files_, *before));
    grant.reset();
  } else {
    TRY_VOID(files_->undo_beyond(owner.key, held));
    TRY_VOID(set_index(*files_, owner.key, all_claims(*before), held));
    TRY_VOID(write_grant(*files_, *grant));
  }
  return worker ? remove_marker(*files_, owner.key, *worker, grant) : Result<void>();
}

Result<void> Ledger::give_back(std::string_view key) const {
  if (!is_file_name(key, kLongestKey)) return {};
  const std::string name(key);
  const KeyLock lock = TRY(KeyLock::take(*files_, {name}));
  const auto grant = TRY(read_grant(*files_, name));
  if (grant) TRY_VOID(return_grant(*files_, *grant));
  return remove_marker(*files_, name, files_->self, std::nullopt);
}

}  // namespace hook
