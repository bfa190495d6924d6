// A grant, its owner and its users: what all of the ledger is about. Keys are names of files, hence short and of few
// characters, whatever a container is called.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/process/identity.hpp"
#include "hook/base/result.hpp"
#include "hook/base/timing.hpp"
#include "hook/ledger/identities.hpp"
#include "hook/ledger/runtime_state.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

inline constexpr std::size_t kLongestKey = 128;

// The owner of a grant: the network namespace, if the container joins one by path (a pod's); else the container, or a
// token before the container exists.
struct Owner {
  enum class Kind { kNetns, kContainer, kToken };
  Kind kind = Kind::kContainer;
  std::string key;                     // file name: [A-Za-z0-9_.-]{1,128}, never "." or ".."
  std::string label;                   // for people: "container web-1", "pod namespace /var/run/netns/cni-1"
  std::optional<NetnsIdentity> netns;  // kNetns
};

Owner netns_owner(const NetnsIdentity& netns);
// place: tells containers of one id apart: the bundle's path, or root_name(), which is the same for any path to the
// root.
Owner container_owner(std::string_view id, std::string_view place);
std::string root_name(const RuntimeState& state);
Owner token_owner(std::string_view token);
// The key is that of a token: as a grant's user, of one that no container is bound to yet.
bool is_token_key(std::string_view key);
// 128 random bits as hex digits.
Result<std::string> new_token();
// Returns the key as logs, metrics and commands print it: for a token's "token-" and a digest, because whoever knows a
// token can claim its grant; any other key as it is. One key always gives the same text, so that a log line, a series
// and `rdma-hook devices` can be joined.
std::string shown_key(const std::string& key);

// A container that uses a grant.
struct GrantUser {
  std::string key;                         // that of container_owner(), or the token
  std::string id;                          // the container's id
  std::optional<ProcessIdentity> process;  // its init; before it has one, the process that asks for it
  std::string bundle = {};                 // absolute; empty: who booked does not know it
  // The container's own, where the kernel does not end all its processes with init: who is in it uses the grant too.
  std::optional<CgroupIdentity> cgroup = {};
  std::string pod = {};  // the id of its pod's sandbox; empty: none, or not told
  // Where its runtime says that it lives, once `process` has ended, which became that runtime: no hook tells its init.
  std::optional<RuntimeState> state = {};
  std::string view = {};  // view_name() of what its mounts show; empty: none that the ledger keeps
  std::string name = {};  // the container's name in its pod; empty: not told
  friend bool operator==(const GrantUser&, const GrantUser&) = default;
};
// The user is this container, or of the pod with this id.
bool has_id(const GrantUser& user, std::string_view id);

// A grant as the ledger shows it.
struct Grant {
  Owner owner;
  std::vector<PlannedHca> hcas;
  std::vector<GrantUser> users;
  std::int64_t since = 0;  // seconds since the epoch
  bool pending = false;
  bool vanished = false;  // is_vanished()
};

// The process that works on a user's steps, and in which of its changes: the name of a marker in pending/. The steps
// run as long as the marker is there.
struct StepWorker {
  ProcessIdentity process;
  std::uint64_t change = 0;
  friend bool operator==(const StepWorker&, const StepWorker&) = default;
};

struct StoredUser {
  GrantUser user;
  // While its steps run: the process that works on them, and what they are to add to the grant. Both go when the steps
  // are done.
  std::optional<StepWorker> worker;
  std::vector<PlannedHca> hcas;
  bool worker_gone = false;  // proven, while its marker was there: read_grant() has looked, and looks once
  // It used the grant before these steps: when they are undone, it still does.
  bool settled = false;
  // It left, but what it had could not be undone yet.
  bool ended = false;
  friend bool operator==(const StoredUser&, const StoredUser&) = default;
};

// A grant as its record keeps it.
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
// The user's steps are done: what they brought is the grant's.
void settle_user(StoredGrant& grant, StoredUser& user);
// As its record says; `vanished` is false.
Grant recorded_grant(const StoredGrant& grant);

// What a grant has beyond the ledger's own files. The ledger undoes that first when it returns a grant, or drops what a
// dead process had booked. While it cannot be undone, the grant is held, so that no other container gets an HCA whose
// netdev is still away.
class GrantEffects {
 public:
  GrantEffects() = default;
  GrantEffects(const GrantEffects&) = delete;
  GrantEffects& operator=(const GrantEffects&) = delete;
  virtual ~GrantEffects() = default;
  // Undoes what this grant has beyond these HCAs. Where there is nothing it succeeds, and must cost nothing. It is
  // called with the key's lock held, and must not ask for a lock of the ledger. grant: as it was until now; nullptr:
  // there is none of this key.
  virtual Result<void> undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                                   const StoredGrant* grant) const = 0;
  // From here on undo_beyond() waits for hardware, locks and other programs until then, if it would wait longer.
  virtual void wait_until(Deadline) const {}
};

// A grant that the ledger has returned, or that a container of a pod has left.
struct Released {
  Grant grant;                // as it was
  bool was_given = false;     // false: its start was killed half-way
  bool stays = false;         // a container has left; the pod's grant stays
  std::uint64_t undo_us = 0;  // how long GrantEffects::undo_beyond() took
};

}  // namespace hook
