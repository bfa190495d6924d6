// What processes that were killed left behind (repair_pending), and what nobody holds any more (recover). Both take
// one grant's lock at a time, so that hooks go on meanwhile, and look again once they have it. Left half-way is safe:
// see the top of ledger.cpp; so one leftover that cannot be repaired is no reason to refuse a container.
#include <algorithm>
#include <set>

#include "hook/ledger/ledger_steps.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;

Result<void> repair_returned(const LedgerFiles& files, const std::string& name, const std::string& key) {
  const auto text = TRY(read_ledger_file(files.pending, name));
  if (!text) return {};  // somebody else was first
  return finish_return(files, name, TRY(parse_grant(*text, files.pending.path + "/" + name, key)));
}

Result<void> repair(const LedgerFiles& files, const std::string& name, const PendingName& pending, int timeout_ms,
                    std::vector<std::string>& returned) {
  if (pending.kind == PendingName::Kind::kTemporary) return remove_tree(files.pending, name);
  const KeyLock lock = TRY(KeyLock::take(files, {pending.key}, timeout_ms));
  if (pending.kind == PendingName::Kind::kReturned) return repair_returned(files, name, pending.key);
  TRY_VOID(refresh(files, pending.key, &returned));
  return remove_file(files.pending, name);
}

// The first leftover that could not be repaired is the error; the others are repaired all the same.
Result<void> repair_all(const LedgerFiles& files, const std::vector<std::string>& names, int timeout_ms,
                        std::vector<std::string>& returned) {
  std::optional<Error> first;
  for (const std::string& name : names) {
    const auto pending = parse_pending_name(name);
    if (!pending || is_alive(pending->worker)) continue;
    const auto repaired = repair(files, name, *pending, timeout_ms, returned);
    if (!repaired && !first) first = repaired.error();
  }
  return first ? Result<void>(*first) : Result<void>();
}

// One whose netdev has not come back yet is no reason to leave the others.
Result<void> recover_grants(const LedgerFiles& files, std::vector<std::string>& returned) {
  std::optional<Error> first;
  for (const std::string& name : TRY(list_names(files.grants))) {
    if (!name.ends_with(".json") || !is_file_name(name, kLongestKey + 5)) continue;
    const std::string key = name.substr(0, name.size() - 5);
    if (!is_file_name(key, kLongestKey)) continue;
    const KeyLock lock = TRY(KeyLock::take(files, {key}));
    const auto refreshed = refresh(files, key, &returned);
    if (!refreshed && !first) first = refreshed.error();
  }
  return first ? Result<void>(*first) : Result<void>();
}

Result<void> recover_index(const LedgerFiles& files, std::vector<std::string>& returned) {
  for (const std::string& hca : TRY(list_names(files.hca))) {
    if (!is_file_name(hca, kLongestHcaName)) continue;
    if (const auto key = TRY(exclusive_key(files, hca))) TRY_VOID(check_exclusive(files, hca, *key, &returned));
    for (const IndexEntry& entry : TRY(list_entries(files, hca)))
      TRY_VOID(check_entry(files, hca, entry, &returned));
  }
  return {};
}

Result<std::set<std::string>> all_users(const LedgerFiles& files) {
  std::set<std::string> users;
  for (const std::string& name : TRY(list_names(files.grants))) {
    if (!name.ends_with(".json")) continue;
    const std::string key = name.substr(0, name.size() - 5);
    if (!is_file_name(key, kLongestKey)) continue;
    const auto grant = TRY(read_grant(files, key));
    if (!grant) continue;
    for (const StoredUser& user : grant->users)
      users.insert(user.user.key);
  }
  return users;
}

// The views are listed before the grants: who makes one has booked before, so its user is seen. bind() moves a view
// from user to user, but holds the lock of the token, whose name the view had: hence the lock, and the second look.
Result<void> recover_views(const LedgerFiles& files) {
  const auto views = TRY(list_names(files.views));
  const auto users = TRY(all_users(files));
  for (const std::string& view : views) {
    if (users.contains(view) || !is_file_name(view, kLongestKey)) continue;
    const KeyLock lock = TRY(KeyLock::take(files, {view}));
    if (!TRY(all_users(files)).contains(view)) TRY_VOID(remove_tree(files.views, view));
  }
  return {};
}

}  // namespace

Result<Recovered> Ledger::repair_pending() const {
  Recovered recovered;
  const auto names = TRY(list_names(files_->pending));
  (void)repair_all(*files_, names, 0, recovered.returned).has_value();
  return recovered;
}

Result<Recovered> Ledger::recover() const {
  Recovered recovered;
  const auto names = TRY(list_names(files_->pending));
  const auto repaired = repair_all(*files_, names, kKeyLockTimeoutMs, recovered.returned);
  const auto grants = recover_grants(*files_, recovered.returned);
  TRY_VOID(recover_index(*files_, recovered.returned));
  TRY_VOID(recover_views(*files_));
  TRY_VOID(repaired);
  TRY_VOID(grants);
  return recovered;
}

}  // namespace hook
