#include "hook/ledger/book.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "hook/base/failure.hpp"
#include "hook/ledger/gone.hpp"
#include "hook/ledger/index.hpp"
#include "hook/ledger/record.hpp"
#include "hook/ledger/steps.hpp"

namespace hook {
namespace {

Error held_alone(const std::string& hca, const std::string& label) {
  return Error{.message = fmt::format("cannot give `{}`: {} holds it alone", hca, label),
               .hint = "wait until it is returned, or ask for another HCA; `rdma-hook recover` says what keeps it",
               .reason = FailureReason::kBusy};
}

// Who holds an HCA, by the error of the look at the grant of this key.
std::string doubtful_holder(const LedgerFiles& files, const std::string& key, const Error& error) {
  const std::string path = grant_path(files, key);
  const std::string unread = unread_grant(path);
  if (!error.message.starts_with(unread)) {
    return fmt::format("a grant that cannot be returned: {}{}", error.message,
                       error.hint.empty() ? "" : fmt::format(" ({})", error.hint));
  }
  return fmt::format("the grant `{}`, which cannot be read{} ({})", path, error.message.substr(unread.size()),
                     error.hint);
}

// The exclusive grant that another key has of this HCA, if it still lives. looked_at: the key of the last look, also
// where that fails.
Result<std::optional<StoredGrant>> others_exclusive(const LedgerFiles& files, const std::string& hca,
                                                    const std::string& key, std::string& looked_at) {
  const auto holder = TRY(exclusive_key(files, hca));
  if (!holder || *holder == key) return std::optional<StoredGrant>();
  looked_at = *holder;
  auto grant = TRY(check_exclusive(files, hca, *holder));
  if (grant) return grant;
  // It named nobody: left behind by a process that was killed, or damaged. Then an entry knows better.
  for (const IndexEntry& entry : TRY(list_entries(files, hca))) {
    if (entry.key == key) continue;
    looked_at = entry.key;
    grant = TRY(check_exclusive(files, hca, entry.key));
    if (!grant) continue;
    TRY_VOID(restore_entry(files, hca, entry.key));
    break;
  }
  return grant;
}

// Those that cannot be looked at hold what their entries say; `doubt` gets the first of them.
Result<unsigned> others_units(const LedgerFiles& files, const std::string& hca, const std::string& key, unsigned most,
                              std::string& doubt) {
  return count_others(files, hca, key, most, [&](const IndexEntry& entry) {
    const auto checked = check_entry(files, hca, entry);
    if (checked.has_value()) return *checked;
    if (doubt.empty()) doubt = doubtful_holder(files, entry.key, checked.error());
    return true;
  });
}

// Others' share of one HCA. A grant that cannot be looked at keeps this one from others and no more.
Holding others_holding(const LedgerFiles& files, const std::string& hca, const std::string& key, unsigned limit) {
  Holding holding;
  std::string looked_at;
  const auto other = others_exclusive(files, hca, key, looked_at);
  if (!other) {
    holding.exclusive_holder = doubtful_holder(files, looked_at, other.error());
    return holding;
  }
  if (*other) holding.exclusive_holder = (*other)->owner.label;
  if (limit == 0) return holding;
  const auto units = others_units(files, hca, key, limit, holding.doubtful);
  if (!units) holding.exclusive_holder = doubtful_holder(files, "", units.error());
  if (units) holding.others = *units;
  return holding;
}

Result<void> write_booking(const LedgerFiles& files, const StoredGrant& grant, const std::optional<StoredGrant>& before,
                           const StepWorker& worker) {
  TRY_VOID(begin_change(files, grant.owner.key, worker));
  TRY_VOID(write_grant(files, grant));
  TRY_VOID(add_ids(files, grant, before));
  TRY_VOID(set_index(files, grant.owner.key, all_claims(grant), held_hcas(grant)));
  return before ? remove_ids(files, *before, grant) : Result<void>();
}

// As it was before; what fails here too is repaired when this process is gone.
Result<void> undo_booking(const LedgerFiles& files, const StoredGrant& grant, const std::optional<StoredGrant>& before,
                          const StepWorker& worker) {
  if (before) {
    TRY_VOID(remove_index(files, grant.owner.key, all_claims(grant), all_claims(*before)));
    TRY_VOID(add_ids(files, *before, grant));
    TRY_VOID(write_grant(files, *before));
    TRY_VOID(remove_ids(files, grant, before));
  } else {
    TRY_VOID(return_grant(files, grant));
  }
  return remove_marker(files, grant.owner.key, worker, before);
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
    if (const auto grant = TRY(refresh(*files_, asking.key))) own = held_hcas(*grant);
  }
  Holdings holdings;
  for (const Locked& hca : hcas_) {
    const auto limit = limits.find(hca.name);
    Holding holding = others_holding(*files_, hca.key, asking.key, limit == limits.end() ? 0 : limit->second);
    const PlannedHca* held = find_hca(own, hca.key);
    if (held) {
      holding.own = true;
      holding.own_units = held->held_only ? 0 : held->units;
    }
    holdings.emplace(hca.name, std::move(holding));
  }
  return holdings;
}

Result<void> LockedHcas::check_free(const Owner& owner, std::vector<PlannedHca>& hcas) const {
  for (PlannedHca& hca : hcas) {
    const auto locked =
        std::find_if(hcas_.begin(), hcas_.end(), [&](const Locked& one) { return one.name == hca.name; });
    if (locked == hcas_.end()) return make_error("cannot book `{}`: it is not locked", hca.name);
    const std::string& key = locked->key;
    if (key != hca.name) hca.device = key;
    std::string looked_at;
    const auto other = TRY(others_exclusive(*files_, key, owner.key, looked_at));
    if (other) return held_alone(hca.name, other->owner.label);
    if (hca.mode != Mode::kExclusive) continue;
    std::string doubt;
    if (TRY(others_units(*files_, key, owner.key, 1, doubt)) > 0) {
      return Error{.message = fmt::format("cannot give `{}` to one alone: {}", hca.name,
                                          doubt.empty() ? "others hold it" : "it is held by " + doubt),
                   .hint = "wait until they are gone, or ask for another HCA",
                   .reason = FailureReason::kBusy};
    }
  }
  return {};
}

Result<void> LockedHcas::book(const Owner& owner, std::vector<PlannedHca> hcas, const GrantUser& user) {
  if (!is_file_name(owner.key, kLongestKey)) return make_error("cannot use grant key `{}`", owner.key);
  if (!is_file_name(user.key, kLongestKey)) return make_error("cannot use container key `{}`", user.key);
  // Before this owner's lock: it looks at the grants of others.
  TRY_VOID(check_free(owner, hcas));
  const KeyLock lock = TRY(KeyLock::take(*files_, {owner.key}));
  const auto before = TRY(refresh(*files_, owner.key));
  StoredGrant grant = before ? *before : StoredGrant{owner, {}, {}, std::time(nullptr)};
  // The noted path may be gone while the namespace lives on; this call's leads there.
  const bool moved = is_namespace_gone(grant.owner);
  if (moved) grant.owner = owner;
  // Of a pod: those whose container is gone without having left.
  const bool dropped = owner.kind == Owner::Kind::kNetns &&
                       std::erase_if(grant.users, [](const StoredUser& one) { return is_user_gone(one); }) > 0;
  const auto worker = TRY(add_steps(grant, user, hcas, new_worker(*files_)));
  if (!worker) {
    if (!moved && !dropped) return {};  // as when bind() has brought all of it
    TRY_VOID(write_grant(*files_, grant));
    return remove_ids(*files_, *before, grant);
  }
  auto booked = write_booking(*files_, grant, before, *worker);
  if (!booked) (void)undo_booking(*files_, grant, before, *worker).has_value();
  return booked;
}

}  // namespace hook
