#include "hook/apply/live/container_root.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/process/helper.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

// Returns the components of an absolute path; nullopt if it is not absolute or has "." or "..".
std::optional<std::vector<std::string>> components(const std::string& path) {
  if (!path.starts_with('/')) return std::nullopt;
  std::vector<std::string> names;
  for (const std::string_view name : base::split(path, '/')) {
    if (name == "." || name == "..") return std::nullopt;
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

UniqueFd fail(int code) {
  errno = code;
  return UniqueFd();
}

bool is_symlink(int directory, const char* name) {
  struct stat status {};
  return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
}

// Opens a path component by component with O_NOFOLLOW, for kernels without openat2(2).
UniqueFd walk(int root, const std::vector<std::string>& names, int flags) {
  UniqueFd at(openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (std::size_t i = 0; i < names.size() && at.ok(); ++i) {
    const bool last = i + 1 == names.size();
    const char* name = names[i].c_str();
    const int how = last ? flags : O_PATH | O_DIRECTORY;
    UniqueFd next(openat(at.get(), name, how | O_NOFOLLOW | O_CLOEXEC));
    const int code = errno;
    // O_PATH opens a symlink itself, and O_PATH with O_DIRECTORY fails for a symlink with ENOTDIR. In both cases the
    // result is ELOOP, as that of openat2(2).
    if ((next.ok() || code == ENOTDIR) && is_symlink(at.get(), name)) return fail(ELOOP);
    if (!next.ok()) return fail(code);
    at = std::move(next);
  }
  return at;
}

constexpr mode_t kDirectoryMode = 0755;

constexpr Word<mode_t> kFileKinds[] = {{"a regular file", S_IFREG}, {"a directory", S_IFDIR}, {"a symlink", S_IFLNK},
                                       {"a block device", S_IFBLK}, {"a FIFO", S_IFIFO},      {"a socket", S_IFSOCK}};

// Returns the remedy for a file of the image at this absolute path, or at a directory above it.
std::string without_file(const char* file, const std::string& path) {
  const std::string top = path.substr(0, path.find('/', 1));
  const char* const kind = top == "/sys" ? "sysfs" : "tmpfs";
  return fmt::format("remove the {} from the image, or mount a {} at {}", file, kind, top);
}

Error symlink_error(const std::string& path) {
  return Error{fmt::format("cannot use `{}` in the container: it or a directory above it is a symlink", path), ELOOP,
               without_file("symlink", path)};
}

// Returns the error of opening a path in the container. A symlink (ELOOP) has its own message, and a symlink or a file
// in place of a directory has a remedy.
Error open_error(int code, const std::string& path) {
  if (code == ELOOP) return symlink_error(path);
  Error error = sys_error(code, "cannot open `{}` in the container", path);
  if (code == ENOTDIR) error.hint = without_file("file", path);
  return error;
}

// While this object lives, the process creates files with the uid and gid of the container's root. A file system that
// was mounted in a user namespace refuses owners that are not mapped there, such as the node's root (EOVERFLOW). Use it
// only in a child of run_in_child().
class ActAs {
 public:
  explicit ActAs(const MappedRoot& owner)
      : parent_(getppid()),
        gid_(static_cast<gid_t>(setfsgid(owner.gid))),
        uid_(static_cast<uid_t>(setfsuid(owner.uid))) {
    keep_dying_with_parent();
  }
  ~ActAs() {
    setfsuid(uid_);
    setfsgid(gid_);
    keep_dying_with_parent();
  }
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;

 private:
  // Repeats die_with_parent(), because a change of the file-system user clears the setting.
  void keep_dying_with_parent() const {
    if (!die_with_parent(parent_)) _exit(1);
  }
  pid_t parent_;
  gid_t gid_;
  uid_t uid_;
};

bool is_same_mount(const Mounted& left, const Mounted& right) {
  return left.id != 0 ? left.id == right.id : left.file.dev == right.file.dev;
}

// Returns whether one of the mounts of the container's config.json exists below `root`, which is on the mount `own`. A
// path is on such a mount if its mount id (before Linux 5.8: its device) differs from that of the root.
bool any_is_mounted(int root, const Mounted& own, const std::vector<SpecMount>& mounts) {
  return std::ranges::any_of(mounts, [&](const SpecMount& mount) {
    const UniqueFd fd = open_in_root(root, mount.destination, O_PATH);
    const auto found = fd.ok() ? mounted(fd.get()) : std::nullopt;
    return found && !is_same_mount(*found, own);
  });
}

// Returns an earlier mount point for a device node: bind_node() made this file, and was killed before it mounted. The
// file is empty, has mode 0 and belongs to `owner`. A file of the image with these properties is used too. For any
// other file, returns an invalid descriptor.
UniqueFd find_placeholder(int directory, const std::string& name, const MappedRoot& owner) {
  UniqueFd fd(openat(directory, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  const bool is_one = fd.ok() && fstat(fd.get(), &status) == 0 && status.st_mode == S_IFREG && status.st_size == 0 &&
                      status.st_nlink == 1 && status.st_uid == owner.uid && status.st_gid == owner.gid;
  return is_one ? std::move(fd) : UniqueFd();
}

// Returns the device node; an invalid descriptor: the name does not exist. Errors: another file has the name.
Result<UniqueFd> find_node(int directory, const std::string& name, const MakeNode& node) {
  UniqueFd fd(openat(directory, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.ok() && errno == ENOENT) return UniqueFd();
  struct stat status {};
  if (!fd.ok() || fstat(fd.get(), &status) != 0) return open_error(errno, node.path);
  const std::string wanted = fmt::format("the character device {}:{}", node.major, node.minor);
  const std::string hint = without_file("file", node.path);
  if (!S_ISCHR(status.st_mode))
    return Error{fmt::format("`{}` in the container is {}, not {}", node.path,
                             to_word(kFileKinds, status.st_mode & S_IFMT), wanted),
                 EEXIST, hint};
  if (status.st_rdev != makedev(node.major, node.minor))
    return Error{fmt::format("`{}` in the container is the character device {}:{}, not {}:{}", node.path,
                             major(status.st_rdev), minor(status.st_rdev), node.major, node.minor),
                 EEXIST, hint};
  return fd;
}

}  // namespace

UniqueFd open_in_root(int root, const std::string& path, int flags, Resolver resolver) {
  const auto names = components(path);
  // openat2(2) would resolve "..", and walk() cannot. So "." and ".." are refused for both.
  if (!names) return fail(EINVAL);
  if (resolver == Resolver::kOpenat2) {
    open_how how{};
    // O_NOFOLLOW is removed: with O_PATH it would open a symlink at the end of the path, and with O_DIRECTORY the error
    // would be ENOTDIR. RESOLVE_NO_SYMLINKS gives ELOOP instead.
    how.flags = static_cast<__u64>((flags & ~O_NOFOLLOW) | O_CLOEXEC);
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    UniqueFd fd(static_cast<int>(syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
    // EPERM can come from the seccomp profile of an outer container that does not know openat2(2).
    if (fd.ok() || (errno != ENOSYS && errno != EPERM)) return fd;
  }
  return walk(root, *names, flags);
}

std::optional<FileId> file_id(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return std::nullopt;
  return FileId{status.st_dev, status.st_ino};
}

NodeFiles read_node_files() {
  NodeFiles files;
  struct stat status {};
  if (stat("/", &status) == 0) {
    files.root = {status.st_dev, status.st_ino};
    files.file_systems.push_back(status.st_dev);
  }
  for (const char* path : {"/dev", "/dev/shm", "/run", "/tmp", "/sys/fs/cgroup"})
    if (stat(path, &status) == 0) files.file_systems.push_back(status.st_dev);
  return files;
}

Result<ContainerRoot> ContainerRoot::open(const std::string& path, const FileId& rootfs, const NodeFiles& node,
                                          ContainerMounts mounts) {
  // If the bundle names the node's root directory as the container's, files would be made on the node.
  if (rootfs == node.root) return make_error("cannot use `{}` as a container's root: it is the root of the node", path);
  UniqueFd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.ok()) return sys_error(errno, "cannot open the root of the container's mount namespace");
  auto here = mounted(root.get());
  if (!here || here->file != rootfs) {
    root.reset(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root.ok()) {
      Error error = sys_error(errno, "cannot open the root file system `{}` in the container", path);
      error.hint = "check that the pid in the OCI state is a process of this bundle's container";
      return error;
    }
    here = mounted(root.get());
    // Runtimes mount the root file system onto itself, so the directory must be the root of a mount. Linux before 5.8
    // does not report whether it is, so this is not checked there.
    if (!here || here->file != rootfs || (here->id != 0 && !here->is_root))
      return make_error("cannot use `{}`: it is another directory in the container's mount namespace", path);
  }
  if (!mounts.spec.empty() && !any_is_mounted(root.get(), *here, mounts.spec)) {
    return Error{
        fmt::format("cannot use `{}` as the container's root: none of the mounts of the bundle is in it", path), 0,
        "check that the pid in the OCI state is a process of this bundle's container"};
  }
  ContainerRoot result(std::move(root), node, std::move(mounts));
  result.root_mount_ = here;
  return result;
}

std::optional<Mounted> ContainerRoot::root_mount() const {
  if (!root_mount_) root_mount_ = mounted(root_.get());
  return root_mount_;
}

// Returns whether the directory is on a tmpfs that is mounted directly on the root's mount, and is not the node's.
bool ContainerRoot::is_own_tmpfs(int directory, const Mounted& here, const Mounted& root) const {
  struct statfs status {};
  return fstatfs(directory, &status) == 0 && status.f_type == TMPFS_MAGIC &&
         std::ranges::find(node_.file_systems, here.file.dev) == node_.file_systems.end() &&
         (root.id == 0 || lies_on(mounts_.mountinfo, here.id, root.id));
}

// Returns where device nodes may be made: if nothing is mounted at /dev, the container's root file system; otherwise
// the tmpfs that the runtime mounted at /dev. A volume can be mounted over this tmpfs if a link in the image leads the
// volume's destination to /dev. The volume may be a tmpfs too, but it is mounted on the runtime's tmpfs. Therefore only
// a tmpfs that is mounted directly on the root's mount counts.
Result<const ContainerRoot::NodeDirectory*> ContainerRoot::node_directory() const {
  if (node_directory_) return &*node_directory_;
  UniqueFd dev = open_in_root(root_.get(), "/dev", O_PATH | O_DIRECTORY);
  if (!dev.ok() && errno != ENOENT) return open_error(errno, "/dev");
  const auto own = root_mount();
  const auto here = dev.ok() ? mounted(dev.get()) : own;
  if (!own || !here) return sys_error(errno, "cannot read `/dev`");
  const bool runtimes_own = has_own_dev(mounts_.spec) && dev.ok() && is_own_tmpfs(dev.get(), *here, *own);
  node_directory_ = NodeDirectory{std::move(dev), *here, is_same_mount(*here, *own) || runtimes_own};
  return &*node_directory_;
}

Result<void> ContainerRoot::check_writable(int directory, const std::string& path) const {
  const NodeDirectory& own = *TRY(node_directory());
  const auto here = mounted(directory);
  if (!here) return sys_error(errno, "cannot read `{}`", path);
  if (!is_in_bind(mounts_.spec, path) && own.is_own && is_same_mount(*here, own.mount)) return {};
  return Error{fmt::format("cannot create a file in `{}` of the container: it is mounted from the node", path), EROFS,
               "remove that mount: device nodes are made only on the container's own /dev"};
}

Result<void> ContainerRoot::check_own(int directory, const std::string& path) const {
  const auto root = root_mount();
  const auto here = mounted(directory);
  if (!root || !here) return sys_error(errno, "cannot read `{}`", path);
  if (!is_in_bind(mounts_.spec, path) && (is_same_mount(*here, *root) || is_own_tmpfs(directory, *here, *root)))
    return {};
  return Error{fmt::format("cannot make a directory in `{}` of the container: it is mounted from the node", path),
               EROFS, "remove that mount, or make the directory on the node"};
}

Result<const ContainerRoot::Parent*> ContainerRoot::parent(const std::string& path) const {
  if (parent_ && parent_->path == path) return &*parent_;
  UniqueFd fd = TRY(make_directories(path, &ContainerRoot::check_writable));
  auto writable = check_writable(fd.get(), path);
  parent_ = Parent{path, std::move(fd), std::move(writable)};
  return &*parent_;
}

Result<UniqueFd> ContainerRoot::make_directories(const std::string& path, Check may_make) const {
  UniqueFd fd = open_in_root(root_.get(), path, O_PATH | O_DIRECTORY);
  if (fd.ok()) return fd;
  if (errno != ENOENT || path == "/") return open_error(errno, path);
  const std::string above = parent_of(path);
  // Recursion ends at "/" or at an existing directory; a path has few components.
  const UniqueFd parent = TRY(make_directories(above, may_make));
  TRY_VOID((this->*may_make)(parent.get(), above));
  if (mkdirat(parent.get(), std::string(last_component(path)).c_str(), kDirectoryMode) != 0 && errno != EEXIST)
    return sys_error(errno, "cannot make the directory `{}` in the container", path);
  fd = open_in_root(root_.get(), path, O_PATH | O_DIRECTORY);
  if (!fd.ok()) return open_error(errno, path);
  return fd;
}

Result<void> ContainerRoot::make_node(const MakeNode& node) const {
  const Parent& parent = *TRY(this->parent(parent_of(node.path)));
  const std::string name(last_component(node.path));
  int failed = 0;
  if (parent.writable) {
    const dev_t number = makedev(node.major, node.minor);
    failed = mknodat(parent.fd.get(), name.c_str(), S_IFCHR | (node.mode & 0777), number) == 0 ? 0 : errno;
    // mknod(2) never follows or replaces a file. So if it succeeds, the node is the wanted one, and root owns it.
    if (failed == 0 && node.uid == 0 && node.gid == 0) return {};
  }
  // If there is a file of this name, the error of mknod(2) does not matter: find_node() checks the file, whichever
  // process made it.
  const UniqueFd found = TRY(find_node(parent.fd.get(), name, node));
  if (!parent.writable || failed != 0) {
    if (found.ok()) return {};
    if (!parent.writable) return parent.writable.error();
    return sys_error(failed, "cannot make the device node `{}` in the container", node.path);
  }
  if (!found.ok())
    return sys_error(ENOENT, "cannot find the device node `{}` that was just made in the container", node.path);
  if (fchownat(found.get(), "", node.uid, node.gid, AT_EMPTY_PATH) != 0)
    return sys_error(errno, "cannot change the owner of `{}` in the container to {}:{}", node.path, node.uid, node.gid);
  return {};
}

Result<void> ContainerRoot::bind_node(const MakeNode& node, int tree, const MappedRoot& owner) const {
  const std::string directory = parent_of(node.path);
  const std::string name(last_component(node.path));
  UniqueFd file;
  {
    // The process acts as the container's root only while it makes the file, because the later mount needs the
    // capabilities of the hook.
    const ActAs container(owner);
    const UniqueFd parent = TRY(make_directories(directory, &ContainerRoot::check_writable));
    file = find_placeholder(parent.get(), name, owner);
    if (!file.ok() && TRY(find_node(parent.get(), name, node)).ok()) return {};
    TRY_VOID(check_writable(parent.get(), directory));
    TRY_VOID(check_not_shared(parent.get(), mounts_.mountinfo, directory));
    if (!file.ok()) {
      file.reset(openat(parent.get(), name.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0));
      if (!file.ok()) return sys_error(errno, "cannot make `{}` in the container", node.path);
    }
  }
  TRY_VOID(check_not_shared(file.get(), mounts_.mountinfo, node.path));
  if (!seal_tree(tree, 0) && errno != ENOSYS && errno != EPERM)
    return sys_error(errno, "cannot make the bind mount of `{}` private", node.source);
  // This call uses only descriptors, because the path of the file could lead to another file by now.
  if (move_mount(tree, "", file.get(), "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    return sys_error(errno, "cannot mount the node's `{}` in the container", node.source);
  const UniqueFd parent = TRY(make_directories(directory, &ContainerRoot::check_writable));
  if (TRY(find_node(parent.get(), name, node)).ok()) return {};
  return sys_error(ENOENT, "cannot find the device node `{}` that was just mounted in the container", node.path);
}

Result<void> ContainerRoot::bind_directory(const BindDirectory& bind, int tree, const MappedRoot& owner) const {
  if (bind.lent) {
    const ActAs container(owner);
    TRY(make_directories(bind.destination, &ContainerRoot::check_own));
  }
  UniqueFd destination = open_in_root(root_.get(), bind.destination, O_PATH | O_DIRECTORY);
  auto here = destination.ok() ? mounted(destination.get()) : std::nullopt;
  // A killed call may have mounted a view whose directory the ledger has removed since (0 links). Unmount that view
  // first, because a removed directory takes no mount.
  if (here && here->links == 0 && fchdir(destination.get()) == 0 && umount2(".", MNT_DETACH) == 0) {
    destination = open_in_root(root_.get(), bind.destination, O_PATH | O_DIRECTORY);
    here = destination.ok() ? mounted(destination.get()) : std::nullopt;
  }
  if (!destination.ok()) {
    if (errno == ENOENT) return {};
    return open_error(errno, bind.destination);
  }
  if (!here) return sys_error(errno, "cannot read the mount of `{}` in the container", bind.destination);
  // An earlier call may have mounted it. Linux before 5.8 does not report whether this is the root of a mount.
  if ((here->is_root || here->id == 0) && here->file == file_id(tree)) return {};
  TRY_VOID(check_not_shared(*here, mounts_.mountinfo, bind.destination));
  const std::uint64_t noexec = MOUNT_ATTR_NOEXEC;  // the node's /run may have it, too
  const bool sealed =
      seal_tree(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (bind.lent ? 0 : noexec),
                bind.lent ? noexec : 0);
  if (move_mount(tree, "", destination.get(), "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    return sys_error(errno, "cannot mount `{}` at `{}` in the container", bind.source, bind.destination);
  if (sealed) return {};
  // seal_tree() failed, because mount_setattr(2) needs Linux 5.12. mount(2) takes a path and no descriptor, so make the
  // mount the working directory, and remount ".".
  if (fchdir(tree) != 0 || mount(nullptr, ".", nullptr, MS_PRIVATE, nullptr) != 0 ||
      mount(nullptr, ".", nullptr,
            MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | (bind.lent ? 0 : MS_NOEXEC), nullptr) != 0) {
    return sys_error(errno, "cannot make `{}` in the container read-only", bind.destination);
  }
  return {};
}

}  // namespace hook
