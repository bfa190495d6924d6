// A grant, its owner and its users. The key of an owner is the file name of its grant. A key has at most 128
// characters: a container's key has the first characters of the container id, and a digest that makes the key unique.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "base/timing.hpp"
#include "hook/ledger/identities.hpp"
#include "hook/ledger/runtime_state.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

inline constexpr std::size_t kLongestKey = 128;

// An HCA of a claim of Kubernetes' Dynamic Resource Allocation, as the claim states it.
struct ClaimHca {
  std::string name;          // the name under which it was booked
  std::string device = {};   // booked_as()
  std::string label = {};    // the name of its device in the ResourceSlice
  bool is_admin = false;     // access for monitoring: the grant of the claim does not hold the HCA
  std::string network = {};  // network that the claim states; empty: that of the HCA's pool
  RdmaLimits limits = {};    // limits that the claim states
  friend bool operator==(const ClaimHca&, const ClaimHca&) = default;
};
// Facts in the record of a claim, beside the HCAs of its grant.
struct ClaimFacts {
  std::string space;  // namespace
  std::string name;
  // The value of the variable claim_variable() of the claim's CDI devices. It proves that a container has them, because
  // the author of a pod can write the variable and cannot know the value.
  std::string token;
  std::vector<std::string> pods;  // UIDs of the pods that may use the claim
  std::vector<ClaimHca> hcas;
  friend bool operator==(const ClaimFacts&, const ClaimFacts&) = default;
};

// The owner of a grant: the network namespace that the container joins by path, as in a pod, unless that is the node's
// own namespace. Otherwise the container itself, or a token before the container exists. Or a claim of Kubernetes'
// Dynamic Resource Allocation, which has no process: its grant is never stale, and ends by Ledger::release_claim().
struct Owner {
  enum class Kind { kNetns, kContainer, kToken, kClaim };
  Kind kind = Kind::kContainer;
  std::string key;                       // file name: [A-Za-z0-9_.-]{1,128}, never "." or ".."
  std::string label;                     // text for people: "container web-1", "pod namespace /var/run/netns/cni-1"
  std::optional<NetnsIdentity> netns;    // identity of the namespace, only for kNetns
  std::optional<ClaimFacts> claim = {};  // only for kClaim
  // Keys of the claims whose HCAs this owner may use, beside free HCAs. The record does not have them:
  // PlannedHca::claim names the claim of each HCA.
  std::vector<std::string> claims = {};
};

Owner netns_owner(const NetnsIdentity& netns);
// Returns the owner for a container. place: the bundle's path or root_name(), because two containers of a node can have
// the same id.
Owner container_owner(std::string_view id, std::string_view place);
// Returns a name of the runtime's root directory (--root), by device and inode: two paths to one directory give one
// name.
std::string root_name(const RuntimeState& state);
Owner token_owner(std::string_view token);
// uid: the UID of the claim, [a-z0-9-]{1,63}.
Owner claim_owner(std::string_view uid, ClaimFacts facts);
// Returns the UID of a claim by the key of its grant.
std::string claim_uid(std::string_view key);
// Returns the variable of a claim: "RDMA_CLAIM_3F2A_..." for the UID "3f2a-...".
std::string claim_variable(std::string_view uid);
// Returns true for the key of a token. A user with such a key has no container yet.
bool is_token_key(std::string_view key);
// Returns a new token: 128 random bits as 32 hex digits.
Result<std::string> new_token();
// Returns the key as logs, metrics and commands print it. For a token this is "token-" and a digest, because a process
// that knows a token can claim its grant. One key always gives the same text, so that log lines, time series and
// `rdma-hook devices` can be joined.
std::string shown_key(const std::string& key);

// A container that uses a grant. Before the container exists, this is its token. While a pod has no container, this is
// the pod itself.
struct GrantUser {
  std::string key;  // Owner::key of the container, the token or the pod
  std::string id;   // the container's id
  std::optional<ProcessIdentity>
      process;  // init of the container; before the init exists, the process that requests HCAs for the container
  std::string bundle = {};  // absolute; empty: it was unknown at booking
  // The container's own cgroup. Set if processes of the container can outlive its init, because the container has no
  // PID namespace of its own: such processes still use the grant.
  std::optional<CgroupIdentity> cgroup = {};
  std::string pod = {};  // id of its pod's sandbox; empty: the container has none, or it is unknown
  // The directory in which the runtime keeps the state of the container. After `process` has ended, the state shows
  // whether the container has ended too. Set only if `process` becomes the runtime by execve(2), because then no hook
  // reports the container's init to the ledger.
  std::optional<RuntimeState> state = {};
  std::string view = {};  // view_name() of its mounted view; empty: it mounts no view of the ledger
  // Other views that the container's config.json mounts, for example since it was restored from a checkpoint. Usually
  // empty, and then not in the record: programs of an older version can read only such a record.
  std::vector<std::string> more_views = {};
  std::string name = {};  // the container's name in its pod; empty: not known
  friend bool operator==(const GrantUser&, const GrantUser&) = default;
};
// Returns `view` and `more_views` of the user, without an empty name.
std::vector<std::string> views_of(const GrantUser& user);
// Sets `view` and `more_views` of the user. views: empty names and later duplicates are left out.
void set_views(GrantUser& user, const std::vector<std::string>& views);
// Returns true if the user is this container or belongs to this pod. id: the id of a container or of a pod's sandbox.
bool has_id(const GrantUser& user, std::string_view id);

// A grant as readers of the ledger get it.
struct Grant {
  Owner owner;
  std::vector<PlannedHca> hcas;
  std::vector<GrantUser> users;
  std::int64_t since = 0;                     // seconds since the epoch, for people: the node's time can jump
  std::optional<std::uint64_t> changed = {};  // time of the last change (StoredGrant::changed)
  bool pending = false;
  bool stale = false;  // the owner is proven gone (is_stale())
};

// The process that makes an unfinished change (steps) of a user, and a number of that change. Both form the name of a
// marker file in pending/. The change is unfinished as long as this file exists.
struct StepWorker {
  ProcessIdentity process;
  std::uint64_t change = 0;  // nanoseconds of CLOCK_MONOTONIC at which the change began
  friend bool operator==(const StepWorker&, const StepWorker&) = default;
};

struct StoredUser {
  GrantUser user;
  // The process that makes an unfinished change (steps) of this user, and the HCAs that the change adds to the grant.
  // Both are cleared when the change is done.
  std::optional<StepWorker> worker;
  std::vector<PlannedHca> hcas;
  bool worker_absent = false;  // the process of `worker` is proven gone, and its marker exists; set by read_grant()
  // The user had the grant before the unfinished change, and keeps it if the change is rolled back.
  bool settled = false;
  // The container has ended, but the effects of the grant (GrantEffects) could not be ended yet.
  bool ended = false;
  friend bool operator==(const StoredUser&, const StoredUser&) = default;
};

// A grant as its record keeps it.
struct StoredGrant {
  Owner owner;
  std::vector<PlannedHca> hcas;  // HCAs that settled users hold
  std::vector<StoredUser> users;
  std::int64_t since = 0;
  // The latest StepWorker::change of the record; set by read_grant(). A change that is done stays in the record until
  // the next write, so that nullopt only means that the time is not known.
  std::optional<std::uint64_t> changed = {};
};

// Returns the HCAs that the grant holds: grant.hcas and the HCAs of unfinished changes, one entry for each HCA.
std::vector<PlannedHca> held_hcas(const StoredGrant& grant);
// Returns the HCA with booked_as() == booked that the grant holds; nullopt if there is none, or no grant, or if the
// grant uses the HCA through a claim: the index has no entry of such an HCA.
std::optional<PlannedHca> held_hca(const std::optional<StoredGrant>& grant, std::string_view booked);
// Returns all HCAs for which the index may have an entry of this grant: held_hcas(), then grant.hcas and the HCAs of
// unfinished changes. One HCA can occur several times, because each number of units has its own index entry.
std::vector<PlannedHca> all_claims(const StoredGrant& grant);
// Returns the HCA with booked_as() == booked, nullptr if there is none.
const PlannedHca* find_hca(const std::vector<PlannedHca>& hcas, std::string_view booked);
// Returns whether the grant uses an HCA through the claim of this key.
bool uses_claim(const StoredGrant& grant, std::string_view claim);
// Adds `more` to `into`. An HCA that is in both stays one entry, with the stronger mode and the larger number of units.
void merge_hcas(std::vector<PlannedHca>& into, const std::vector<PlannedHca>& more);
// Marks the user's unfinished change as done: the HCAs of the change become HCAs of the grant.
void settle_user(StoredGrant& grant, StoredUser& user);
// Returns the grant as recorded: looks up no process and no namespace, and leaves `stale` false.
Grant recorded_grant(const StoredGrant& grant);

// Effects of a grant outside the ledger's own files, such as netdevs in the container's network namespace. The ledger
// ends the effects first when it releases a grant or rolls back the change of a dead process. Until the effects have
// ended, the grant is held, so that an HCA is not allocated again while its netdev is still in the earlier container.
class GrantEffects {
 public:
  GrantEffects() = default;
  GrantEffects(const GrantEffects&) = delete;
  GrantEffects& operator=(const GrantEffects&) = delete;
  virtual ~GrantEffects() = default;
  // Undoes the effects of the grant with this key on all HCAs except `held`. If there are no effects, it succeeds and
  // must be cheap. grant: the grant before this change; nullptr: there is no grant of this key.
  // Locks: the caller holds the key's lock; this function must not take a lock of the ledger.
  virtual Result<void> release_except(const std::string& key, const std::vector<PlannedHca>& held,
                                      const StoredGrant* grant) const = 0;
  // Limits the time that later calls of release_except() wait for hardware, locks and other programs.
  virtual void wait_until(Deadline) const {}
};

// A grant that the ledger has released, or a pod's grant from which it has removed a container.
struct Released {
  Grant grant;                 // the grant before the release
  bool was_allocated = false;  // false: the container's start never finished
  bool stays = false;          // true: a container has left, and the pod's grant stays
  std::uint64_t rails_us = 0;  // duration of GrantEffects::release_except()
};

}  // namespace hook
