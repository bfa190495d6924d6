#include "hook/ledger/ledger_book.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include "hook/base/failure.hpp"
#include "hook/ledger/ledger_ids.hpp"
#include "hook/ledger/ledger_steps.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::make_error;
using fabric::Result;

Error held_alone(const std::string& hca, const std::string& label) {
  return Error{.message = fmt::format("cannot give `{}`: {} holds it alone", hca, label),
               .hint = "wait until it is returned, or ask for another HCA",
               .reason = FailureReason::kBusy};
}

// The exclusive grant that another key has of this HCA, if it still lives.
Result<std::optional<StoredGrant>> others_exclusive(const LedgerFiles& files, const std::string& hca,
                                                    const std::string& key) {
  const auto holder = TRY(exclusive_key(files, hca));
  if (!holder || *holder == key) return std::optional<StoredGrant>();
  return check_exclusive(files, hca, *holder, nullptr);
}

Result<unsigned> others_units(const LedgerFiles& files, const std::string& hca, const std::string& key, unsigned most) {
  return count_others(files, hca, key, most,
                      [&](const IndexEntry& entry) { return check_entry(files, hca, entry, nullptr); });
}

// Others' share of one HCA.
Result<Holding> others_holding(const LedgerFiles& files, const std::string& hca, const std::string& key,
                               unsigned limit) {
  Holding holding;
  if (const auto other = TRY(others_exclusive(files, hca, key))) holding.exclusive_holder = other->owner.label;
  if (limit > 0) holding.others = TRY(others_units(files, hca, key, limit));
  return holding;
}

Result<void> write_booking(const LedgerFiles& files, const StoredGrant& grant,
                           const std::optional<StoredGrant>& before) {
  TRY_VOID(make_empty_file(files.pending, marker_name(grant.owner.key, files.self)));
  TRY_VOID(add_ids(files, grant, before));
  TRY_VOID(write_grant(files, grant));
  TRY_VOID(set_index(files, grant.owner.key, all_claims(grant), held_hcas(grant)));
  return before ? remove_ids(files, *before, grant) : Result<void>();
}

// As it was before; what fails here too is repaired when this process is gone.
Result<void> undo_booking(const LedgerFiles& files, const StoredGrant& grant,
                          const std::optional<StoredGrant>& before) {
  if (before) {
    TRY_VOID(remove_index(files, grant.owner.key, all_claims(grant), all_claims(*before)));
    TRY_VOID(add_ids(files, *before, grant));
    TRY_VOID(write_grant(files, *before));
    TRY_VOID(remove_ids(files, grant, before));
  } else {
    TRY_VOID(return_grant(files, grant));
  }
  return remove_marker(files, grant.owner.key, files.self, before);
}

}  // namespace

LockedHcas::LockedHcas(std::shared_ptr<const LedgerFiles> files, std::vector<Locked> hcas)
    : files_(std::move(files)), hcas_(std::move(hcas)) {}

Result<Holdings> LockedHcas::holdings(const Owner& asking, const std::map<std::string, unsigned>& limits) const {
  if (!is_file_name(asking.key, kLongestKey)) return make_error("cannot use grant key `{}`", asking.key);
  std::vector<PlannedHca> own;
  {
    // A namespace's number is used again as soon as it is free: what was noted under it may be another pod's.
    const KeyLock lock = TRY(KeyLock::take(*files_, {asking.key}));
    if (const auto grant = TRY(refresh(*files_, asking.key, nullptr))) own = held_hcas(*grant);
  }
  Holdings holdings;
  for (const Locked& hca : hcas_) {
    const auto limit = limits.find(hca.name);
    auto others = others_holding(*files_, hca.name, asking.key, limit == limits.end() ? 0 : limit->second);
    Holding holding;
    if (others) {
      holding = std::move(others).value();
    } else {
      // A dead grant that cannot be returned, as its netdev is still away, keeps its own HCA from others and no more.
      holding.exclusive_holder = "a grant that cannot be returned: " + others.error().message;
    }
    if (const PlannedHca* held = find_hca(own, hca.name)) {
      holding.own = true;
      holding.own_units = held->units;
    }
    holdings.emplace(hca.name, std::move(holding));
  }
  return holdings;
}

Result<void> LockedHcas::check_free(const Owner& owner, const std::vector<PlannedHca>& hcas) const {
  for (const PlannedHca& hca : hcas) {
    const auto locked =
        std::find_if(hcas_.begin(), hcas_.end(), [&](const Locked& one) { return one.name == hca.name; });
    if (locked == hcas_.end()) return make_error("cannot book `{}`: it is not locked", hca.name);
    const auto other = TRY(others_exclusive(*files_, hca.name, owner.key));
    if (other) return held_alone(hca.name, other->owner.label);
    if (hca.mode != Mode::kExclusive) continue;
    if (TRY(others_units(*files_, hca.name, owner.key, 1)) > 0) {
      return Error{.message = fmt::format("cannot give `{}` to one alone: others hold it", hca.name),
                   .hint = "wait until they are gone, or ask for another HCA",
                   .reason = FailureReason::kBusy};
    }
  }
  return {};
}

Result<void> LockedHcas::book(const Owner& owner, const std::vector<PlannedHca>& hcas, const GrantUser& user) {
  if (!is_file_name(owner.key, kLongestKey)) return make_error("cannot use grant key `{}`", owner.key);
  if (!is_file_name(user.key, kLongestKey)) return make_error("cannot use container key `{}`", user.key);
  // Before this owner's lock: it looks at the grants of others.
  TRY_VOID(check_free(owner, hcas));
  const KeyLock lock = TRY(KeyLock::take(*files_, {owner.key}));
  const auto before = TRY(refresh(*files_, owner.key, nullptr));
  StoredGrant grant = before ? *before : StoredGrant{owner, {}, {}, std::time(nullptr)};
  // The noted path may be gone while the namespace lives on; this call's leads there.
  if (grant.owner.netns && is_proven_gone(look_at(*grant.owner.netns))) grant.owner = owner;
  // Of a pod: those whose container is gone without having left.
  if (owner.kind == Owner::Kind::kNetns) std::erase_if(grant.users, is_user_gone);
  add_steps(grant, user, hcas, files_->self);
  auto booked = write_booking(*files_, grant, before);
  if (!booked) (void)undo_booking(*files_, grant, before).has_value();
  return booked;
}

}  // namespace hook
