// Decides whether the users and the owner of a grant are gone. Pure: an object of Lookups does all lookups of processes
// and files. A lookup that fails proves nothing, so the grant stays held.
#pragma once

#include <string>
#include <string_view>

#include "base/presence.hpp"
#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/ledger/identities.hpp"
#include "hook/ledger/runtime_state.hpp"

namespace hook {

// Looks up the processes, containers, cgroups and namespaces that a grant names. Errors: a lookup failed, which proves
// nothing. Tests override the lookups.
class Lookups {
 public:
  Lookups() = default;
  Lookups(const Lookups&) = delete;
  Lookups& operator=(const Lookups&) = delete;
  virtual ~Lookups() = default;
  virtual Result<Presence> process(const ProcessIdentity& process) const { return read_presence(process); }
  // Returns true if `process` is this process or an ancestor of it.
  virtual bool is_above_me(const ProcessIdentity& process) const { return base::is_above_me(process); }
  virtual Result<Presence> container(const RuntimeState& state, const std::string& id,
                                     const std::string& bundle) const {
    return read_presence(state, id, bundle);
  }
  virtual Result<Presence> cgroup(const CgroupIdentity& cgroup) const { return read_presence(cgroup); }
  virtual Result<Presence> netns(const NetnsIdentity& netns) const { return read_presence(netns); }
};

// Returns the Lookups of objects on this node.
const Lookups& node_lookups();

// Returns true if the process that makes the unfinished change is proven gone.
bool is_worker_absent(const StepWorker& worker, const Lookups& lookups = node_lookups());
// Returns true if the user's process is proven gone and, if the user has a runtime's state (GrantUser::state), the
// container is proven gone too. Returns false if no process is recorded.
bool has_ended(const GrantUser& user, const Lookups& lookups = node_lookups());
// Returns true if the user has ended, the process of its unfinished change (if any) is proven gone, and its recorded
// cgroup (if any) is proven empty or gone.
bool is_user_absent(const StoredUser& user, const Lookups& lookups = node_lookups());
// Returns true if the path of the pod's network namespace is proven to lead to another namespace or to none. The
// namespace itself may live on in processes.
bool is_namespace_absent(const Owner& owner, const Lookups& lookups = node_lookups());
// Returns true if the grant is stale. A claim's grant never is: it ends by Ledger::release_claim(). A container's or
// token's grant is stale if every user is gone. A pod's grant is stale if is_namespace_absent() and each user with a
// recorded process or worker is gone. A pod's grant is also stale if it has users, all of them are tokens, and all are
// gone. binding: key of the token that the caller is about to bind; this token counts as alive, although the process
// that requested HCAs for it may be gone.
bool is_stale(const StoredGrant& grant, std::string_view binding = {}, const Lookups& lookups = node_lookups());
// Returns recorded_grant() with `stale` set by is_stale().
Grant to_grant(const StoredGrant& grant);

enum class Left { kAll, kSome, kNothing };
// Removes from the grant the unfinished changes (steps) of dead processes and, if a pod owns the grant, the tokens for
// which the requesting process is dead. The HCAs of such a token stay, because the record does not show which user
// added an HCA. Returns kAll if nothing was removed, kSome if a part was, and kNothing if the grant is stale or has
// neither user nor HCA left. binding: key of a token that stays, because its container is about to bind it.
Left drop_dead(StoredGrant& grant, std::string_view binding, const Lookups& lookups = node_lookups());

// Returns true if a poststop that names this user's id and bundle is meant for another container with this id and
// bundle: an earlier one, or one below another runtime root. While the user may still run, a poststop is meant for it
// only if the user's recorded process is an ancestor of the calling process: the runtime calls poststop at the end of
// `run` and after a failed `create`. self: the calling process.
bool is_another_ones_end(const StoredUser& user, const ProcessIdentity& self, const Lookups& lookups = node_lookups());
// Checks that the user has ended. Errors (EBUSY): its process or its container is not proven gone; the message names
// that process or the runtime's root.
Result<void> check_ended(const GrantUser& user, const Lookups& lookups = node_lookups());
// Checks that no process is known to be in the user's cgroup. Errors (EBUSY): a process is in the cgroup. A failed
// lookup is no error. The check is needed because a runtime can report the end of a container while other processes of
// the cgroup still run.
Result<void> check_empty(const Owner& owner, const GrantUser& user, const Lookups& lookups = node_lookups());
// Checks that a lookup can still show whether the user is gone. Errors: its process is gone, but its container cannot
// be looked up. If the runtime's root is no longer the recorded directory, for example because /run was emptied, each
// later lookup fails too.
Result<void> check_seen(const StoredUser& user, const Lookups& lookups = node_lookups());

}  // namespace hook
