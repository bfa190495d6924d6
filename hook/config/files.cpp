// Reads the administrator's files. A user that can write one of them decides which container gets which device.
// Therefore each file and each directory above it must belong to root.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/process/owner_remedy.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "hook/config/read_config.hpp"

namespace hook {
namespace {

constexpr std::size_t kLongestConfig = std::size_t{1} << 20;
constexpr std::size_t kMostDropIns = 256;
constexpr const char* kMissingRemedy = "create the file or correct its path";
constexpr const char* kRootRemedy = "run the command as root";
constexpr const char* kOtherRemedy = "make it a regular file that root can read, of at most 1 MiB";

// In a user namespace that does not map the node's root user, files of root seem to belong to the overflow user (65534
// unless sysctl changes it). Files of an unmapped user are trusted, because the namespace's processes cannot change
// them.
constexpr uid_t kOverflowUser = 65534;

// In the initial user namespace, 65534 is an ordinary user.
bool is_outside_this_user_namespace(uid_t user) {
  return user == kOverflowUser && base::is_in_initial_userns() == false;
}

// Checks that only root, or the user of this process, can change a file or directory.
// sticky_is_fine: accept a sticky directory such as /tmp, where other users cannot replace root's entries.
Result<void> check_owner(const struct stat& status, const std::string& path, bool sticky_is_fine) {
  if (status.st_uid != 0 && status.st_uid != ::geteuid() && !is_outside_this_user_namespace(status.st_uid))
    return Error{fmt::format("`{}` belongs to user {}, not to root", printable(path), status.st_uid), EPERM,
                 owner_remedy(path, status)};
  const bool sticky = sticky_is_fine && S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky)
    return Error{fmt::format("`{}` is writable by users other than root", printable(path)), EPERM,
                 owner_remedy(path, status)};
  return {};
}

// Checks the owner and mode of a directory and of each directory above it. is_link: set to true if one of them is a
// symbolic link; the check then ends there.
Result<void> check_upwards(std::string directory, bool sticky_is_fine, bool& is_link) {
  while (true) {
    struct stat status {};
    if (::lstat(directory.c_str(), &status) != 0) return sys_error(errno, "stat `{}`", printable(directory));
    is_link = S_ISLNK(status.st_mode);
    if (is_link) return {};
    TRY_VOID(check_owner(status, directory, sticky_is_fine));
    if (directory == "/") return {};
    directory = base::parent_of(directory);
  }
}

// Returns whether each component of the path is a name, so that parent_of() leads to the directory above.
bool is_plain(std::string_view path) {
  if (!path.starts_with('/')) return false;
  const auto parts = base::split(path.substr(1), '/');
  return path == "/" ||
         std::ranges::none_of(parts, [](auto part) { return part.empty() || part == "." || part == ".."; });
}

// Checks the owner and mode of each directory above the file. A symbolic link in the path is accepted: realpath(3)
// resolves it, and the directories of the real path are checked.
Result<void> check_directories(const std::string& path, bool sticky_is_fine) {
  const std::string parent = base::parent_of(path);
  bool is_link = !is_plain(parent);
  if (!is_link) {
    auto checked = check_upwards(parent, sticky_is_fine, is_link);
    if (!is_link) return checked;
  }
  const std::unique_ptr<char, decltype(&::free)> real(::realpath(parent.c_str(), nullptr), ::free);
  if (!real) return sys_error(errno, "open `{}`", printable(parent));
  return check_upwards(real.get(), sticky_is_fine, is_link);
}

Result<ConfigText> read_checked(const std::string& path, bool sticky_is_fine) {
  const UniqueFd fd = base::open_to_read(AT_FDCWD, path.c_str(), O_NOFOLLOW);
  if (!fd.ok() && errno == ELOOP)
    return Error{fmt::format("`{}` is a symbolic link", printable(path)), ELOOP, "replace the link by the file"};
  if (!fd.ok()) return sys_error(errno, "open `{}`", printable(path));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return sys_error(errno, "stat `{}`", printable(path));
  if (!S_ISREG(status.st_mode)) return make_error("`{}` is not a regular file", printable(path));
  // The descriptor is checked and not the path, so that no user can replace the file between check and read.
  TRY_VOID(check_owner(status, path, false));
  TRY_VOID(check_directories(path, sticky_is_fine));
  // TRY stands outside of the braces of ConfigText: if TRY returned inside them, GCC 12 would not destroy the members
  // that are already made, and their memory would leak.
  std::string text = TRY(read_text_of(fd.get(), status, kLongestConfig, "`" + printable(path) + "`"));
  return ConfigText{path, std::move(text)};
}

// Returns the paths of the *.json files in the drop-in directory, sorted; empty if the directory does not exist.
Result<std::vector<std::string>> list_drop_ins(const std::string& path) {
  std::vector<std::string> names;
  const auto directory = base::Directory::open(path);
  if (!directory && errno == ENOENT) return names;
  if (!directory) return sys_error(errno, "open `{}`", printable(path));
  base::next_names(directory->fd(), [&](std::string_view name) {
    // Skips backup files of editors and packages.
    if (!name.starts_with('.') && name.ends_with(".json")) names.push_back(fmt::format("{}/{}", path, name));
    return names.size() <= kMostDropIns;
  });
  if (names.size() > kMostDropIns)
    return Error{fmt::format("more than {} files in `{}`", kMostDropIns, printable(path)), E2BIG,
                 "merge them into fewer files"};
  // The order matters, because later files override earlier files.
  std::ranges::sort(names);
  return names;
}

}  // namespace

ConfigFiles read_config_files(const ConfigPaths& paths) {
  ConfigFiles files;
  const auto note = [&](const std::string& path, const Error& error) {
    // The remedy for an error that has none.
    const char* otherwise = error.code == ENOENT                       ? kMissingRemedy
                            : error.code == EACCES && ::geteuid() != 0 ? kRootRemedy
                                                                       : kOtherRemedy;
    files.problems.push_back({path, 0, error.message, base::remedy_of(error, otherwise), true});
  };
  const auto take = [&](const std::string& path, bool sticky_is_fine) {
    auto text = read_checked(path, sticky_is_fine);
    if (text) {
      files.texts.push_back(*std::move(text));
    } else if (text.error().code != ENOENT || paths.file_must_exist) {
      note(path, text.error());
    }
  };
  if (!paths.file_must_exist) {
    // The cluster's file comes first, so that the node's own files override it.
    take(paths.cluster, false);
    if (!files.texts.empty()) files.texts.back().is_clusters = true;
  }
  take(paths.file, paths.file_must_exist);
  if (paths.drop_ins.empty()) return files;
  const auto drop_ins = list_drop_ins(paths.drop_ins);
  if (!drop_ins) note(paths.drop_ins, drop_ins.error());
  for (const std::string& path : drop_ins ? *drop_ins : std::vector<std::string>())
    take(path, paths.file_must_exist);
  return files;
}

// Follows links, because the directory of drop-ins may be one: the link itself does not change with the directory.
ConfigVersion::File ConfigVersion::look_at(std::string path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {.path = std::move(path), .error = errno};
  return {.path = std::move(path),
          .dev = status.st_dev,
          .ino = status.st_ino,
          .size = status.st_size,
          .modified = status.st_mtim,
          .changed = status.st_ctim};
}

ConfigVersion::ConfigVersion(const ConfigPaths& paths) {
  const base::ChangeStep step;
  if (!paths.file_must_exist) files_.push_back(look_at(paths.cluster));
  files_.push_back(look_at(paths.file));
  if (!paths.drop_ins.empty()) {
    files_.push_back(look_at(paths.drop_ins));
    const auto names = list_drop_ins(paths.drop_ins);
    for (const std::string& path : names ? *names : std::vector<std::string>())
      files_.push_back(look_at(path));
  }
  is_settled_ = std::ranges::all_of(files_, [&](const File& file) {
    return file.error == ENOENT || (file.error == 0 && step.is_after(file.modified) && step.is_after(file.changed));
  });
}

bool ConfigVersion::is_current() const {
  const auto is_same = [](const timespec& left, const timespec& right) {
    return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
  };
  return is_settled_ && std::ranges::all_of(files_, [&](const File& noted) {
           const File now = look_at(noted.path);
           return now.error == noted.error && now.dev == noted.dev && now.ino == noted.ino && now.size == noted.size &&
                  is_same(now.modified, noted.modified) && is_same(now.changed, noted.changed);
         });
}

Result<void> check_config_directories(const ConfigPaths& paths) {
  return check_directories(paths.cluster, false);
}

Result<std::vector<ConfigText>> read_config_texts(const ConfigPaths& paths) {
  ConfigFiles files = read_config_files(paths);
  if (files.problems.empty()) return std::move(files.texts);
  ConfigProblem& first = files.problems.front();
  return Error{std::move(first.message), EPERM, std::move(first.remedy)};
}

Result<Config> valid_config(const std::vector<ConfigText>& texts) {
  auto parsed = parse_config(texts);
  if (const ConfigProblem* const problem = first_error(parsed.problems))
    return Error{fmt::format("{}{}: {}", printable(problem->file),
                             problem->line == 0 ? "" : fmt::format(":{}", problem->line), problem->message),
                 EINVAL, problem->remedy + "; `rdma-hook check-config` lists all"};
  return std::move(parsed.config);
}

Result<Config> read_config(const ConfigPaths& paths) {
  return valid_config(TRY(read_config_texts(paths)));
}

}  // namespace hook
