#include "hook/ledger/book.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/file.hpp"
#include "hook/ledger/absence.hpp"
#include "hook/ledger/changes.hpp"
#include "hook/ledger/index.hpp"
#include "hook/ledger/record.hpp"

namespace hook {
namespace {

Error held_alone(const std::string& hca, const std::string& label) {
  return Error{fmt::format("cannot allocate `{}`: {} holds it exclusively", hca, label), 0,
               "wait for its release or request another HCA; `rdma-hook recover` reports why it is held",
               FailureReason::kBusy};
}

// The index has only the units of the claim, so that further units would not count.
Error more_than_lent(const PlannedHca& hca, const std::string& claim, unsigned units) {
  return Error{
      fmt::format("cannot allocate {} units of `{}`: claim {} has {}", hca.units, hca.name, claim_uid(claim), units),
      EPERM, "let the claim request as many shares", FailureReason::kRefused};
}

// Returns the text that a refusal prints in place of the owner if the owner's grant cannot be checked. If the record
// cannot be read, the text names the file to repair. Otherwise the grant is stale and its release failed, and the text
// has the error of the release.
std::string doubtful_owner(const LedgerFiles& files, const std::string& key, const Error& error) {
  const std::string path = grant_path(files, key);
  const std::string unread = unread_grant(path);
  // Each error of read_record() about the content of the file begins with this text.
  if (!error.message.starts_with(unread))
    return fmt::format("a grant that cannot be released: {}{}", error.message,
                       error.hint.empty() ? "" : fmt::format(" ({})", error.hint));
  return fmt::format("the grant `{}`, which cannot be read{} ({})", path, error.message.substr(unread.size()),
                     error.hint);
}

// The state of an HCA, and the grant of another key that holds it exclusively; nullopt: there is none.
struct Looked {
  HcaState::Kind kind = HcaState::Kind::kUnknown;
  std::optional<StoredGrant> other = {};
};

// Checks the state of an HCA. A stale grant is released and does not count. looked_at: receives the key of the grant
// that was checked last, also on error.
Result<Looked> look_at(const LedgerFiles& files, const std::string& hca, const std::string& key,
                       std::string& looked_at) {
  // Reads the state from all grants if the link is missing, or names a grant that is gone or does not hold the HCA
  // exclusively. The grant in that state may end meanwhile.
  constexpr int kAttempts = 4;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const HcaState state = TRY(read_state(files, hca));
    const auto owner_key = state.exclusive_key();
    if (state.kind == HcaState::Kind::kUnknown) {
      TRY_VOID(rebuild_hca(files, hca, looked_at));
    } else if (!owner_key || *owner_key == key) {
      return Looked{state.kind};
    } else {
      looked_at = *owner_key;
      if (auto grant = TRY(check_exclusive(files, hca, *owner_key))) return Looked{state.kind, std::move(grant)};
    }
  }
  return Error{fmt::format("cannot find the owner of `{}`: other calls change it", hca), EAGAIN,
               "start the container again"};
}

// Returns the units of the HCA that other keys hold, by count_others(). If a grant cannot be checked, the units of its
// index entry count. kind: the state of the HCA; receives the new one if the index is made again. doubt: receives the
// text that describes the first such grant, on error also of a grant that cannot be read.
Result<unsigned> others_units(const LedgerFiles& files, const std::string& hca, const std::string& key,
                              UnitBounds bounds, HcaState::Kind& kind, std::string& doubt) {
  const auto count = [&] {
    return count_others(files, hca, key, bounds, [&](const IndexEntry& entry) {
      const auto checked = check_entry(files, hca, entry);
      if (checked.has_value()) return *checked;
      if (doubt.empty()) doubt = doubtful_owner(files, entry.key, checked.error());
      return true;
    });
  };
  auto units = TRY(count());
  // Without an entry the HCA is free, or its entries were removed by hand. Mode exclusive must know which.
  const bool is_doubtful = kind == HcaState::Kind::kShared && (!units || (*units == 0 && bounds.least == 1));
  if (is_doubtful) {
    std::string looked_at;
    const auto rebuilt = rebuild_hca(files, hca, looked_at);
    if (!rebuilt) {
      doubt = doubtful_owner(files, looked_at, rebuilt.error());
      return rebuilt.error();
    }
    kind = TRY(read_state(files, hca)).kind;
    units = TRY(count());
  }
  return units.value_or(0);
}

// Returns the units of one HCA that other owners hold, and the exclusive owner. A grant that cannot be checked blocks
// this HCA only, so that one damaged record does not stop every start on the node. kind: receives the state of the HCA.
Holding others_holding(const LedgerFiles& files, const std::string& hca, const std::string& key, UnitBounds bounds,
                       HcaState::Kind& kind) {
  Holding holding;
  std::string looked_at;
  const auto looked = look_at(files, hca, key, looked_at);
  if (!looked) {
    holding.exclusive_owner = doubtful_owner(files, looked_at, looked.error());
    return holding;
  }
  kind = looked->kind;
  if (looked->other) holding.exclusive_owner = looked->other->owner.label;
  if (bounds.most == 0) return holding;
  const auto units = others_units(files, hca, key, bounds, kind, holding.doubtful);
  if (!units)
    holding.exclusive_owner = holding.doubtful.empty() ? doubtful_owner(files, "", units.error()) : holding.doubtful;
  if (units) holding.others = *units;
  return holding;
}

std::set<std::string> booked_names(const std::vector<PlannedHca>& hcas) {
  std::set<std::string> names;
  for (const PlannedHca& hca : hcas)
    names.insert(booked_as(hca));
  return names;
}

// Returns the keys to lock for a booking: that of the owner, and of the claims through which it uses HCAs.
std::vector<std::string> keys_of(const std::string& owner, const std::vector<PlannedHca>& hcas) {
  std::set<std::string> keys{owner};
  for (const PlannedHca& hca : hcas)
    if (!hca.claim.empty()) keys.insert(hca.claim);
  return {keys.begin(), keys.end()};
}

// Checks that the claims still hold these HCAs. Locks: the caller holds the claims' keys, so that no claim can end
// before the grant names it.
Result<void> check_claims(const LedgerFiles& files, const std::vector<PlannedHca>& hcas) {
  for (const PlannedHca& hca : hcas) {
    if (hca.claim.empty() || held_hca(TRY(read_grant(files, hca.claim)), booked_as(hca))) continue;
    return Error{fmt::format("cannot allocate `{}`: its claim {} has ended", hca.name, claim_uid(hca.claim)), ESTALE,
                 "start the container again", FailureReason::kBusy};
  }
  return {};
}

Result<void> write_booking(const LedgerFiles& files, const StoredGrant& grant, const std::optional<StoredGrant>& before,
                           const StepWorker& worker) {
  TRY_VOID(begin_change(files, grant.owner.key, worker));
  TRY_VOID(write_grant(files, grant));
  TRY_VOID(add_ids(files, grant, before));
  TRY_VOID(set_index(files, grant.owner.key, all_claims(grant), held_hcas(grant)));
  return before ? remove_ids(files, *before, grant) : Result<void>();
}

// Restores the grant and its index to the state before the booking. If this fails, the marker in pending/ stays, and
// the next call repairs the grant after this process has ended.
Result<void> roll_back_booking(const LedgerFiles& files, const StoredGrant& grant,
                               const std::optional<StoredGrant>& before, const StepWorker& worker) {
  if (before) {
    TRY_VOID(remove_index(files, grant.owner.key, all_claims(grant), all_claims(*before)));
    TRY_VOID(add_ids(files, *before, grant));
    TRY_VOID(write_grant(files, *before));
    TRY_VOID(remove_ids(files, grant, before));
  } else {
    TRY_VOID(release_stored_grant(files, grant));
  }
  return remove_marker(files, grant.owner.key, worker, before);
}

// Returns the HCAs of the owner's grant. The key of a pod's grant has the inode number of the pod's network namespace,
// and the kernel reuses such numbers. So this grant may belong to an earlier pod. refresh() then releases it, so that
// the HCAs of the earlier pod do not count as those of the owner.
Result<std::vector<PlannedHca>> own_hcas(const LedgerFiles& files, const std::string& key) {
  // Without a grant there is nothing to refresh.
  if (!TRY(read_grant(files, key))) return std::vector<PlannedHca>();
  const KeyLock lock = TRY(KeyLock::take(files, {key}));
  const auto grant = TRY(refresh(files, key));
  return grant ? held_hcas(*grant) : std::vector<PlannedHca>();
}

}  // namespace

LockedHcas::LockedHcas(std::shared_ptr<const LedgerFiles> files, std::vector<Locked> hcas)
    : files_(std::move(files)), hcas_(std::move(hcas)) {}

LockedHcas::~LockedHcas() {
  std::vector<int> fds;
  for (Locked& hca : hcas_)
    if (hca.lock.ok()) fds.push_back(hca.lock.release());
  base::close_all(fds);
}

Result<Holdings> LockedHcas::holdings(const Owner& requesting, const std::map<std::string, UnitBounds>& bounds) const {
  if (!is_file_name(requesting.key, kLongestKey))
    return make_error("internal error: grant key `{}` is not 1 to 128 of [A-Za-z0-9_.-]", requesting.key);
  const auto own = TRY(own_hcas(*files_, requesting.key));
  Holdings holdings;
  asked_for_ = requesting.key;
  free_.clear();
  lent_ = TRY(find_lent(requesting, own));
  for (const Locked& hca : hcas_) {
    const auto of_hca = bounds.find(hca.name);
    const UnitBounds counted = of_hca == bounds.end() ? UnitBounds() : of_hca->second;
    HcaState::Kind kind = HcaState::Kind::kUnknown;
    // The entries of a claim that the owner may use count as its own.
    const auto lent = lent_.find(hca.key);
    Holding holding =
        others_holding(*files_, hca.key, lent == lent_.end() ? requesting.key : lent->second.claim, counted, kind);
    if (lent != lent_.end()) {
      holding.own = true;
      holding.own_units = lent->second.units;
    } else if (!holding.exclusive_owner) {
      free_[hca.key] = {.is_free = kind == HcaState::Kind::kFree,
                        .is_own = kind == HcaState::Kind::kExclusive,
                        .is_unused = counted.least == 1 && holding.others == 0};
    }
    const PlannedHca* held = find_hca(own, hca.key);
    if (held) {
      holding.own = true;
      holding.own_units = std::max(holding.own_units, held->held_only ? 0 : held->units);
    }
    holdings.emplace(hca.name, std::move(holding));
  }
  return holdings;
}

Result<LockedHcas::LentHcas> LockedHcas::find_lent(const Owner& owner, const std::vector<PlannedHca>& own) const {
  LentHcas lent;
  std::set<std::string> claims(owner.claims.begin(), owner.claims.end());
  // All containers of a pod share its grant, so that a container may use the HCAs of another container's claim.
  for (const PlannedHca& hca : own)
    if (!hca.claim.empty()) claims.insert(hca.claim);
  for (const std::string& claim : claims) {
    const auto grant = TRY(read_grant(*files_, claim));
    if (!grant) continue;
    for (const PlannedHca& hca : held_hcas(*grant)) {
      Lent& one = lent.try_emplace(booked_as(hca), Lent{claim, 0}).first->second;
      if (!hca.held_only) one.units += hca.units;
    }
  }
  return lent;
}

Result<std::set<std::string>> LockedHcas::check_free(const Owner& owner, std::vector<PlannedHca>& hcas) const {
  std::set<std::string> own;
  for (PlannedHca& hca : hcas) {
    const auto locked = std::ranges::find_if(hcas_, [&](const Locked& one) { return one.name == hca.name; });
    if (locked == hcas_.end()) return make_error("internal error: cannot book `{}`: it is not locked", hca.name);
    const std::string& key = locked->key;
    if (key != hca.name) hca.device = key;
    if (const auto lent = asked_for_ == owner.key ? lent_.find(key) : lent_.end(); lent != lent_.end()) {
      if (const unsigned units = std::max(lent->second.units, 1U); hca.units > units && !hca.held_only)
        return more_than_lent(hca, lent->second.claim, units);
      hca.claim = lent->second.claim;
      continue;
    }
    const auto known = asked_for_ == owner.key ? free_.find(key) : free_.end();
    Free free = known == free_.end() ? Free() : known->second;
    if (known == free_.end()) {
      std::string looked_at;
      const Looked looked = TRY(look_at(*files_, key, owner.key, looked_at));
      if (looked.other) return held_alone(hca.name, looked.other->owner.label);
      free.is_free = looked.kind == HcaState::Kind::kFree;
      free.is_own = looked.kind == HcaState::Kind::kExclusive;
    }
    if (hca.mode != Mode::kExclusive) {
      if (free.is_free) TRY_VOID(write_state(*files_, key, {HcaState::Kind::kShared}));
      if (free.is_own) own.insert(key);
      continue;
    }
    if (free.is_unused) continue;
    std::string doubt;
    auto kind = free.is_free ? HcaState::Kind::kFree : HcaState::Kind::kShared;
    if (TRY(others_units(*files_, key, owner.key, {1, 1}, kind, doubt)) > 0) {
      return Error{fmt::format("cannot allocate `{}` exclusively: {}", hca.name,
                               doubt.empty() ? "other containers hold it" : "it is held by " + doubt),
                   0, "wait until the HCA is released, or request another HCA", FailureReason::kBusy};
    }
  }
  return own;
}

void LockedHcas::expect_own(const std::vector<PlannedHca>& hcas) {
  own_ = booked_names(hcas);
}

Result<void> LockedHcas::book(const Owner& owner, std::vector<PlannedHca> hcas, const GrantUser& user) {
  if (!is_file_name(owner.key, kLongestKey))
    return make_error("internal error: grant key `{}` is not 1 to 128 of [A-Za-z0-9_.-]", owner.key);
  if (!is_file_name(user.key, kLongestKey))
    return make_error("internal error: container key `{}` is not 1 to 128 of [A-Za-z0-9_.-]", user.key);
  // check_free() locks the keys of other grants, one at a time, so it comes before the lock of this owner's key.
  const auto own = TRY(check_free(owner, hcas));
  const KeyLock lock = TRY(KeyLock::take(*files_, keys_of(owner.key, hcas)));
  TRY_VOID(check_claims(*files_, hcas));
  const auto before = TRY(refresh(*files_, owner.key));
  const auto held = booked_names(before ? held_hcas(*before) : std::vector<PlannedHca>());
  if (own_ && held != *own_)
    return Error{fmt::format("cannot allocate: another call changed the grant of {} meanwhile", owner.label), ESTALE,
                 "start the container again"};
  // A release of the owner needs no lock of the HCA. A release after the check has set the link to "none".
  for (const std::string& hca : own)
    if (!held.contains(hca)) TRY_VOID(write_state(*files_, hca, {HcaState::Kind::kShared}));
  StoredGrant grant = before ? *before : StoredGrant{owner, {}, {}, std::time(nullptr)};
  // The recorded path of the namespace may be gone while the namespace lives on. This call found the same namespace at
  // another path, so the grant gets the new path.
  // A claim that is prepared again may have other pods than before.
  const bool moved = is_namespace_absent(grant.owner) || grant.owner.claim != owner.claim;
  if (moved) grant.owner = owner;
  // A pod's grant outlives its containers, so drop the users that ended without a poststop.
  const bool dropped = owner.kind == Owner::Kind::kNetns &&
                       std::erase_if(grant.users, [](const StoredUser& one) { return is_user_absent(one); }) > 0;
  const auto worker = TRY(add_steps(grant, user, hcas, new_worker(*files_)));
  if (!worker) {
    if (!moved && !dropped) return {};  // an earlier bind() has added this user and these HCAs
    TRY_VOID(add_ids(*files_, grant, before));
    TRY_VOID(write_grant(*files_, grant));
    return remove_ids(*files_, *before, grant);
  }
  auto booked = write_booking(*files_, grant, before, *worker);
  if (!booked) (void)roll_back_booking(*files_, grant, before, *worker).has_value();
  return booked;
}

}  // namespace hook
