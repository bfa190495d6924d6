// Why neither a crash nor a race lets two owners hold one exclusive HCA, or loses a grant. Terms: each owner has a key,
// the file name of its grant. Steps are an unfinished change of one user in a grant. Their worker is the process that
// makes the change, and their marker is a file in pending/ that exists until the change is done.
//
// 1. DIR/grants/KEY.json is the truth: an owner without this file holds nothing. The index (holders/, exclusive) lists
//    the grants to read. It may list too many grants, never too few. An entry without a grant is stale; the next call
//    that needs an exact answer removes it. If a part of the index was removed by hand, the next decision about that
//    HCA makes it again from the grants (rebuild_hca()). The index of ids (ids/) lacks an id only until the change that
//    adds the id is done.
// 2. The files of a key (its grant, index entries and the markers in pending/) change only under the lock of that key.
//    So no process can replace an exclusive link that names KEY while the process with the lock reads and then removes
//    that link. One removal needs no lock: a process removes the marker of its own change when that change is done.
// 3. A change that adds an HCA to an owner's grant also needs the lock of that HCA. A change that removes an HCA does
//    not. A process that holds the lock of one HCA can therefore release all HCAs of a stale grant.
// 4. Locks are taken in this order: first the HCAs of the call, by device; then, in one step, all keys and names of
//    views that the call needs. A process that holds the lock of a key takes no further lock.
// 5. If a grant or one of its markers cannot be read, the grant holds each HCA that the index lists for it, and each
// HCA
//    for which a decision has to make the index again: nothing proves then that the grant does not have it.
// 6. A claim holds its HCAs alone: the grant of a container that uses them names the claim (PlannedHca::claim), and
//    DIR/hca has no entry of it. Such a grant begins only under the lock of the claim's key (book, bind), and the claim
//    ends only under this lock, after it has read the grants that DIR/ids lists for it (release_claim()). So no grant
//    uses an HCA whose claim has ended.
//
// Each change writes the grant once; new HCAs are written as steps (an unfinished change) of one user. The steps are
// done when their marker file in pending/ is removed: from then on, read_grant() counts the HCAs of the steps as HCAs
// of the grant, and the next change records them so.
//
// The order of writes. A process may be killed after each write, and the next call can use what it finds:
//   book    Write the marker in pending/, then the grant with the steps (the unfinished change) of the new user, then
//           the index. If the process is killed, the next call (refresh()) drops its steps, first from the index, then
//           from the grant, and then removes the marker. No process saw the gap between grant and index, because the
//           HCA was locked. As long as a grant lists steps, only their own process removes their marker, because
//           without the marker the steps count as done.
//   settle  Remove the marker. If the process is killed before this removal, the next call rolls back as for book. If
//           it is killed afterwards, the steps are done.
//   release One rename moves the grant to pending/. From here on the HCAs are free, and the file lists the index
//           entries to remove. Then remove these entries, then that file. If the entries were removed first, a process
//           killed half-way would leave an owner with a grant of an HCA that the index shows as free.
//   leave   Write the grant without the user, or release it as above. Both first end the effects of the grant outside
//           the ledger (GrantEffects): until these have ended, the grant is held.
//   bind    Write the marker of the new owner. Rename the token's grant as for release. Write the grant of the new
//           owner with the steps, then the index (a rename replaces an exclusive link). Finish the release. If the
//           process is killed before the rename, the token holds the HCAs. If it is killed between the rename and
//           settle, neither the token nor the new owner holds them.
//
// A process with CAP_NET_ADMIN may rename an HCA at any time. Locks, grants and index therefore identify an HCA by its
// device (HcaDevices). Names are for people.
#include "hook/ledger/ledger.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/absence.hpp"
#include "hook/ledger/changes.hpp"
#include "hook/ledger/index.hpp"
#include "hook/ledger/views.hpp"

namespace hook {
namespace {

constexpr int kBindAttempts = 3;
constexpr const char* kLinks = "links";

bool is_token(std::string_view token) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return token.size() == 32 && std::ranges::all_of(token, digit);
}

bool same_hcas(const std::vector<PlannedHca>& left, const std::vector<std::string>& names) {
  return std::ranges::all_of(
      left, [&](const PlannedHca& hca) { return std::ranges::find(names, booked_as(hca)) != names.end(); });
}

// Checks that the token was booked for this container. A process that can read the annotations of a container knows its
// token, and may have written the token into the annotation of another container.
Result<void> check_token_user(const GrantUser& booked, const GrantUser& binding) {
  const bool knows_bundles = !booked.bundle.empty() && !binding.bundle.empty();
  const auto same = knows_bundles ? is_same_directory(booked.bundle, binding.bundle) : Result<bool>(true);
  if (booked.id == binding.id && same.has_value() && *same) return {};
  const auto named = [&](const GrantUser& user) {
    return fmt::format("container `{}`{}", base::printable(user.id),
                       knows_bundles ? fmt::format(" of bundle `{}`", base::printable(user.bundle)) : "");
  };
  return Error{
      fmt::format("the annotation `{}` of {} names a grant of {}", kGrantAnnotation, named(binding), named(booked)),
      EPERM, "remove the annotation: only rdma-runtime and rdma-nri write it", FailureReason::kRefused};
}

bool is_worked_on_here(const LedgerFiles& files, const StoredUser& user) {
  return user.worker && user.worker->process == files.self;
}

// Takes view, container name and, if it is missing, the pod from the token. The container's config.json already mounts
// this view, but need not have pod and name; rdma-nri received both from the engine when it booked for the token.
GrantUser after_token(GrantUser user, const GrantUser& token) {
  if (user.pod.empty()) user.pod = token.pod;
  user.name = token.name;
  user.view = token.view;
  user.more_views = token.more_views;
  return user;
}

// Binds a token that is a user of the pod's grant: the container replaces the token as user, and the HCAs stay in the
// grant.
Result<std::optional<Grant>> bind_user(const LedgerFiles& files, const std::string& token_key, const Owner& owner,
                                       const GrantUser& user) {
  const KeyLock lock = TRY(KeyLock::take(files, {owner.key}));
  auto grant = TRY(refresh(files, owner.key, token_key));
  const auto is_token_user = [&](const StoredUser& other) { return other.user.key == token_key; };
  if (!grant) return std::optional<Grant>();
  const auto before = grant;
  const auto booked = std::ranges::find_if(before->users, is_token_user);
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

// Moves the token's own grant to the container or its pod. Locks: the caller holds the locks of the HCAs and of both
// keys.
Result<Grant> bind_grant(const LedgerFiles& files, const StoredGrant& source, const Owner& owner,
                         const GrantUser& user) {
  const auto before = TRY(refresh(files, owner.key));
  auto grant = before.value_or(StoredGrant{owner, {}, {}, source.since});
  const GrantUser named = source.users.empty() ? user : after_token(user, source.users.front().user);
  const auto worker = TRY(add_steps(grant, named, held_hcas(source), new_worker(files)));
  if (worker) TRY_VOID(begin_change(files, owner.key, *worker));
  const std::string released = TRY(begin_release(files, source));
  TRY_VOID(write_grant(files, grant));
  TRY_VOID(add_ids(files, grant, before));
  TRY_VOID(set_index(files, owner.key, all_claims(grant), held_hcas(grant), source.owner.key));
  TRY_VOID(finish_release(files, released, source));
  return to_grant(grant);
}

// A later call of the engine (StopPodSandbox) may name a pod only by its id: containerd 1.7 does not pass the network
// namespace when the sandbox has ended. So when the last container of a pod leaves, the pod itself stays as a user, and
// its id still leads to the grant.
void keep_pod(StoredGrant& grant, const GrantUser& left) {
  const auto is_known = [&](const StoredUser& user) { return has_id(user.user, left.pod); };
  if (left.pod.empty() || left.id == left.pod || std::ranges::any_of(grant.users, is_known)) return;
  StoredUser pod;
  pod.user = {container_owner(left.pod, "").key, left.pod, {}};
  pod.user.pod = left.pod;
  pod.settled = true;
  grant.users.push_back(std::move(pod));
}

// Records that the user has ended. Best effort: without this note, the grant is held until the user's process is proven
// gone. If the release has already moved the grant to pending/, no note is needed: repair_pending() ends the release.
void note_end(const LedgerFiles& files, const std::string& key, std::string_view user_key) {
  auto grant = read_grant(files, key);
  if (!grant || !*grant) return;
  for (StoredUser& user : (*grant)->users)
    user.ended = user.ended || user.user.key == user_key;
  (void)write_grant(files, **grant).has_value();
}

// Calls use(grant) for each key, in order. Skips a grant that another process releases during the loop.
Result<void> each_grant(const auto& find, std::vector<std::string> keys, Ledger::Unread* unread, const auto& use) {
  std::ranges::sort(keys);
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

Result<Ledger> KeptLedger::open(std::shared_ptr<const GrantEffects> effects, std::string container) {
  struct stat now {};
  const auto is_same = [](const timespec& left, const timespec& right) {
    return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
  };
  if (files_ && files_.use_count() == 1 && ::stat(path_.c_str(), &now) == 0 && now.st_dev == seen_.st_dev &&
      now.st_ino == seen_.st_ino && is_same(now.st_mtim, seen_.st_mtim) && is_same(now.st_ctim, seen_.st_ctim)) {
    files_->begin_call(std::move(effects), std::move(container));
    return Ledger(files_);
  }
  files_.reset();
  const base::ChangeStep step;
  auto files = TRY(LedgerFiles::open(path_, std::move(effects), std::move(container)));
  if (::fstat(files->root.fd.get(), &seen_) == 0 && step.is_after(seen_.st_mtim) && step.is_after(seen_.st_ctim))
    files_ = files;
  return Ledger(std::move(files));
}

void Ledger::expect_new(std::string_view key) const {
  files_->new_key = key;
}

void Ledger::limit_waits(int ms) const {
  files_->key_wait_ms = ms;
}

Result<bool> Ledger::may_have_id(std::string_view id) const {
  return has_list_of_id(*files_, id);
}

Result<LockedHcas> Ledger::lock(const std::vector<std::string>& hcas, int timeout_ms, const HcaDevices& devices,
                                bool names_process) const {
  std::set<std::pair<std::string, std::string>> names;  // (device, name): the device gives the order
  for (const std::string& name : hcas) {
    TRY_VOID(check_hca_name(name));
    const auto device = devices.find(name);
    names.emplace(device == devices.end() ? name : device->second, name);
  }
  const LockTime time(timeout_ms);
  std::vector<LockedHcas::Locked> locked;
  for (const auto& [key, name] : names) {
    // Two HCAs may have one device: before Linux 5.11, the device of an rxe HCA is the PCI function of its netdev.
    // flock(2) of the same file through a second descriptor would wait for this process itself.
    const bool is_locked = !locked.empty() && locked.back().key == key;
    auto lock = is_locked ? base::UniqueFd() : TRY(lock_hca(*files_, key, time, locked.empty(), names_process));
    locked.push_back({name, key, std::move(lock)});
  }
  return LockedHcas(files_, std::move(locked));
}

Holding Ledger::glance(const std::string& hca, std::string_view key, unsigned most) const {
  constexpr const char* kUnknown = "an owner that was not looked up";
  Holding holding;
  const auto state = read_state(*files_, hca);
  if (!state || state->exclusive_key().value_or(std::string(key)) != key) holding.exclusive_owner = kUnknown;
  if (most == 0 || holding.exclusive_owner) return holding;
  const auto units = count_others(*files_, hca, key, {most, most}, [](const IndexEntry&) { return true; });
  if (!units) holding.exclusive_owner = kUnknown;
  if (units) holding.others = units->value_or(0);
  return holding;
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

Result<Ledger::OnceHeld> Ledger::once_held(const std::set<std::string>& except) const {
  OnceHeld found;
  for (const auto& [device, state] : TRY(read_states(*files_, except))) {
    const auto key = state ? state->exclusive_key() : std::nullopt;
    const auto grant = key ? read_record(*files_, *key) : Result<std::optional<StoredGrant>>(std::nullopt);
    PlannedHca unread;
    unread.device = device;
    auto hca = state && grant ? held_hca(*grant, device) : std::optional(std::move(unread));
    found.others = found.others || !hca;
    if (hca) found.exclusive.push_back(*std::move(hca));
  }
  return found;
}

Result<Ledger::OnceHeld> Ledger::once_held_at(const std::string& path, const std::set<std::string>& except) {
  auto files = TRY(LedgerFiles::open_to_list(path));
  if (!files || !files->hca.fd.ok()) return OnceHeld();
  return Ledger(std::move(files)).once_held(except);
}

Result<std::vector<Grant>> Ledger::find_by_id(std::string_view id, Unread* unread) const {
  auto keys = TRY(keys_of_id(*files_, id));
  auto grants = TRY(find_all(*this, std::move(keys), unread));
  // The index may list a grant that no longer has the id (see index.hpp), so check the users of the grant.
  std::erase_if(grants, [&](const Grant& grant) {
    const auto& claim = grant.owner.claim;
    if (claim && std::ranges::find(claim->pods, id) != claim->pods.end()) return false;
    return std::ranges::none_of(grant.users, [&](const GrantUser& user) { return has_id(user, id); });
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
  const auto user = std::ranges::find_if(before->users, leaves);
  if (user == before->users.end()) return {};
  if (is_another_ones_end(*user, files_->self)) {
    if (passed_over) *passed_over = true;
    return {};
  }
  auto grant = before;
  // While a start is rolled back, processes of the container still run, because the runtime ends them after the hook.
  // So the cgroup is not checked then.
  if (!user->worker) TRY_VOID(check_empty(owner, user->user));
  std::erase_if(grant->users, leaves);
  if (owner.kind == Owner::Kind::kNetns && !held_hcas(*grant).empty()) keep_pod(*grant, user->user);
  auto left = write_left(*files_, *before, grant);
  if (!left) note_end(*files_, owner.key, user_key);
  if (!left || !user->worker) return left;
  return remove_marker(*files_, owner.key, *user->worker, grant);
}

Result<void> Ledger::note_pod(std::string_view id, const std::string& pod) const {
  Unread unread;  // ignored: recover() reports these errors
  for (const Grant& seen : TRY(find_by_id(id, &unread))) {
    const KeyLock lock = TRY(KeyLock::take(*files_, {seen.owner.key}));
    const auto before = TRY(read_grant(*files_, seen.owner.key));
    auto grant = before;
    if (!grant) continue;
    for (StoredUser& user : grant->users)
      if (user.user.id == id && user.user.pod.empty()) user.user.pod = pod;
    if (grant->users == before->users) continue;
    // Write the index first: it may list too many grants, never too few. This change has no steps, so if this process
    // is killed between the two writes, no later call rolls the change back or completes it.
    TRY_VOID(add_ids(*files_, *grant, before));
    TRY_VOID(write_grant(*files_, *grant));
  }
  return {};
}

Result<void> Ledger::release_grant(std::string_view key) const {
  if (!is_file_name(key, kLongestKey)) return {};
  const std::string name(key);
  const KeyLock lock = TRY(KeyLock::take(*files_, {name}));
  const auto grant = TRY(read_grant(*files_, name));
  if (!grant) return settle(key);
  // The grant is released before its markers are removed: a marker without a grant does no harm, but an unfinished
  // change in a grant counts as done when its marker is missing.
  TRY_VOID(release_stored_grant(*files_, *grant));
  for (const StoredUser& user : grant->users)
    if (is_worked_on_here(*files_, user)) TRY_VOID(remove_marker(*files_, name, *user.worker, std::nullopt));
  return settle(key);
}

Result<std::optional<Grant>> Ledger::bind(std::string_view token, const Owner& owner, const GrantUser& user) const {
  if (!is_token(token)) return std::optional<Grant>();
  if (!is_file_name(owner.key, kLongestKey))
    return make_error("internal error: grant key `{}` is not 1 to 128 of [A-Za-z0-9_.-]", owner.key);
  if (!is_file_name(user.key, kLongestKey))
    return make_error("internal error: container key `{}` is not 1 to 128 of [A-Za-z0-9_.-]", user.key);
  const std::string key = token_owner(token).key;
  if (key == owner.key || key == user.key)
    return make_error("internal error: the booked token and the container have the same key");
  // The grant lists the HCAs to lock. If the grant changes before they are locked, read it again.
  for (int attempt = 0; attempt < kBindAttempts; ++attempt) {
    const auto seen = TRY(read_grant(*files_, key));
    if (!seen) return bind_user(*files_, key, owner, user);
    std::vector<std::string> names;
    for (const PlannedHca& hca : held_hcas(*seen))
      names.push_back(booked_as(hca));
    const LockedHcas locked = TRY(lock(names));
    // Between the release of the token's grant and the write of the new owner's grant, no record names the view. The
    // lock of the view keeps recover() from removing it. For the same reason a claim that the token uses is locked, so
    // that it cannot end meanwhile.
    std::vector<std::string> together = {key, owner.key};
    for (const PlannedHca& hca : held_hcas(*seen))
      if (!hca.claim.empty()) together.push_back(hca.claim);
    for (const StoredUser& booked : seen->users)
      for (std::string& view : views_of(booked.user))
        together.push_back(std::move(view));
    const KeyLock keys = TRY(KeyLock::take(*files_, together));
    const auto source = TRY(read_grant(*files_, key));
    if (!source || !same_hcas(held_hcas(*source), names)) continue;
    for (const StoredUser& booked : source->users)
      TRY_VOID(check_token_user(booked.user, user));
    return std::optional(TRY(bind_grant(*files_, *source, owner, user)));
  }
  return Error{"cannot move the grant of the token to the container: other calls change the grant", EAGAIN,
               "start the container again"};
}

Result<std::vector<std::string>> Ledger::make_view(const std::string& name,
                                                   const std::vector<ViewEntry>& entries) const {
  return hook::make_view(*files_, name, entries);
}

void Ledger::remove_left_views() const {
  hook::remove_left_views(*files_);
}

std::vector<Released> Ledger::take_released() const {
  return std::exchange(files_->released, {});
}

std::string Ledger::noted_links() const {
  auto text = read_ledger_file(files_->root, kLinks);
  return text && *text ? **std::move(text) : std::string();
}

void Ledger::note_links(std::string_view text) const {
  if (text.size() <= kLargestLedgerFile) (void)files_->replace_file(files_->root, kLinks, text).has_value();
}

const LedgerDirectory& Ledger::directory() const {
  return files_->root;
}

std::string Ledger::view_directory() const {
  return files_->root.path + "/" + kViews;
}

}  // namespace hook
