#include "shim/nri/holders.hpp"

#include <algorithm>

#include "hook/grant/asking.hpp"

namespace shim {
namespace {

using fabric::Result;
using hook::GrantUser;
using hook::Ledger;
using hook::Owner;

const GrantUser* find_user(const hook::Grant& grant, const std::string& id) {
  const auto found =
      std::find_if(grant.users.begin(), grant.users.end(), [&](const GrantUser& user) { return user.id == id; });
  return found == grant.users.end() ? nullptr : &*found;
}

}  // namespace

bool is_unbound(const hook::Grant& grant, const GrantUser& user) {
  return grant.owner.kind == Owner::Kind::kToken && !user.process;
}

Result<std::set<std::string>> unbound_containers(const Ledger& ledger) {
  std::set<std::string> ids;
  for (const hook::Grant& grant : TRY(ledger.list())) {
    for (const GrantUser& user : grant.users) {
      if (is_unbound(grant, user)) ids.insert(user.id);
    }
  }
  return ids;
}

Result<std::optional<Holder>> find_holder(const Ledger& ledger, const hook::ContainerSpec& spec,
                                          const std::string& id) {
  using Found = std::optional<Holder>;
  const Owner nobody = hook::container_owner(id, "");
  const Owner owner = TRY(hook::owner_of(spec, nobody));
  if (owner.kind == Owner::Kind::kNetns) {
    const auto grant = TRY(ledger.find(owner.key));
    const GrantUser* user = grant ? find_user(*grant, id) : nullptr;
    return user ? Found({owner, *user}) : Found();
  }
  // In the node's network namespace: a token's grant, or the container's that createRuntime bound it to.
  for (const hook::Grant& grant : TRY(ledger.list())) {
    if (grant.owner.kind == Owner::Kind::kNetns) continue;
    if (const GrantUser* user = find_user(grant, id)) return Found({grant.owner, *user});
  }
  return Found();
}

Result<std::optional<std::string>> find_pod_grant(const Ledger& ledger, const hook::ContainerSpec& spec,
                                                  const std::string& id) {
  const Owner owner = TRY(hook::owner_of(spec, hook::container_owner(id, "")));
  if (owner.kind == Owner::Kind::kNetns)
    return TRY(ledger.find(owner.key)) ? std::optional(owner.key) : std::optional<std::string>();
  for (const hook::Grant& grant : TRY(ledger.list())) {
    if (grant.owner.kind == Owner::Kind::kNetns && find_user(grant, id)) return std::optional(grant.owner.key);
  }
  return std::optional<std::string>();
}

}  // namespace shim
