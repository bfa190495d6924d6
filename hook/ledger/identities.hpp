// Identities of a container's network namespace and of its own cgroup. An identity has inode number and path, so that a
// later namespace or cgroup with the same number or name is not mistaken for the recorded one.
#pragma once

#include <cstdint>
#include <string>

#include "base/presence.hpp"
#include "base/result.hpp"

namespace hook {

struct NetnsIdentity {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  std::string path;  // "/var/run/netns/cni-..." or "/proc/PID/ns/net"
  // The directory that contains the path. Another directory in its place proves nothing: in a mount namespace without
  // the node's /var/run/netns, every path there is missing. 0: it was not recorded, as for a path in procfs.
  std::uint64_t directory_dev = 0;
  std::uint64_t directory_ino = 0;
  friend bool operator==(const NetnsIdentity&, const NetnsIdentity&) = default;
};

// Reads the identity of the namespace at a path. Errors: ENOENT or ENOTDIR, the path does not exist; any other errno:
// it cannot be read.
Result<NetnsIdentity> identify_netns(const std::string& path);
// Looks up a namespace by its path. Returns kPresent if the path leads to it. Returns kAbsent if the path in the
// recorded directory leads to another namespace or none; the namespace itself may live on in its processes. Errors: the
// path cannot be read, or the directory is not the recorded one.
Result<Presence> read_presence(const NetnsIdentity& netns);

// Describes the members for records of grants and of rails (base/json/record.hpp).
void describe(auto& members, NetnsIdentity& netns) {
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
// Looks up a cgroup. Returns kPresent if a process is in the cgroup or in one below it. Returns kAbsent if there is no
// such process, if the cgroup is missing from the recorded hierarchy, or if another cgroup was made at its path.
// Errors: the root is not the recorded hierarchy, or a file cannot be read.
Result<Presence> read_presence(const CgroupIdentity& cgroup);

// Describes the members for records of grants (base/json/record.hpp).
void describe(auto& members, CgroupIdentity& cgroup) {
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
