// Identities of what ends with a container, safe against the reuse of a number or a name: its network namespace and its
// own cgroup, in which every process is that outlives the container's init.
#pragma once

#include <cstdint>
#include <string>

#include "hook/base/presence.hpp"
#include "hook/base/result.hpp"

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
Result<NetnsIdentity> identify_netns(const std::string& path);
// Gone: the path has another namespace or none, in the directory that was noted. The namespace may live on in its
// processes. Errors: it cannot be looked at, or the directory is another one.
Result<Presence> look_at(const NetnsIdentity& netns);

// As grants and records of rails keep it.
template <typename Members>
void describe(Members& members, NetnsIdentity& netns) {
  members("dev", netns.dev);
  members("ino", netns.ino);
  members("path", netns.path);
  members.optional_group("directory", netns.directory_ino != 0, [&](auto& directory) {
    directory("dev", netns.directory_dev);
    directory("ino", netns.directory_ino);
  });
}

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
Result<CgroupIdentity> identify_cgroup(const std::string& root, const std::string& path);
// Present: a process is in it, or in a group below it. Gone: none is, or another group or none has the name in the root
// that was noted. Errors: the root is another one, or something cannot be read.
Result<Presence> look_at(const CgroupIdentity& cgroup);

// As grants keep it.
template <typename Members>
void describe(Members& members, CgroupIdentity& cgroup) {
  members.group("root", [&](auto& root) {
    root("path", cgroup.root);
    root("dev", cgroup.root_dev);
    root("ino", cgroup.root_ino);
  });
  members("path", cgroup.path);
  members("dev", cgroup.dev);
  members("ino", cgroup.ino);
}

}  // namespace hook
