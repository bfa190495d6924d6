#include "hook/admin/install/node_files.hpp"

#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/replace_file.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace hook {
namespace {

constexpr JsonLimits kNodeFileLimits{.bytes = 16 << 20};

std::string directory_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

Error link_in_the_way(const std::string& path) {
  return {fmt::format("`{}` is a link", path), ELOOP,
          "merge the output of `--dry-run` into the link's target by hand, or replace the link by a file"};
}

// Opens a path of the node with its symbolic links resolved below root. Returns an invalid descriptor and sets errno if
// the path does not exist or cannot be resolved.
UniqueFd open_below(const std::string& root, const std::string& path) {
  const UniqueFd base(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!base.ok()) return {};
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC;
  // RESOLVE_IN_ROOT resolves an absolute link below root and not in the file system of this process.
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, base.get(), path.c_str(), &how, sizeof how)));
}

std::string name_of_fd(int fd) {
  return fmt::format("/proc/self/fd/{}", fd);
}

// Returns whether a regular file exists at the path. Errors: the path has another file type, or the lookup fails.
Result<bool> is_there(const std::string& root, const std::string& path, struct stat& seen) {
  const std::string file = TRY(node_path(root, path));
  if (::lstat(file.c_str(), &seen) != 0) {
    if (errno == ENOENT) return false;
    return sys_error(errno, "check `{}`", path);
  }
  if (S_ISLNK(seen.st_mode)) return link_in_the_way(path);
  if (!S_ISREG(seen.st_mode)) return make_error("`{}` is not a regular file", path);
  return true;
}

// Makes renames in the directory survive a crash of the node, which needs fsync(2) of the directory. Errors are
// ignored: without the sync, a crash can leave the old file, which is complete too.
void sync_directory(const std::string& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.ok()) ::fsync(fd.get());
}

// Writes the temporary file of `path`. Syncs it to disk, because engines read the file after a crash of the node.
// owner: nullopt is the owner of this process.
Result<void> write_temporary(const std::string& root, const std::string& path, std::string_view text,
                             std::optional<base::FileOwner> owner, mode_t mode) {
  const std::string file = TRY(node_path(root, path));
  std::error_code failed;
  std::filesystem::create_directories(directory_of(file), failed);
  if (failed) return sys_error(failed.value(), "make the directory of `{}`", path);
  base::NewFile temporary =
      base::NewFile::write({AT_FDCWD, file + kCandidate}, text, {.mode = mode, .owner = owner, .is_synced = true});
  if (const auto& failure = temporary.failure()) {
    const bool is_made = failure->step != base::FileFailure::Step::kCreate;
    return sys_error(failure->code, "{} `{}{}`", is_made ? "write" : "open", path, kCandidate);
  }
  temporary.keep();
  return {};
}

}  // namespace

std::vector<std::string> directories_above(const std::string& path) {
  std::vector<std::string> directories;
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    directories.push_back(path.substr(0, at));
  return directories;
}

Result<std::string> node_path(const std::string& root, const std::string& path) {
  if (!path.starts_with('/')) return node_path(root, "/" + path);
  if (root.empty()) return path;
  // Resolves the links of the nearest directory above the path that exists.
  std::string above = directory_of(path);
  for (; !above.empty(); above = directory_of(above)) {
    const UniqueFd fd = open_below(root, above);
    std::error_code failed;
    if (fd.ok()) {
      const auto real = std::filesystem::read_symlink(name_of_fd(fd.get()), failed);
      if (failed) return sys_error(failed.value(), "check `{}`", above);
      return real.string() + path.substr(above.size());
    }
    if (!base::is_absent(errno)) return sys_error(errno, "check `{}`", above);
    const std::string parent = TRY(node_path(root, above));
    struct stat seen {};
    if (::lstat(parent.c_str(), &seen) == 0)
      return Error{fmt::format("`{}` is a link to a missing path", above), ELOOP, "correct or remove the link"};
  }
  return root + path;
}

bool node_has(const std::string& root, const std::string& path, int mode) {
  if (!path.starts_with('/')) return node_has(root, "/" + path, mode);
  if (root.empty()) return ::access(path.c_str(), mode) == 0;
  const UniqueFd fd = open_below(root, path);
  return fd.ok() && ::access(name_of_fd(fd.get()).c_str(), mode) == 0;
}

std::vector<std::string> names_in(const std::string& root, const std::string& directory) {
  const auto place = node_path(root, directory + "/");
  const auto open = base::Directory::open(place ? *place : std::string());
  return open ? open->list() : std::vector<std::string>();
}

std::string followed(const std::string& root, const std::string& path) {
  const std::string top = root.empty() ? "/" : root;
  const UniqueFd at_top = open_below(top, "/");
  const UniqueFd at_path = open_below(top, path);
  const auto above = base::read_link(AT_FDCWD, name_of_fd(at_top.get()).c_str());
  const auto real = base::read_link(AT_FDCWD, name_of_fd(at_path.get()).c_str());
  if (!above || !real || !real->starts_with(*above)) return path;
  return *above == "/" ? *real : real->substr(above->size());
}

std::vector<std::string> matching_files(const std::string& root, std::string_view path) {
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos || path.find_first_of("*?[", slash) == std::string_view::npos)
    return {std::string(path)};
  const std::string directory(path.substr(0, slash + 1));
  const std::string pattern(path.substr(slash + 1));
  std::vector<std::string> paths;
  for (const std::string& name : names_in(root, directory))
    if (::fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0) paths.push_back(directory + name);
  std::ranges::sort(paths);
  return paths;
}

Result<void> check_may_write(const std::string& root, const std::string& path) {
  std::string above = directory_of(path);
  while (!above.empty() && !node_has(root, above, F_OK))
    above = directory_of(above);
  if (above.empty()) above = "/";
  if (node_has(root, above, W_OK | X_OK)) return {};
  Error error = sys_error(errno, "make files in `{}`", above);
  error.hint = error.code == EROFS ? "mount it writable" : "run as root";
  return error;
}

Result<void> foresee_write(const std::string& root, const std::string& path) {
  if (::geteuid() != 0) return {};
  return check_may_write(root, path);
}

Result<std::optional<std::string>> read_node_file(const std::string& root, const std::string& path) {
  struct stat seen {};
  if (!TRY(is_there(root, path, seen))) return std::optional<std::string>();
  const std::string file = TRY(node_path(root, path));
  std::string text = TRY(read_text_file(file, kNodeFileLimits));
  if (!base::is_utf8(text)) return make_error("`{}` is not UTF-8", path);
  return std::optional(std::move(text));
}

Result<bool> has_node_file(const std::string& root, const std::string& path, const std::optional<std::string>& text) {
  const std::string file = TRY(node_path(root, path));
  struct stat seen {};
  if (::lstat(file.c_str(), &seen) != 0) {
    if (base::is_absent(errno)) return !text;
    return sys_error(errno, "check `{}`", path);
  }
  if (!text || !S_ISREG(seen.st_mode) || static_cast<std::size_t>(seen.st_size) != text->size()) return false;
  return TRY(read_text_file(file, kNodeFileLimits)) == *text;
}

Result<void> prepare_node_file(const std::string& root, const std::string& path, std::string_view text) {
  struct stat old {};
  if (TRY(is_there(root, path, old)))
    return write_temporary(root, path, text, base::FileOwner{old.st_uid, old.st_gid}, old.st_mode & 07777);
  return write_temporary(root, path, text, {}, text.starts_with("#!") ? 0755 : 0644);
}

Result<void> prepare_node_program(const std::string& root, const std::string& path, std::string_view bytes) {
  return write_temporary(root, path, bytes, base::FileOwner{0, 0}, kProgramMode);
}

Result<void> commit_node_file(const std::string& root, const std::string& path) {
  const std::string file = TRY(node_path(root, path));
  // An earlier call has written the file, and the engine has checked it under its temporary name: so this is no
  // base::replace_file(). rename(2) is atomic: an engine that starts now reads either the old file or the new one.
  if (::rename((file + kCandidate).c_str(), file.c_str()) != 0) return sys_error(errno, "replace `{}`", path);
  sync_directory(directory_of(file));
  return {};
}

Result<void> write_node_file(const std::string& root, const std::string& path, std::string_view text) {
  TRY_VOID(prepare_node_file(root, path, text));
  return commit_node_file(root, path);
}

Result<void> remove_node_file(const std::string& root, const std::string& path) {
  const std::string file = TRY(node_path(root, path));
  if (::unlink(file.c_str()) == 0 || base::is_absent(errno)) return {};
  const int code = errno;
  // On a read-only file system unlink(2) of a missing file can fail with EROFS in place of ENOENT. lstat(2) decides
  // whether the file is missing.
  struct stat seen {};
  if (::lstat(file.c_str(), &seen) != 0 && errno == ENOENT) return {};
  return sys_error(code, "remove `{}`", path);
}

std::optional<std::string> find_program(const std::string& root, const std::string& name) {
  std::string directories = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  const char* path = root.empty() ? std::getenv("PATH") : nullptr;
  if (path) directories = std::string(path) + ":" + directories;
  for (const std::string_view directory : base::split(directories, ':')) {
    std::string program = fmt::format("{}/{}", directory, name);
    if (directory.starts_with('/') && node_has(root, program, X_OK)) return program;
  }
  return std::nullopt;
}

std::vector<std::string> missing_directories(const std::string& root, const std::string& path) {
  std::vector<std::string> missing;
  for (const std::string& directory : directories_above(path))
    if (!node_has(root, directory, F_OK) && errno == ENOENT) missing.push_back(directory);
  return missing;
}

void remove_empty_directories(const std::string& root, const std::vector<std::string>& directories) {
  for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory)
    if (const auto place = node_path(root, *directory)) ::rmdir(place->c_str());
}

}  // namespace hook
