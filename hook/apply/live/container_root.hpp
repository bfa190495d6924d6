// Accesses the file tree of a container from a process that has joined the container's mount namespace.
//
// openat2(2) (Linux 5.6) resolves all paths below one open descriptor of the container's root, without symlinks. If
// openat2(2) is missing or forbidden, openat(2) with O_NOFOLLOW resolves each component. Files are never created on a
// file system that the node itself uses.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/apply/live/steps.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

// The mounts of a container come from three sources: its config.json, the mountinfo of its process (proc(5), Linux
// 2.6.26), and descriptors (statx(2), Linux 5.8).

struct ContainerMounts {
  std::vector<SpecMount> spec;
  std::string mountinfo;  // text of /proc/PID/mountinfo of the container's process
};

// Returns the identity of an open file. Returns nullopt and sets errno if it cannot be read.
std::optional<FileId> file_id(int fd);

// An open file and its mount.
struct Mounted {
  std::uint64_t id = 0;  // mount id; 0: the kernel does not report it (before Linux 5.8)
  bool is_root = false;  // the file is the root of its mount
  FileId file;
  std::uint32_t links = 0;
};
// Returns the mount of an open file. Returns nullopt and sets errno if it cannot be read.
std::optional<Mounted> mounted(int fd);

// Returns true if a new mount on the mount `id` would also appear in other mount namespaces (shared propagation). If
// the id is not listed, for example 0, returns true if any mount is shared.
bool is_shared(std::string_view mountinfo, std::uint64_t id);
// Returns whether the mount `id` is mounted directly on the mount `below`; false if `id` is not listed.
bool lies_on(std::string_view mountinfo, std::uint64_t id, std::uint64_t below);
// Returns whether the container's config.json mounts a new file system (no bind mount) at /dev.
bool has_own_dev(const std::vector<SpecMount>& mounts);
// Returns whether the path is on a bind mount of the container's config.json. The mount with the longest destination at
// or above the path decides. If two mounts have this destination, the later one decides. Symlinks in destinations are
// not resolved.
bool is_in_bind(const std::vector<SpecMount>& mounts, const std::string& path);

// Checks that a mount on a file, which is `path` in the container, would not propagate to the node. Errors: the mount
// would propagate; the mount of fd cannot be read.
Result<void> check_not_shared(int fd, std::string_view mountinfo, const std::string& path);
Result<void> check_not_shared(const Mounted& here, std::string_view mountinfo, const std::string& path);

// Makes a detached mount private, so that later mounts on the source of `tree` do not appear in the container, and sets
// and clears MOUNT_ATTR_* attributes. Returns false with errno: ENOSYS before Linux 5.12.
bool seal_tree(int tree, std::uint64_t set, std::uint64_t clear = 0);

enum class Resolver { kOpenat2, kWalk };  // kOpenat2 uses kWalk if openat2(2) is missing or forbidden

// Opens a path of the container ("/dev/infiniband"). The path must be absolute without "." and ".." (EINVAL). flags: as
// for open(2). Returns an invalid descriptor with errno: ELOOP if any component, including the last, is a symlink.
base::UniqueFd open_in_root(int root, const std::string& path, int flags, Resolver resolver = Resolver::kOpenat2);

// Directories and file systems that the node itself uses, in which no file of a container may be made. Read before the
// process leaves the node's mount namespace.
struct NodeFiles {
  FileId root;                              // identity of "/"
  std::vector<std::uint64_t> file_systems;  // st_dev of /dev, /run and the like, on which files are never created
};
NodeFiles read_node_files();

// The uid and gid on the node to which the container's user namespace maps its uid 0 and gid 0.
struct MappedRoot {
  uid_t uid = 0;
  gid_t gid = 0;
};

class ContainerRoot {
 public:
  // Opens the container's root, in a process that has joined the container's mount namespace. path: path of the root
  // file system on the node, from the bundle. rootfs: the identity of that directory on the node. Before the runtime
  // has called pivot_root(2), the root is at `path`, afterwards at "/". Errors: rootfs is the node's root; `path` is
  // another directory; the mounts of the container's config.json are all missing, so the runtime has not made them or
  // the process is not in the container.
  static Result<ContainerRoot> open(const std::string& path, const FileId& rootfs, const NodeFiles& node,
                                    ContainerMounts mounts);
  // root: an open directory that is the container's "/".
  ContainerRoot(base::UniqueFd root, NodeFiles node, ContainerMounts mounts)
      : root_(std::move(root)), node_(std::move(node)), mounts_(std::move(mounts)) {}

  // Makes a device node. An existing node with the right number stays, whatever its mode; any other existing file is an
  // error. Missing directories are made with mode 0755. Errors: EPERM, mknod(2) is forbidden in this user namespace;
  // EROFS, the directory is mounted from the node.
  Result<void> make_node(const MakeNode& node) const;
  // Mounts the node's device node at the path. tree: detached mount of the device node, from open_tree(2). owner: owner
  // of the file that is made as the mount point. Errors of bind_node() and bind_directory(): the mount would propagate
  // to the node.
  Result<void> bind_node(const MakeNode& node, int tree, const MappedRoot& owner) const;
  // Mounts a directory read-only, nosuid, nodev and, unless it has lent libraries, noexec. tree: detached mount of the
  // source directory or of an overlay. owner: owner of the directories that are made for lent libraries.
  Result<void> bind_directory(const BindDirectory& bind, int tree, const MappedRoot& owner = {}) const;

 private:
  // The directory of the last device node. While the descriptor is open, it stays on this mount. So one check of the
  // directory serves all its nodes.
  struct Parent {
    std::string path;
    base::UniqueFd fd;
    Result<void> writable;  // whether files can be made in the container (check_writable())
  };
  Result<const Parent*> parent(const std::string& path) const;
  using Check = Result<void> (ContainerRoot::*)(int directory, const std::string& path) const;
  Result<base::UniqueFd> make_directories(const std::string& path, Check may_make) const;
  Result<void> check_writable(int directory, const std::string& path) const;
  // Checks a directory for mount points: it must be on the root's mount, or on a tmpfs of config.json directly on that
  // mount.
  Result<void> check_own(int directory, const std::string& path) const;
  bool is_own_tmpfs(int directory, const Mounted& here, const Mounted& root) const;
  // The directory /dev in which device nodes may be made, and its mount. The first call of node_directory() finds both.
  // While the descriptor is open, the kernel gives the id of this mount to no other mount. So a different id later
  // shows that something was mounted over /dev.
  struct NodeDirectory {
    base::UniqueFd dev;  // invalid: there was no /dev, and `mount` is the mount of the root
    Mounted mount;
    bool is_own;  // the mount belongs to the container, not to the node
  };
  Result<const NodeDirectory*> node_directory() const;

  // Returns the mount of the root. Reads it once, because the descriptor stays on it.
  std::optional<Mounted> root_mount() const;

  base::UniqueFd root_;
  NodeFiles node_;
  ContainerMounts mounts_;
  mutable std::optional<Mounted> root_mount_;
  mutable std::optional<NodeDirectory> node_directory_;
  mutable std::optional<Parent> parent_;
};

}  // namespace hook
