// A container's own cgroup, safe against the reuse of its name: whoever outlives the container's init is still in it.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/result.hpp"
#include "hook/base/json/json_fwd.hpp"
#include "hook/base/presence.hpp"

namespace hook {

struct CgroupIdentity {
  std::string root;  // where the hierarchy is mounted
  std::uint64_t root_dev = 0;
  std::uint64_t root_ino = 0;
  std::string path;  // below it: "/docker/4f2c"
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  friend bool operator==(const CgroupIdentity&, const CgroupIdentity&) = default;
};

// Errors: one of the two directories cannot be looked at.
fabric::Result<CgroupIdentity> identify_cgroup(const std::string& root, const std::string& path);
// Present: a process is in it, or in a group below it. Gone: none is, or another group or none has the name in the root
// that was noted. Errors: the root is another one, or something cannot be read.
fabric::Result<Presence> look_at(const CgroupIdentity& cgroup);

// As grants keep it: {"root": {"path", "dev", "ino"}, "path", "dev", "ino"}.
Json cgroup_json(const CgroupIdentity& cgroup);
// Errors: a member is missing, of another type or not known.
fabric::Result<CgroupIdentity> cgroup_at(const Json& object, const char* name);

}  // namespace hook
