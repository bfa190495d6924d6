#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hook/ledger/ledger_locked.hpp"
#include "hook/ledger/ledger_steps.hpp"
#include "hook/ledger/ledger_views.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::make_error;
using fabric::Result;

constexpr int kBindAttempts = 3;

bool is_token(std::string_view token) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return token.size() == 32 && std::all_of(token.begin(), token.end(), digit);
}

bool same_hcas(const std::vector<PlannedHca>& left, const std::vector<std::string>& names) {
  return std::all_of(left.begin(), left.end(), [&](const PlannedHca& hca) {
    return std::find(names.begin(), names.end(), hca.name) != names.end();
  });
}

// The token is a user of the grant that the container will use: the HCAs stay where they are. While the view moves, the
// grant lists both users, so that whichever has it is known.
Result<std::optional<Grant>> bind_user(const LedgerFiles& files, const std::string& token_key, const Owner& owner,
                                       const GrantUser& user) {
  const KeyLock lock = TRY(KeyLock::take(files, {owner.key}));
  auto grant = TRY(refresh(files, owner.key, nullptr, token_key));
  const auto is_token_user = [&](const StoredUser& other) { return other.user.key == token_key; };
  if (!grant || std::none_of(grant->users.begin(), grant->users.end(), is_token_user)) return std::optional<Grant>();
  add_steps(*grant, user, {}, files.self);
  TRY_VOID(make_empty_file(files.pending, marker_name(owner.key, files.self)));
  TRY_VOID(write_grant(files, *grant));
  TRY_VOID(move_view(files, token_key, user.key));
  std::erase_if(grant->users, is_token_user);
  TRY_VOID(write_grant(files, *grant));
  return std::optional(to_grant(*grant));
}

// The grant that the token has for itself goes over. Under the locks of its HCAs and of both keys.
Result<Grant> bind_grant(const LedgerFiles& files, const StoredGrant& source, const Owner& owner,
                         const GrantUser& user) {
  auto grant = TRY(refresh(files, owner.key, nullptr)).value_or(StoredGrant{owner, {}, {}, source.since});
  add_steps(grant, user, held_hcas(source), files.self);
  TRY_VOID(make_empty_file(files.pending, marker_name(owner.key, files.self)));
  const std::string returned = TRY(begin_return(files, source));
  TRY_VOID(write_grant(files, grant));
  TRY_VOID(set_index(files, owner.key, all_claims(grant), held_hcas(grant), source.owner.key));
  for (const StoredUser& from : source.users)
    TRY_VOID(move_view(files, from.user.key, user.key));
  TRY_VOID(finish_return(files, returned, source));
  return to_grant(grant);
}

}  // namespace

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
      names.push_back(hca.name);
    const LockedHcas locked = TRY(lock(names));
    const KeyLock keys = TRY(KeyLock::take(*files_, {key, owner.key}));
    const auto source = TRY(read_grant(*files_, key));
    if (!source || !same_hcas(held_hcas(*source), names)) continue;
    return std::optional(TRY(bind_grant(*files_, *source, owner, user)));
  }
  return Error{
      .message = "cannot bind the container's token: its grant keeps changing", .code = EAGAIN, .hint = "try again"};
}

}  // namespace hook
