// Why no crash and no race gives one exclusive HCA to two, or loses a grant.
//
// 1. The truth is DIR/grants/KEY.json: who is not there holds nothing. The index (holders/, exclusive) only says where
//    to look. It may say too much (an entry without a grant is stale, and removed when it matters), never too little.
//    So does the index of ids for steps that are done: its entries are made with the steps and removed after the grant.
// 2. Whatever carries a key (its grant, index entries, markers) changes only under that key's lock. So between reading
//    that an exclusive link names KEY and removing it, no process can put another in its place. One change needs no
//    lock: whoever made a marker removes it when its steps are done, once and for all.
// 3. What takes an HCA (an index entry where its owner had none) needs that HCA's lock as well; what frees one does
//    not. A grant that vanished can therefore be returned by a process that holds the lock of any one of its HCAs.
// 4. Locks are taken in this order: HCAs by device, then keys and names of views (all that are needed at once). Who
// holds
//    a key's lock asks for no other.
// 5. A grant that cannot be read, or whose marker cannot be looked at, holds whatever the index says that it does.
//
// One change is one write of the grant. Its steps run as long as their marker is there; read_grant() makes what is done
// the grant's, and the next change writes it so.
//
// The order of writes, so that each prefix of it can be read:
//   book    marker, grant with the new user's steps, index. Killed: repair drops the steps of a worker that is dead,
//           first from the index, then from the grant, then the marker. Under the HCA's lock no process saw the gap
//           between grant and index, and afterwards the dead worker's steps do not count: see refresh(). The marker of
//           steps that a grant lists is removed by nobody else: they would count as done.
//   settle  the marker goes. Killed before: as above; after: the steps are done.
//   return  the grant moves to pending/ in one rename: from here on it is not held, and what is to be cleaned is
//           written down; then index, that file. Removing index entries first would, when killed half-way, leave an
//           owner that believes to hold an HCA that the index gives to the next.
//   return and leave undo what the grant has beyond the ledger (GrantEffects) before anything else: until that is done
//           the grant is held.
//   leave   grant without the user (or the return above).
//   bind    marker of the new owner, return of the token's grant up to the rename, the new owner's grant with the
//           steps, index (an exclusive link is replaced by rename), rest of the return. Killed: neither holds.
//
// Who has CAP_NET_ADMIN may rename an HCA at any time. So locks, grants and index know it by its device (HcaDevices),
// and names are for people.
#include "hook/ledger/ledger.hpp"

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "fabric/text.hpp"
#include "hook/base/failure.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/gone.hpp"
#include "hook/ledger/index.hpp"
#include "hook/ledger/steps.hpp"
#include "hook/ledger/views.hpp"

namespace hook {
namespace {

constexpr int kBindAttempts = 3;

bool is_token(std::string_view token) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return token.size() == 32 && std::all_of(token.begin(), token.end(), digit);
}

bool same_hcas(const std::vector<PlannedHca>& left, const std::vector<std::string>& names) {
  return std::all_of(left.begin(), left.end(), [&](const PlannedHca& hca) {
    return std::find(names.begin(), names.end(), booked_as(hca)) != names.end();
  });
}

// Whoever can read a container's mounts knows its token, and may have written it into another's annotation.
Result<void> check_token_user(const GrantUser& booked, const GrantUser& binding) {
  const bool knows_bundles = !booked.bundle.empty() && !binding.bundle.empty();
  const auto same = knows_bundles ? is_same_directory(booked.bundle, binding.bundle) : Result<bool>(true);
  if (booked.id == binding.id && same.has_value() && *same) return {};
  const auto named = [&](const GrantUser& user) {
    return fmt::format("container `{}`{}", fabric::printable(user.id),
                       knows_bundles ? fmt::format(" of bundle `{}`", fabric::printable(user.bundle)) : "");
  };
  return Error{.message = fmt::format("the annotation `{}` names a grant that was booked for {}, this is {}",
                                      kGrantAnnotation, named(booked), named(binding)),
               .code = EPERM,
               .hint = "take the annotation out: only rdma-runtime and rdma-nri write it",
               .reason = FailureReason::kRefused};
}

bool is_worked_on_here(const LedgerFiles& files, const StoredUser& user) {
  return user.worker && user.worker->process == files.self;
}

// With what the token's record knows: the view that config.json mounts, and the pod and the container's name, which an
// engine's config.json need not have; rdma-nri, whose token it is, was told.
GrantUser after_token(GrantUser user, const GrantUser& token) {
  if (user.pod.empty()) user.pod = token.pod;
  user.name = token.name;
  user.view = token.view;
  return user;
}

// The token is a user of the grant that the container will use: the HCAs stay where they are.
Result<std::optional<Grant>> bind_user(const LedgerFiles& files, const std::string& token_key, const Owner& owner,
                                       const GrantUser& user) {
  const KeyLock lock = TRY(KeyLock::take(files, {owner.key}));
  auto grant = TRY(refresh(files, owner.key, token_key));
  const auto is_token_user = [&](const StoredUser& other) { return other.user.key == token_key; };
  if (!grant) return std::optional<Grant>();
  const auto before = grant;
  const auto booked = std::find_if(before->users.begin(), before->users.end(), is_token_user);
  if (booked == before->users.end()) return std::optional<Grant>();
  TRY_VOID(check_token_user(booked->user, user));
  const auto worker = TRY(add_steps(*grant, after_token(user, booked->user), {}, new_worker(files)));
  std::erase_if(grant->users, is_token_user);
  if (worker) TRY_VOID(begin_change(files, owner.key, *worker));
  TRY_VOID(write_grant(files, *grant));
  TRY_VOID(add_ids(files, *grant, before));
  TRY_VOID(remove_ids(files, *before, grant));
  return std::optional(to_grant(*grant));
}

// The grant that the token has for itself goes over. Under the locks of its HCAs and of both keys.
Result<Grant> bind_grant(const LedgerFiles& files, const StoredGrant& source, const Owner& owner,
                         const GrantUser& user) {
  const auto before = TRY(refresh(files, owner.key));
  auto grant = before.value_or(StoredGrant{owner, {}, {}, source.since});
  const GrantUser named = source.users.empty() ? user : after_token(user, source.users.front().user);
  const auto worker = TRY(add_steps(grant, named, held_hcas(source), new_worker(files)));
  if (worker) TRY_VOID(begin_change(files, owner.key, *worker));
  const std::string returned = TRY(begin_return(files, source));
  TRY_VOID(write_grant(files, grant));
  TRY_VOID(add_ids(files, grant, before));
  TRY_VOID(set_index(files, owner.key, all_claims(grant), held_hcas(grant), source.owner.key));
  TRY_VOID(finish_return(files, returned, source));
  return to_grant(grant);
}

// A pod's end may be told by its id alone: containerd 1.7 names no namespace in StopPodSandbox, because the task that
// knew it has ended. So where the last container of a pod leaves, the pod stays as the user.
void keep_pod(StoredGrant& grant, const GrantUser& left) {
  const auto is_known = [&](const StoredUser& user) { return has_id(user.user, left.pod); };
  if (left.pod.empty() || left.id == left.pod || std::any_of(grant.users.begin(), grant.users.end(), is_known)) return;
  StoredUser pod;
  pod.user = {container_owner(left.pod, "").key, left.pod, {}};
  pod.user.pod = left.pod;
  pod.settled = true;
  grant.users.push_back(std::move(pod));
}

// Of a grant that is being returned already there is nothing to note. That this fails too changes nothing.
void note_end(const LedgerFiles& files, const std::string& key, std::string_view user_key) {
  auto grant = read_grant(files, key);
  if (!grant || !*grant) return;
  for (StoredUser& user : (*grant)->users)
    user.ended = user.ended || user.user.key == user_key;
  (void)write_grant(files, **grant).has_value();
}

// By key. One that is returned meanwhile is left out.
template <typename Find, typename Use>
Result<void> each_grant(const Find& find, std::vector<std::string> keys, Ledger::Unread* unread, const Use& use) {
  std::sort(keys.begin(), keys.end());
  for (const std::string& key : keys) {
    auto grant = find(key);
    if (!grant && !unread) return grant.error();
    if (!grant) {
      unread->push_back(grant.error());
    } else if (*grant) {
      TRY_VOID(use(**std::move(grant)));
    }
  }
  return {};
}

Result<std::vector<Grant>> find_all(const Ledger& ledger, std::vector<std::string> keys, Ledger::Unread* unread) {
  std::vector<Grant> grants;
  const auto find = [&](const std::string& key) { return ledger.find(key); };
  TRY_VOID(each_grant(find, std::move(keys), unread, [&](Grant grant) -> Result<void> {
    grants.push_back(std::move(grant));
    return {};
  }));
  return grants;
}

}  // namespace

Ledger::Ledger(std::shared_ptr<const LedgerFiles> files) : files_(std::move(files)) {}

Result<Ledger> Ledger::open(const std::string& path, std::shared_ptr<const GrantEffects> effects,
                            std::string container) {
  return Ledger(TRY(LedgerFiles::open(path, std::move(effects), std::move(container))));
}

Result<LockedHcas> Ledger::lock(const std::vector<std::string>& hcas, int timeout_ms, const HcaDevices& devices) const {
  std::set<std::pair<std::string, std::string>> names;  // by what each is booked as
  for (const std::string& name : hcas) {
    TRY_VOID(check_hca_name(name));
    const auto device = devices.find(name);
    names.emplace(device == devices.end() ? name : device->second, name);
  }
  std::vector<LockedHcas::Locked> locked;
  for (const auto& [key, name] : names) {
    // Two may be of one device: before Linux 5.11 rxe is of the function of its netdev.
    const bool is_locked = !locked.empty() && locked.back().key == key;
    auto lock = is_locked ? fabric::UniqueFd() : TRY(lock_hca(*files_, key, timeout_ms));
    locked.push_back({name, key, std::move(lock)});
  }
  return LockedHcas(files_, std::move(locked));
}

Result<std::optional<Grant>> Ledger::find(std::string_view key) const {
  if (!is_file_name(key, kLongestKey)) return std::optional<Grant>();
  const auto grant = TRY(read_grant(*files_, std::string(key)));
  return grant ? std::optional(to_grant(*grant)) : std::nullopt;
}

Result<bool> Ledger::for_each_at(const std::string& path, const std::function<Result<void>(const Grant&)>& use,
                                 Unread* unread) {
  auto files = TRY(LedgerFiles::open_to_list(path));
  if (!files) return false;
  TRY_VOID(check_place(*files, false));
  auto keys = TRY(grant_keys(*files));
  const Ledger ledger(std::move(files));
  const auto find = [&](const std::string& key) { return ledger.find(key); };
  TRY_VOID(each_grant(find, std::move(keys), unread, use));
  return true;
}

Result<bool> Ledger::for_each_recorded_at(const std::string& path, const std::function<Result<void>(const Grant&)>& use,
                                          Unread* unread) {
  const auto files = TRY(LedgerFiles::open_to_list(path));
  if (!files) return false;
  const auto find = [&](const std::string& key) -> Result<std::optional<Grant>> {
    const auto record = TRY(read_record(*files, key));
    return record ? std::optional(recorded_grant(*record)) : std::nullopt;
  };
  auto keys = TRY(grant_keys(*files));
  TRY_VOID(each_grant(find, std::move(keys), unread, use));
  return true;
}

Result<std::vector<Grant>> Ledger::find_by_id(std::string_view id, Unread* unread) const {
  auto keys = TRY(keys_of_id(*files_, id));
  auto grants = TRY(find_all(*this, std::move(keys), unread));
  std::erase_if(grants, [&](const Grant& grant) {
    return std::none_of(grant.users.begin(), grant.users.end(),
                        [&](const GrantUser& user) { return has_id(user, id); });
  });
  return grants;
}

Result<std::vector<Grant>> Ledger::list(Unread* unread) const {
  return find_all(*this, TRY(grant_keys(*files_)), unread);
}

Result<void> Ledger::settle(std::string_view key) const {
  const auto begun = files_->begun.find(std::string(key));
  if (begun == files_->begun.end()) return {};
  for (const std::string& marker : begun->second)
    TRY_VOID(remove_file(files_->pending, marker));
  files_->begun.erase(begun);
  return {};
}

Result<void> Ledger::leave(const Owner& owner, std::string_view user_key, bool* passed_over) const {
  if (!is_file_name(owner.key, kLongestKey) || !is_file_name(user_key, kLongestKey)) return {};
  const KeyLock lock = TRY(KeyLock::take(*files_, {owner.key}));
  const auto before = TRY(read_grant(*files_, owner.key));
  if (!before) return {};
  const auto leaves = [&](const StoredUser& user) { return user.user.key == user_key; };
  const auto user = std::find_if(before->users.begin(), before->users.end(), leaves);
  if (user == before->users.end()) return {};
  if (is_another_ones_end(*user, files_->self)) {
    if (passed_over) *passed_over = true;
    return {};
  }
  auto grant = before;
  // A start that is undone leaves behind whom the runtime is about to end.
  if (!user->worker) TRY_VOID(check_empty(owner, user->user));
  std::erase_if(grant->users, leaves);
  if (owner.kind == Owner::Kind::kNetns && !held_hcas(*grant).empty()) keep_pod(*grant, user->user);
  auto left = write_left(*files_, *before, grant);
  if (!left) note_end(*files_, owner.key, user_key);
  if (!left || !user->worker) return left;
  return remove_marker(*files_, owner.key, *user->worker, grant);
}

Result<void> Ledger::note_pod(std::string_view id, const std::string& pod) const {
  Unread unread;  // recover() names them
  for (const Grant& seen : TRY(find_by_id(id, &unread))) {
    const KeyLock lock = TRY(KeyLock::take(*files_, {seen.owner.key}));
    const auto before = TRY(read_grant(*files_, seen.owner.key));
    auto grant = before;
    if (!grant) continue;
    for (StoredUser& user : grant->users) {
      if (user.user.id == id && user.user.pod.empty()) user.user.pod = pod;
    }
    if (grant->users == before->users) continue;
    TRY_VOID(add_ids(*files_, *grant, before));
    TRY_VOID(write_grant(*files_, *grant));
  }
  return {};
}

Result<void> Ledger::give_back(std::string_view key) const {
  if (!is_file_name(key, kLongestKey)) return {};
  const std::string name(key);
  const KeyLock lock = TRY(KeyLock::take(*files_, {name}));
  const auto grant = TRY(read_grant(*files_, name));
  if (!grant) return settle(key);
  TRY_VOID(return_grant(*files_, *grant));
  for (const StoredUser& user : grant->users) {
    if (is_worked_on_here(*files_, user)) TRY_VOID(remove_marker(*files_, name, *user.worker, std::nullopt));
  }
  return settle(key);
}

Result<std::optional<Grant>> Ledger::bind(std::string_view token, const Owner& owner, const GrantUser& user) const {
  if (!is_token(token)) return std::optional<Grant>();
  if (!is_file_name(owner.key, kLongestKey)) return make_error("cannot use grant key `{}`", owner.key);
  if (!is_file_name(user.key, kLongestKey)) return make_error("cannot use container key `{}`", user.key);
  const std::string key = token_owner(token).key;
  if (key == owner.key || key == user.key) return make_error("cannot bind a token to itself");
  // Which HCAs to lock stands in the grant, which may change until they are.
  for (int attempt = 0; attempt < kBindAttempts; ++attempt) {
    const auto seen = TRY(read_grant(*files_, key));
    if (!seen) return bind_user(*files_, key, owner, user);
    std::vector<std::string> names;
    for (const PlannedHca& hca : held_hcas(*seen))
      names.push_back(booked_as(hca));
    const LockedHcas locked = TRY(lock(names));
    // No record names the view between the return of the token's grant and the new owner's.
    std::vector<std::string> together = {key, owner.key};
    for (const StoredUser& booked : seen->users)
      if (!booked.user.view.empty()) together.push_back(booked.user.view);
    const KeyLock keys = TRY(KeyLock::take(*files_, together));
    const auto source = TRY(read_grant(*files_, key));
    if (!source || !same_hcas(held_hcas(*source), names)) continue;
    for (const StoredUser& booked : source->users)
      TRY_VOID(check_token_user(booked.user, user));
    return std::optional(TRY(bind_grant(*files_, *source, owner, user)));
  }
  return Error{
      .message = "cannot bind the container's token: its grant keeps changing", .code = EAGAIN, .hint = "try again"};
}

Result<std::vector<std::string>> Ledger::make_view(const std::vector<ViewEntry>& entries) const {
  return hook::make_view(*files_, entries);
}

std::vector<Released> Ledger::take_released() const {
  return std::exchange(files_->released, {});
}

std::string Ledger::view_directory() const {
  return files_->views.path;
}

}  // namespace hook
