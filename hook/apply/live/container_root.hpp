// The file tree of a container as a process sees it that has joined the container's mount namespace.
//
// Everything is resolved by openat2(2) (Linux 5.6) below one pinned descriptor, without symlinks; where it is missing
// or forbidden, component by component with O_NOFOLLOW. Nothing is created on a file system that the node uses itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/apply/live/steps.hpp"
#include "hook/base/result.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

// The mounts of a container: what config.json says of them, what its process's mountinfo says (proc(5), Linux 2.6.26),
// and what a descriptor says (statx(2), Linux 5.8).

struct ContainerMounts {
  std::vector<SpecMount> spec;
  std::string mountinfo;  // of the container's process
};

struct Mounted {
  std::uint64_t id = 0;  // 0: the kernel does not say (before Linux 5.8)
  bool is_root = false;  // of its mount
  std::uint64_t dev = 0;
};
// nullopt with errno set.
std::optional<Mounted> mounted(int fd);

// Whether a mount on the mount with that id can appear in other mount namespaces. An id that is not listed, 0 among
// them, counts as shared when any mount is.
bool is_shared(std::string_view mountinfo, std::uint64_t id);
// Whether the mount with that id lies on the mount with the other id; false where it is not listed.
bool lies_on(std::string_view mountinfo, std::uint64_t id, std::uint64_t below);
// Whether config.json mounts a file system of the container's own at /dev.
bool has_own_dev(const std::vector<SpecMount>& mounts);
// Whether the mount of config.json that holds this path is a bind: the one with the longest destination above the path
// or at it, of equals the last. Destinations are taken as they are written, below "/".
bool is_in_bind(const std::vector<SpecMount>& mounts, const std::string& path);

// An error where a mount on fd, which is `path` in the container, would appear on the node too.
Result<void> check_not_shared(int fd, std::string_view mountinfo, const std::string& path);

// Cuts a detached mount off from the one it was cloned from (a mount onto a part of it would appear there), and gives
// it attributes, MOUNT_ATTR_*. False with errno set: ENOSYS before Linux 5.12.
bool seal_tree(int tree, std::uint64_t attributes);

// Paths below the root of a container: nothing there is followed, whatever the image put there.

struct FileId {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};
// nullopt with errno set.
std::optional<FileId> file_id(int fd);

enum class Resolver { kOpenat2, kWalk };  // kOpenat2: with kWalk as fallback

// A path of the container ("/dev/infiniband"), absolute, without "." and ".." components (EINVAL); flags as for
// open(2). Empty with errno set when it cannot be opened: ELOOP where any component, the last one included, is a
// symlink.
fabric::UniqueFd open_in_root(int root, const std::string& path, int flags, Resolver resolver = Resolver::kOpenat2);

// What the node itself uses, seen before its mount namespace was left.
struct NodeFiles {
  FileId root;                              // "/"
  std::vector<std::uint64_t> file_systems;  // st_dev of /dev, /run and the like: nothing is created on them
};
NodeFiles read_node_files();

// The ids in the node's terms that stand for the container's uid 0 and gid 0.
struct MappedRoot {
  uid_t uid = 0;
  gid_t gid = 0;
};

class ContainerRoot {
 public:
  // For a process that has joined the container's mount namespace. path: the root file system as the engine names it,
  // rootfs: what the node sees there. Where the runtime has not pivoted yet it is looked for at that path, else it is
  // "/". Of the mounts of config.json one at least must be a mount point, or this is no container whose runtime has
  // done its mounts.
  static Result<ContainerRoot> open(const std::string& path, const FileId& rootfs, const NodeFiles& node,
                                    ContainerMounts mounts);
  // root: an open directory that stands for the container's "/".
  ContainerRoot(fabric::UniqueFd root, NodeFiles node, ContainerMounts mounts)
      : root_(std::move(root)), node_(std::move(node)), mounts_(std::move(mounts)) {}

  // Both leave a node of the right number alone, whatever its mode; anything else there is an error. Missing
  // directories are made, 0755. EPERM from make_node(): mknod(2) is forbidden here.
  Result<void> make_node(const MakeNode& node) const;
  // tree: detached mount of the node's own device node, from open_tree(2). The file below it becomes the mapped root's.
  // Here and below: an error where the mount would appear on the node too.
  Result<void> bind_node(const MakeNode& node, int tree, const MappedRoot& owner) const;
  // tree: detached mount of the source, or overlay. Nothing happens where the destination does not exist. read-only,
  // nosuid, nodev, noexec.
  Result<void> bind_directory(const BindDirectory& bind, int tree) const;

 private:
  Result<fabric::UniqueFd> make_directories(const std::string& path) const;
  Result<void> check_writable(int directory, const std::string& path) const;
  // Where nodes may be made: the mount of /dev as it was at the first question. What is mounted there later is another,
  // because the descriptor keeps the mount, and with it its number.
  struct NodeDirectory {
    fabric::UniqueFd dev;  // empty: there was no /dev, and this is the root's mount
    Mounted mount;
    bool is_own;  // the container's
  };
  Result<const NodeDirectory*> node_directory() const;

  fabric::UniqueFd root_;
  NodeFiles node_;
  ContainerMounts mounts_;
  mutable std::optional<NodeDirectory> node_directory_;
};

}  // namespace hook
