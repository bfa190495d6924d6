// Decides whether the users and the owner of a grant are gone. Pure: the witness looks. Absence is proven; what cannot
// be looked at is held.
#pragma once

#include <string>
#include <string_view>

#include "hook/base/presence.hpp"
#include "hook/base/process/identity.hpp"
#include "hook/base/result.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/ledger/identities.hpp"
#include "hook/ledger/runtime_state.hpp"

namespace hook {

// Looks whether what a grant names is there. Errors: it cannot be looked at, which proves nothing.
class Witness {
 public:
  Witness() = default;
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  virtual ~Witness() = default;
  virtual Result<Presence> process(const ProcessIdentity& process) const = 0;
  // Of this process, or of one above it.
  virtual bool is_above_me(const ProcessIdentity& process) const = 0;
  virtual Result<Presence> container(const RuntimeState& state, const std::string& id,
                                     const std::string& bundle) const = 0;
  virtual Result<Presence> cgroup(const CgroupIdentity& cgroup) const = 0;
  virtual Result<Presence> netns(const NetnsIdentity& netns) const = 0;
};

// Looks at the node itself.
const Witness& node_witness();

// The process that works on the steps has ended.
bool is_worker_gone(const StepWorker& worker, const Witness& witness = node_witness());
// The process and the container of its runtime's state are gone. Without a process nothing is proven.
bool has_ended(const GrantUser& user, const Witness& witness = node_witness());
// The user has ended, no process works on its steps, and its cgroup is empty or gone.
bool is_user_gone(const StoredUser& user, const Witness& witness = node_witness());
// The pod's network namespace is gone from its path. It may live on in processes.
bool is_namespace_gone(const Owner& owner, const Witness& witness = node_witness());
// No user is left. Of a pod's grant: its network namespace is gone, or only tokens use it and their requesters are
// gone. Of a container's or token's: every user is gone. binding: a token that counts though its requester is gone.
bool is_vanished(const StoredGrant& grant, std::string_view binding = {}, const Witness& witness = node_witness());
// recorded_grant() with `vanished`.
Grant to_grant(const StoredGrant& grant);

// Drops the steps whose worker is gone, and a pod's tokens whose requester is. What those brought stays: once settled,
// the record does not say which user brought it. kNothing: the grant has vanished, or nothing is left of it. binding: a
// token that stays, because its container has come.
enum class Left { kAll, kSome, kNothing };
Left drop_dead(StoredGrant& grant, std::string_view binding, const Witness& witness = node_witness());

// Whether a poststop of this user's names is of another container: one before it, or one below another root, because a
// poststop names id and bundle only. A runtime whose `run` or failed `create` calls poststop is above the caller.
// self: the calling process.
bool is_another_ones_end(const StoredUser& user, const ProcessIdentity& self, const Witness& witness = node_witness());
// Errors (EBUSY): the user has a process or a container that is not proven to have ended; the message names it.
Result<void> check_ended(const GrantUser& user, const Witness& witness = node_witness());
// Errors (EBUSY): a process is in the user's cgroup. The runtime's word that a container has ended does not end those
// processes.
Result<void> check_empty(const Owner& owner, const GrantUser& user, const Witness& witness = node_witness());
// Errors: the user's process has ended, and whether its container lives cannot be seen: as long as its runtime's root
// is another one than was noted, for example since /run was emptied, it never will be.
Result<void> check_seen(const StoredUser& user, const Witness& witness = node_witness());

}  // namespace hook
