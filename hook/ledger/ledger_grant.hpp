// One grant as DIR/grants/KEY.json keeps it.
//
// {"format": 1, "owner": {"kind", "key", "label", "netns": {"dev", "ino", "path"}}, "since",
//  "hcas": [{"name", "mode", "units", "limit"}],
//  "users": [{"key", "id", "bundle", "pod", "view", "process": {"pid", "start_time"}, "cgroup": {...}, "state": {...},
//             "settled", "ended", "worker": {...}, "hcas": [...]}]}
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

struct StoredUser {
  GrantUser user;
  // While its steps run: who works on them, and what they are to add to the grant. Both go when the steps are done.
  std::optional<ProcessIdentity> worker;
  std::vector<PlannedHca> hcas;
  // It used the grant before these steps: when they are undone, it still does.
  bool settled = false;
  // It left, but what it had could not be undone yet.
  bool ended = false;
  friend bool operator==(const StoredUser&, const StoredUser&) = default;
};

struct StoredGrant {
  Owner owner;
  std::vector<PlannedHca> hcas;  // what settled users brought
  std::vector<StoredUser> users;
  std::int64_t since = 0;
};

// What is held: grant.hcas and what the users' unfinished steps add; one entry an HCA.
std::vector<PlannedHca> held_hcas(const StoredGrant& grant);
// The same with every entry that an HCA has: each may have left a trace in the index.
std::vector<PlannedHca> all_claims(const StoredGrant& grant);
const PlannedHca* find_hca(const std::vector<PlannedHca>& hcas, std::string_view name);
// One HCA held twice by the same owner is held once: the stronger mode, the larger number.
void merge_hcas(std::vector<PlannedHca>& into, const std::vector<PlannedHca>& more);

// A user joins with these HCAs, its steps in the hands of `worker`; one that is there already goes on with them.
void add_steps(StoredGrant& grant, const GrantUser& user, const std::vector<PlannedHca>& hcas,
               const ProcessIdentity& worker);
// The steps of this worker are done.
void settle_users(StoredGrant& grant, const ProcessIdentity& worker);
// Undoes the steps whose worker is proven to be gone; whether there were any.
bool drop_dead_steps(StoredGrant& grant);
// Proven, of the process that works on its steps, of its runtime's state and of its cgroup as well. A user without a
// process never is, unless it has ended.
bool is_user_gone(const StoredUser& user);
// Drops a pod's tokens whose requester is gone; whether there were any. What they brought stays: once settled, it is
// not recorded whose it was. `binding`: a token that stays, because its container has come.
bool drop_dead_tokens(StoredGrant& grant, std::string_view binding);
// As Grant::vanished says. A grant that the token `binding` uses has not vanished.
bool is_vanished(const StoredGrant& grant, std::string_view binding = {});

Grant to_grant(const StoredGrant& grant);

std::string grant_text(const StoredGrant& grant);
// path: for messages. Errors: JSON's, a member that is missing or of another type or range, a key that is not `key`.
fabric::Result<StoredGrant> parse_grant(std::string_view text, const std::string& path, std::string_view key);

}  // namespace hook
