// Identities of a container's network namespace and of its own cgroup, safe against the reuse of a number or name.
// Every process of the container that outlives its init is in that cgroup.
#pragma once

#include <cstdint>
#include <string>

#include "hook/base/presence.hpp"
#include "hook/base/result.hpp"

namespace hook {

struct NetnsIdentity {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  std::string path;  // "/var/run/netns/cni-..." or "/proc/PID/ns/net"; kPresent: the path leads to this namespace
  // The directory of the path. In another directory a missing path proves nothing, for example in a mount namespace
  // without the node's /var/run/netns. 0: not recorded, as for a path in procfs.
  std::uint64_t directory_dev = 0;
  std::uint64_t directory_ino = 0;
  friend bool operator==(const NetnsIdentity&, const NetnsIdentity&) = default;
};

// Reads the identity of the namespace at a path. Errors: ENOENT or ENOTDIR, the path does not exist; any other errno:
// it cannot be read.
Result<NetnsIdentity> identify_netns(const std::string& path);
// Looks up a namespace. Returns kGone if the path in the recorded directory leads to another namespace or none; the
// namespace may live on in its processes. Errors: it cannot be read, or the directory is not the recorded one.
Result<Presence> read_presence(const NetnsIdentity& netns);

// Describes the members for records of grants and of rails (hook/base/json/record.hpp).
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
  std::string root;  // mount point of the hierarchy
  std::uint64_t root_dev = 0;
  std::uint64_t root_ino = 0;
  std::string path;  // path below the mount point: "/docker/4f2c"
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  friend bool operator==(const CgroupIdentity&, const CgroupIdentity&) = default;
};

// Reads the identity of a cgroup. Errors: one of the two directories cannot be read.
Result<CgroupIdentity> identify_cgroup(const std::string& root, const std::string& path);
// Looks up a cgroup. Returns kPresent if a process is in it or in a group below it. Returns kGone if there is no such
// process, if the recorded root has no group of this path, or if that group was made again. Errors: the root is not the
// recorded one, or a file cannot be read.
Result<Presence> read_presence(const CgroupIdentity& cgroup);

// Describes the members for records of grants (hook/base/json/record.hpp).
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
