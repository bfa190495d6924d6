#include "hook/ledger/ledger_grant.hpp"

#include <sys/stat.h>

#include <algorithm>

namespace hook {
namespace {

int strength(Mode mode) {
  switch (mode) {
    case Mode::kHca:
      return 0;
    case Mode::kShared:
      return 1;
    case Mode::kSharedMulti:
      return 2;
    case Mode::kExclusive:
      return 3;
  }
  return 3;
}

bool is_dead_token(const StoredUser& user, std::string_view binding) {
  return user.user.key != binding && is_token_key(user.user.key) && !is_user_alive(user);
}

}  // namespace

const PlannedHca* find_hca(const std::vector<PlannedHca>& hcas, std::string_view name) {
  const auto found = std::find_if(hcas.begin(), hcas.end(), [&](const PlannedHca& hca) { return hca.name == name; });
  return found == hcas.end() ? nullptr : &*found;
}

void merge_hcas(std::vector<PlannedHca>& into, const std::vector<PlannedHca>& more) {
  for (const PlannedHca& hca : more) {
    const auto found = std::find_if(into.begin(), into.end(), [&](const auto& held) { return held.name == hca.name; });
    if (found == into.end()) {
      into.push_back(hca);
      continue;
    }
    if (strength(hca.mode) > strength(found->mode)) found->mode = hca.mode;
    found->units = std::max(found->units, hca.units);
    if (hca.limit) found->limit = hca.limit;
  }
}

std::vector<PlannedHca> held_hcas(const StoredGrant& grant) {
  auto held = grant.hcas;
  for (const StoredUser& user : grant.users)
    merge_hcas(held, user.hcas);
  return held;
}

std::vector<PlannedHca> all_claims(const StoredGrant& grant) {
  auto claims = held_hcas(grant);
  claims.insert(claims.end(), grant.hcas.begin(), grant.hcas.end());
  for (const StoredUser& user : grant.users)
    claims.insert(claims.end(), user.hcas.begin(), user.hcas.end());
  return claims;
}

void add_steps(StoredGrant& grant, const GrantUser& user, const std::vector<PlannedHca>& hcas,
               const ProcessIdentity& worker) {
  const auto same = [&](const StoredUser& other) { return other.user.key == user.key; };
  auto found = std::find_if(grant.users.begin(), grant.users.end(), same);
  if (found == grant.users.end()) found = grant.users.insert(found, StoredUser{});
  found->user = user;
  found->worker = worker;
  merge_hcas(found->hcas, hcas);
}

void settle_users(StoredGrant& grant, const ProcessIdentity& worker) {
  for (StoredUser& user : grant.users) {
    if (user.worker != worker) continue;
    merge_hcas(grant.hcas, user.hcas);
    user.hcas.clear();
    user.worker.reset();
    user.settled = true;
  }
}

bool drop_dead_steps(StoredGrant& grant) {
  bool any = false;
  for (StoredUser& user : grant.users) {
    if (!user.worker || is_alive(*user.worker)) continue;
    user.worker.reset();
    user.hcas.clear();
    any = true;
  }
  if (!any) return false;
  std::erase_if(grant.users, [](const StoredUser& user) { return !user.worker && !user.settled; });
  return true;
}

bool exists(const NetnsIdentity& netns) {
  struct stat info {};
  return ::stat(netns.path.c_str(), &info) == 0 && info.st_dev == netns.dev && info.st_ino == netns.ino;
}

bool is_user_alive(const StoredUser& user) {
  if (user.worker && is_alive(*user.worker)) return true;
  return !user.user.process || is_alive(*user.user.process);
}

bool drop_dead_tokens(StoredGrant& grant, std::string_view binding) {
  if (grant.owner.kind != Owner::Kind::kNetns) return false;
  return std::erase_if(grant.users, [&](const StoredUser& user) { return is_dead_token(user, binding); }) > 0;
}

bool is_vanished(const StoredGrant& grant, std::string_view binding) {
  if (grant.owner.kind != Owner::Kind::kNetns) {
    return std::none_of(grant.users.begin(), grant.users.end(), is_user_alive);
  }
  // No container has come, and none will: a namespace may outlive that for ever. Without any user it is another matter:
  // its containers are between two starts.
  const auto dead_token = [&](const StoredUser& user) { return is_dead_token(user, binding); };
  if (!grant.users.empty() && std::all_of(grant.users.begin(), grant.users.end(), dead_token)) return true;
  if (grant.owner.netns && exists(*grant.owner.netns)) return false;
  // The path is gone; the namespace may live on in the processes of its containers. A user without a process proves
  // nothing here.
  return std::none_of(grant.users.begin(), grant.users.end(),
                      [](const StoredUser& user) { return (user.worker || user.user.process) && is_user_alive(user); });
}

Grant to_grant(const StoredGrant& grant) {
  Grant result{.owner = grant.owner, .hcas = held_hcas(grant), .users = {}, .since = grant.since};
  for (const StoredUser& user : grant.users) {
    result.users.push_back(user.user);
    result.pending = result.pending || user.worker.has_value();
  }
  result.vanished = is_vanished(grant);
  return result;
}

}  // namespace hook
