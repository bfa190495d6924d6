#include "hook/install/node_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/json/json.hpp"
#include "hook/base/write_all.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr JsonLimits kNodeFileLimits{.bytes = 16 << 20};

std::string directory_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// The directories above a path, the outermost first.
std::vector<std::string> directories_above(const std::string& path) {
  std::vector<std::string> directories;
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    directories.push_back(path.substr(0, at));
  return directories;
}

Error link_in_the_way(const std::string& path) {
  return {fmt::format("`{}` is a link", path), ELOOP,
          "somebody else manages it: merge what `--dry-run` prints by hand, or put a file in its place"};
}

Result<void> check_directories(const std::string& root, const std::string& path) {
  if (root.empty()) return {};
  for (const std::string& directory : directories_above(path)) {
    struct stat seen {};
    if (::lstat((root + directory).c_str(), &seen) == 0 && S_ISLNK(seen.st_mode)) return link_in_the_way(directory);
  }
  return {};
}

// Whether there is a regular file. Errors: anything else is there, or it cannot be seen.
Result<bool> is_there(const std::string& root, const std::string& path, struct stat& seen) {
  TRY_VOID(check_directories(root, path));
  if (::lstat((root + path).c_str(), &seen) != 0) {
    if (errno == ENOENT) return false;
    return sys_error(errno, "look at `{}`", path);
  }
  if (S_ISLNK(seen.st_mode)) return link_in_the_way(path);
  if (!S_ISREG(seen.st_mode)) return make_error("`{}` is no regular file", path);
  return true;
}

// A rename is on disk when its directory is.
void sync_directory(const std::string& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.ok()) ::fsync(fd.get());
}

}  // namespace

Result<std::optional<std::string>> read_node_file(const std::string& root, const std::string& path) {
  struct stat seen {};
  if (!TRY(is_there(root, path, seen))) return std::optional<std::string>();
  std::string text = TRY(read_text_file(root + path, kNodeFileLimits));
  const std::string replaced = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (Json::parse(replaced, nullptr, false) != Json(text)) return make_error("`{}` is no UTF-8", path);
  return std::optional(std::move(text));
}

Result<bool> has_node_file(const std::string& root, const std::string& path, const std::optional<std::string>& text) {
  TRY_VOID(check_directories(root, path));
  struct stat seen {};
  if (::lstat((root + path).c_str(), &seen) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return !text;
    return sys_error(errno, "look at `{}`", path);
  }
  if (!text || !S_ISREG(seen.st_mode) || static_cast<std::size_t>(seen.st_size) != text->size()) return false;
  return TRY(read_text_file(root + path, kNodeFileLimits)) == *text;
}

Result<void> prepare_node_file(const std::string& root, const std::string& path, std::string_view text) {
  struct stat old {};
  const bool there = TRY(is_there(root, path, old));
  std::error_code failed;
  std::filesystem::create_directories(directory_of(root + path), failed);
  if (failed) return sys_error(failed.value(), "make the directory of `{}`", path);
  const std::string temporary = root + path + kCandidate;
  ::unlink(temporary.c_str());  // of an install that was killed
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.ok()) return sys_error(errno, "open `{}{}`", path, kCandidate);
  int code = write_all(fd.get(), text);
  if (code == 0 && there && ::fchown(fd.get(), old.st_uid, old.st_gid) != 0) code = errno;
  if (code == 0 && ::fchmod(fd.get(), there ? old.st_mode & 07777 : 0644) != 0) code = errno;
  if (code == 0 && ::fsync(fd.get()) != 0) code = errno;
  if (code == 0) return {};
  ::unlink(temporary.c_str());
  return sys_error(code, "write `{}{}`", path, kCandidate);
}

Result<void> commit_node_file(const std::string& root, const std::string& path) {
  const std::string file = root + path;
  if (::rename((file + kCandidate).c_str(), file.c_str()) != 0) return sys_error(errno, "replace `{}`", path);
  sync_directory(directory_of(file));
  return {};
}

Result<void> write_node_file(const std::string& root, const std::string& path, std::string_view text) {
  TRY_VOID(prepare_node_file(root, path, text));
  return commit_node_file(root, path);
}

Result<void> remove_node_file(const std::string& root, const std::string& path) {
  TRY_VOID(check_directories(root, path));
  const std::string file = root + path;
  if (::unlink(file.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR) return {};
  const int code = errno;
  // A file system that is read-only says so first, whatever there is.
  struct stat seen {};
  if (::lstat(file.c_str(), &seen) != 0 && errno == ENOENT) return {};
  return sys_error(code, "remove `{}`", path);
}

std::vector<std::string> missing_directories(const std::string& root, const std::string& path) {
  std::vector<std::string> missing;
  for (const std::string& directory : directories_above(path))
    if (::access((root + directory).c_str(), F_OK) != 0 && errno == ENOENT) missing.push_back(directory);
  return missing;
}

void remove_empty_directories(const std::string& root, const std::vector<std::string>& directories) {
  for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory)
    ::rmdir((root + *directory).c_str());
}

}  // namespace hook
