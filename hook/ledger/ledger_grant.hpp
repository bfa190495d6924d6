// One grant as DIR/grants/KEY.json keeps it: a line of JSON, and one with its checksum() as 16 hex digits. Every member
// that is not listed as optional is there, and no other.
//
// {"format": 2, "owner": {"kind", "key", "label", "netns": {"dev", "ino", "path"}}, "since",
//  "hcas": [{"name", "mode", "units", "limit", "held_only", "device",
//            "open": {"index", "contexts": [N], "node": {"major", "minor"}}}],
//  "users": [{"key", "id", "bundle", "pod", "view", "name", "process": {"pid", "start_time"}, "cgroup": {...},
//             "state": {...}, "settled", "ended", "worker": {"pid", "start_time", "change"}, "hcas": [...]}]}
// Optional: "netns", "directory" in it, "limit", "held_only", "device", "open", "index" and "node" in it, and of a user
// all but "key", "id" and "settled".
//
// A record of another format is an error: /run is empty after a boot, and an upgrade or downgrade begins with a drain.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

// Who works on a user's steps, in which of its changes: the name of a marker in pending/. The steps run as long as that
// is there.
struct StepWorker {
  ProcessIdentity process;
  std::uint64_t change = 0;
  friend bool operator==(const StepWorker&, const StepWorker&) = default;
};

struct StoredUser {
  GrantUser user;
  // While its steps run: who works on them, and what they are to add to the grant. Both go when the steps are done.
  std::optional<StepWorker> worker;
  std::vector<PlannedHca> hcas;
  bool worker_gone = false;  // proven, while its marker was there: read_grant() has looked, and nobody looks again
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
// nullptr: none is booked as this.
const PlannedHca* find_hca(const std::vector<PlannedHca>& hcas, std::string_view booked);
// One HCA held twice by the same owner is held once: the stronger mode, the larger number.
void merge_hcas(std::vector<PlannedHca>& into, const std::vector<PlannedHca>& more);

// A user joins with these HCAs, its steps in the hands of `worker`; one that is there already goes on with them, in the
// change that its process has begun. The worker they are in the hands of; nullopt: the user has all of it already.
// Errors (EBUSY): the grant has a user of this key with another process, which is not proven to have ended; the message
// names that process or what its runtime keeps of it.
fabric::Result<std::optional<StepWorker>> add_steps(StoredGrant& grant, GrantUser user,
                                                    const std::vector<PlannedHca>& hcas, const StepWorker& worker);
// Errors (EBUSY): this user has a process that is not proven to have ended; the message names the process.
fabric::Result<void> check_ended(const GrantUser& user);
// The user's steps are done: what they brought is the grant's.
void settle_user(StoredGrant& grant, StoredUser& user);
// Proven, of its process and of its runtime's state: what cannot be seen is held. Without a process nothing is proven.
bool has_ended(const GrantUser& user);
// Proven, of the process that works on its steps, of its runtime's state and of its cgroup as well. A user without a
// process never is, unless it has ended.
bool is_user_gone(const StoredUser& user);
// Drops the steps whose worker is gone, and a pod's tokens whose requester is. What those brought stays: once settled,
// it is not recorded whose it was. kNothing: the grant has vanished, or nothing is left of it. `binding`: a token that
// stays, because its container has come.
enum class Left { kAll, kSome, kNothing };
Left drop_dead(StoredGrant& grant, std::string_view binding);
// As Grant::vanished says. A grant that the token `binding` uses has not vanished.
bool is_vanished(const StoredGrant& grant, std::string_view binding = {});

// As its record says; `vanished` is false.
Grant recorded_grant(const StoredGrant& grant);
// The same, with a look at its owner and users.
Grant to_grant(const StoredGrant& grant);

std::string grant_text(const StoredGrant& grant);
// What parse_grant()'s errors begin with.
std::string unread_grant(const std::string& path);
// path: for messages. Errors: EPROTONOSUPPORT, it has another format. EBADMSG: the checksum is another one; JSON's; a
// member that is missing, of another type or range, or not known; a key that is not `key`. The hint is the remedy.
fabric::Result<StoredGrant> parse_grant(std::string_view text, const std::string& path, std::string_view key);

}  // namespace hook
