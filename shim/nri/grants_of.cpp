#include "shim/nri/grants_of.hpp"

#include <algorithm>

#include "hook/ledger/absence.hpp"

namespace shim {
namespace {

using hook::GrantUser;
using hook::Ledger;
using hook::Owner;

const GrantUser* find_user(const hook::Grant& grant, const std::string& id) {
  const auto found = std::ranges::find_if(grant.users, [&](const GrantUser& user) { return user.id == id; });
  return found == grant.users.end() ? nullptr : &*found;
}

}  // namespace

bool has_process(const GrantUser& user) {
  return user.process && !hook::has_ended(user);
}

bool is_unbound(const hook::Grant& grant, const GrantUser& user) {
  return grant.owner.kind == Owner::Kind::kToken && !user.process;
}

Result<Doubtful> doubtful_containers(const Ledger& ledger) {
  Doubtful found;
  Ledger::Unread unread;  // recover() reports them
  for (const hook::Grant& grant : TRY(ledger.list(&unread))) {
    if (grant.owner.netns) found.namespaces.emplace_back(grant.owner.netns->path, grant.owner.key);
    for (const GrantUser& user : grant.users) {
      if (is_unbound(grant, user)) found.unbound.emplace(user.id, grant.changed);
      if (user.pod.empty()) found.podless.insert(user.id);
    }
  }
  return found;
}

Result<std::optional<hook::Grantee>> find_grant_of(const Ledger& ledger, const hook::ContainerSpec& spec,
                                                   const std::string& id) {
  using Found = std::optional<hook::Grantee>;
  const Owner owner = TRY(hook::owner_of(spec, {}));
  if (owner.kind == Owner::Kind::kNetns) {
    const auto grant = TRY(ledger.find(owner.key));
    const GrantUser* user = grant ? find_user(*grant, id) : nullptr;
    return user ? Found({owner, *user}) : Found();
  }
  // The specification names no network namespace that exists. Either the container is in the node's network namespace:
  // then a token owns its grant, and after createRuntime the container itself. Or the pod's namespace is gone: then the
  // container is a user of the pod's grant.
  Ledger::Unread unread;
  for (const hook::Grant& grant : TRY(ledger.find_by_id(id, &unread)))
    if (const GrantUser* user = find_user(grant, id)) return Found({grant.owner, *user});
  return unread.empty() ? Result<Found>(Found()) : unread.front();
}

Result<bool> may_have_grant(const Ledger& ledger, const hook::ContainerSpec& spec, const std::string& id) {
  const Owner owner = TRY(hook::owner_of(spec, {}));
  // A container that joins a pod's namespace is a user of the pod's grant, whose record has its id.
  if (owner.kind == Owner::Kind::kNetns) return TRY(find_grant_of(ledger, spec, id)).has_value();
  return ledger.may_have_id(id);
}

Result<std::vector<hook::Grant>> find_pod_grants(const Ledger& ledger, const hook::ContainerSpec& spec,
                                                 const std::string& id, Ledger::Unread& unread) {
  auto grants = TRY(ledger.find_by_id(id, &unread));
  const Owner owner = TRY(hook::owner_of(spec, {}));
  const auto same = [&](const hook::Grant& grant) { return grant.owner.key == owner.key; };
  // find_by_id() does not find a grant whose users lack their pod id, so the grant of the pod's namespace is looked up
  // too.
  if (owner.kind != Owner::Kind::kNetns || std::ranges::any_of(grants, same)) return grants;
  auto grant = ledger.find(owner.key);
  if (!grant) {
    unread.push_back(grant.error());
  } else if (*grant) {
    grants.push_back(**std::move(grant));
  }
  return grants;
}

Result<std::vector<hook::Grantee>> find_earlier_tries(const Ledger& ledger, const hook::ContainerSpec& spec,
                                                      const GrantUser& now) {
  std::vector<hook::Grantee> earlier;
  if (now.pod.empty() || now.name.empty()) return earlier;
  Ledger::Unread unread;  // recover() reports them
  const Owner owner = TRY(hook::owner_of(spec, {}));
  std::vector<hook::Grant> grants;
  if (owner.kind != Owner::Kind::kNetns) {
    grants = TRY(ledger.find_by_id(now.pod, &unread));
  } else if (auto grant = TRY(ledger.find(owner.key))) {
    grants.push_back(*std::move(grant));
  }
  for (const hook::Grant& grant : grants) {
    for (const GrantUser& user : grant.users) {
      if (user.pod == now.pod && user.name == now.name && user.id != now.id && !has_process(user))
        earlier.push_back({grant.owner, user});
    }
  }
  return earlier;
}

}  // namespace shim
