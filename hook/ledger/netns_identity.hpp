// A network namespace, safe against the reuse of its number and of its name.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/result.hpp"
#include "hook/base/json/json_fwd.hpp"
#include "hook/base/presence.hpp"

namespace hook {

struct NetnsIdentity {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  std::string path;  // "/var/run/netns/cni-..." or "/proc/PID/ns/net": there with the same identity means present
  // Of the directory that the path was seen in: elsewhere, as in a mount namespace without the node's /var/run/netns, a
  // missing path proves nothing. 0: not noted, as of one in procfs.
  std::uint64_t directory_dev = 0;
  std::uint64_t directory_ino = 0;
  friend bool operator==(const NetnsIdentity&, const NetnsIdentity&) = default;
};

// Errors: ENOENT or ENOTDIR, nothing is there; others: it cannot be looked at.
fabric::Result<NetnsIdentity> identify_netns(const std::string& path);
// Gone: the path has another namespace or none, in the directory that was noted. The namespace may live on in its
// processes. Errors: it cannot be looked at, or the directory is another one.
fabric::Result<Presence> look_at(const NetnsIdentity& netns);

// As grants and records of rails keep it: {"dev", "ino", "path", "directory": {"dev", "ino"}}.
Json netns_json(const NetnsIdentity& netns);
// Errors: a member is missing, of another type or not known.
fabric::Result<NetnsIdentity> netns_at(const Json& object, const char* name);

}  // namespace hook
