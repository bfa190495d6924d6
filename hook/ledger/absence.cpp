#include "hook/ledger/absence.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.hpp"

namespace hook {
namespace {

bool is_dead_token(const StoredUser& user, std::string_view binding, const Lookups& lookups) {
  return user.user.key != binding && is_token_key(user.user.key) && is_user_absent(user, lookups);
}

bool drop_dead_steps(StoredGrant& grant) {
  bool any = false;
  for (StoredUser& user : grant.users) {
    if (!user.worker_absent) continue;
    user.worker.reset();
    user.worker_absent = false;
    user.hcas.clear();
    any = true;
  }
  if (!any) return false;
  std::erase_if(grant.users, [](const StoredUser& user) { return !user.worker && !user.settled; });
  return true;
}

bool drop_dead_tokens(StoredGrant& grant, std::string_view binding, const Lookups& lookups) {
  if (grant.owner.kind != Owner::Kind::kNetns) return false;
  return std::erase_if(grant.users, [&](const StoredUser& user) { return is_dead_token(user, binding, lookups); }) > 0;
}

}  // namespace

const Lookups& node_lookups() {
  static const Lookups lookups;
  return lookups;
}

bool is_worker_absent(const StepWorker& worker, const Lookups& lookups) {
  return is_proven_absent(lookups.process(worker.process));
}

// The process is checked first: a container seems gone as long as its runtime has not made the state file.
bool has_ended(const GrantUser& user, const Lookups& lookups) {
  if (!user.process || !is_proven_absent(lookups.process(*user.process))) return false;
  return !user.state || is_proven_absent(lookups.container(*user.state, user.id, user.bundle));
}

bool is_user_absent(const StoredUser& user, const Lookups& lookups) {
  if (user.worker && !user.worker_absent) return false;
  if (!user.ended && !has_ended(user.user, lookups)) return false;
  return !user.user.cgroup || is_proven_absent(lookups.cgroup(*user.user.cgroup));
}

bool is_namespace_absent(const Owner& owner, const Lookups& lookups) {
  return owner.netns && is_proven_absent(lookups.netns(*owner.netns));
}

bool is_stale(const StoredGrant& grant, std::string_view binding, const Lookups& lookups) {
  const auto& users = grant.users;
  if (grant.owner.kind == Owner::Kind::kClaim) return false;
  if (grant.owner.kind != Owner::Kind::kNetns)
    return std::ranges::all_of(users, [&](const StoredUser& user) { return is_user_absent(user, lookups); });
  // A pod's grant is stale if all its users are tokens with dead requesters: a container will never bind such tokens,
  // even if the pod's namespace lives on. With any other user, or without users, the grant stays as long as the
  // namespace: a container may have ended without a poststop, and between two starts a pod has no container.
  const auto is_dead = [&](const StoredUser& user) { return is_dead_token(user, binding, lookups); };
  if (!users.empty() && std::ranges::all_of(users, is_dead)) return true;
  if (grant.owner.netns && !is_namespace_absent(grant.owner, lookups)) return false;
  // The path is gone, but the namespace may live on in the processes of its containers. The grant stays if such a
  // process may live. A user without a recorded process proves nothing about it.
  return std::ranges::none_of(users, [&](const StoredUser& user) {
    return (user.worker || user.user.process) && !is_user_absent(user, lookups);
  });
}

Grant to_grant(const StoredGrant& grant) {
  Grant result = recorded_grant(grant);
  result.stale = is_stale(grant);
  return result;
}

Left drop_dead(StoredGrant& grant, std::string_view binding, const Lookups& lookups) {
  const bool steps = drop_dead_steps(grant);
  if ((grant.users.empty() && held_hcas(grant).empty()) || is_stale(grant, binding, lookups)) return Left::kNothing;
  const bool tokens = drop_dead_tokens(grant, binding, lookups);
  return steps || tokens ? Left::kSome : Left::kAll;
}

bool is_another_ones_end(const StoredUser& user, const ProcessIdentity& self, const Lookups& lookups) {
  // In two cases the poststop is meant for this user: this process rolls back the user's start, or an earlier call has
  // recorded the user's end.
  if (user.ended || (user.worker && user.worker->process == self)) return false;
  if (user.worker && !user.worker_absent) return true;  // another process is in the user's createRuntime
  return user.user.process && !has_ended(user.user, lookups) && !lookups.is_above_me(*user.user.process);
}

Result<void> check_ended(const GrantUser& user, const Lookups& lookups) {
  if (!user.process) return {};
  const auto busy = [&](const std::string& cause, std::string hint) {
    return Error{fmt::format("cannot allocate for container `{}`: {}", base::printable(user.id), cause), EBUSY,
                 std::move(hint), FailureReason::kBusy};
  };
  const auto process = lookups.process(*user.process);
  if (!process) return busy(process.error().message, process.error().hint);
  if (*process == Presence::kPresent)
    return busy(fmt::format("process {} of a container of this id and bundle has not ended", user.process->pid),
                "wait until this process has ended, or use another id");
  // Without a runtime state, the end of the process is the end of the user.
  const auto container = user.state ? lookups.container(*user.state, user.id, user.bundle) : Presence::kAbsent;
  if (!container) return busy(container.error().message, container.error().hint);
  if (*container == Presence::kAbsent) return {};
  return busy(fmt::format("a container of this id and bundle exists below the runtime root `{}`",
                          base::printable(user.state->root)),
              "delete that container first, or use another id");
}

Result<void> check_empty(const Owner& owner, const GrantUser& user, const Lookups& lookups) {
  if (!user.cgroup) return {};
  const auto seen = lookups.cgroup(*user.cgroup);
  // A failed lookup must not fail the poststop: is_user_absent() keeps the grant as long as the cgroup is unknown.
  if (!seen || *seen == Presence::kAbsent) return {};
  return Error{fmt::format("cannot release the grant of {}: processes of its cgroup `{}{}` still run", owner.label,
                           user.cgroup->root, base::printable(user.cgroup->path)),
               EBUSY, "end these processes, then run `rdma-hook recover`"};
}

Result<void> check_seen(const StoredUser& user, const Lookups& lookups) {
  const GrantUser& unseen = user.user;
  if (!unseen.state || !unseen.process || user.ended || !is_proven_absent(lookups.process(*unseen.process))) return {};
  const auto seen = lookups.container(*unseen.state, unseen.id, unseen.bundle);
  return seen ? Result<void>() : seen.error();
}

}  // namespace hook
