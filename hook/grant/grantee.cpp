#include "hook/grant/grantee.hpp"

#include <cerrno>
#include <utility>

#include "hook/base/failure.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr const char* kOwnNetns = "/proc/self/ns/net";

// nullopt: no namespace is joined by path, or nothing is there.
Result<std::optional<NetnsIdentity>> joined_netns(const ContainerSpec& spec) {
  if (!spec.netns_path) return std::optional<NetnsIdentity>();
  auto netns = identify_netns(*spec.netns_path);
  if (netns) return std::optional(std::move(*netns));
  const int code = netns.error().code;
  if (code == ENOENT || code == ENOTDIR) return std::optional<NetnsIdentity>();
  return about(FailureReason::kState, std::move(netns)).error();
}

Result<bool> is_nodes_own(const NetnsIdentity& netns) {
  const NetnsIdentity own = TRY(identify_netns(kOwnNetns));
  return own.dev == netns.dev && own.ino == netns.ino;
}

}  // namespace

Result<Grantee> grantee_of(const ContainerSpec& spec, GrantUser user, const std::optional<std::string>& place) {
  std::string token = place ? std::string() : TRY(new_token());
  Owner own = place ? container_owner(user.id, *place) : token_owner(token);
  user.key = own.key;
  return Grantee{TRY(owner_of(spec, std::move(own))), std::move(user), std::move(token)};
}

Result<Owner> owner_of(const ContainerSpec& spec, Owner otherwise) {
  const auto netns = TRY(joined_netns(spec));
  if (!netns || TRY(is_nodes_own(*netns))) return otherwise;
  return netns_owner(*netns);
}

Result<bool> uses_host_network(const ContainerSpec& spec) {
  if (!spec.has_netns) return true;
  const auto netns = TRY(joined_netns(spec));
  return netns ? is_nodes_own(*netns) : Result<bool>(false);
}

}  // namespace hook
