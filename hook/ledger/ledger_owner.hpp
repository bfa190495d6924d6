// The owner of a grant, and its users. Keys are names of files, hence short and of few characters, whatever a container
// is called.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "hook/base/process/process_identity.hpp"
#include "hook/ledger/cgroup_identity.hpp"
#include "hook/ledger/netns_identity.hpp"
#include "hook/ledger/runtime_state.hpp"

namespace hook {

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
fabric::Result<std::string> new_token();

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

}  // namespace hook
