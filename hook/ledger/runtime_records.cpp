#include "hook/ledger/runtime_records.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/file.hpp"
#include "base/replace_file.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

constexpr const char* kNoEngine = "-";

std::string runtime_path(const std::string& ledger, const char* name, const std::string& key = {}) {
  return ledger + "/runtime/" + name + (key.empty() ? "" : "/" + key);
}

Result<void> make_directories(const std::string& ledger) {
  const auto root = TRY(open_directory(AT_FDCWD, ledger, ledger, true));
  const auto runtime = TRY(open_directory(root.fd.get(), "runtime", ledger + "/runtime", true));
  for (const char* name : {"containers", "ending"})
    TRY(open_directory(runtime.fd.get(), name, runtime_path(ledger, name), true));
  return {};
}

// Returns the target of a link; nullopt: the link does not exist (ENOENT, ENOTDIR), or this user may not read the
// ledger (EACCES): it belongs to another user, and has no record of this user's containers.
Result<std::optional<std::string>> read_link(const std::string& path) {
  auto target = base::read_link(AT_FDCWD, path.c_str());
  if (target || base::is_absent(errno) || errno == EACCES) return target;
  return sys_error(errno, "cannot read `{}`", path);
}

Error damaged(const std::string& path) {
  return Error{fmt::format("cannot read `{}`: it is damaged", path), EINVAL, "remove it"};
}

// Takes the lock under which records are removed and replaced. Without the lock, another process could write a newer
// record after the check of the old one, and the newer one would be removed.
UniqueFd lock_records(const std::string& ledger, int how) {
  UniqueFd fd = base::open_to_list(AT_FDCWD, runtime_path(ledger, "ending").c_str());
  if (fd.ok() && ::flock(fd.get(), how) != 0) fd.reset();
  return fd;
}

// Returns true if the path is missing and its directory exists. If the directory is missing too, this process may be in
// another mount namespace than the container's runtime, so nothing is proven.
bool is_container_path_absent(const std::string& path) {
  struct stat status {};
  if (path.empty() || ::lstat(path.c_str(), &status) == 0 || errno != ENOENT) return false;
  return ::stat(path.substr(0, path.rfind('/') + 1).c_str(), &status) == 0;
}

bool is_container_absent(const RuntimeRecord& record) {
  return is_container_path_absent(record.container_path) && is_proven_absent(read_presence(record.creator));
}

Result<void> write_link(const std::string& target, const std::string& path) {
  if (::symlink(target.c_str(), path.c_str()) == 0) return {};
  return sys_error(errno, "cannot write `{}`", path);
}

}  // namespace

Result<void> remember_runtime(const std::string& ledger, const std::string& key, const RuntimeRecord& record) {
  const std::string path = runtime_path(ledger, "containers", key);
  const std::string target =
      fmt::format("{}.{} {}\n{}", record.creator.pid, record.creator.start_time, record.runtime, record.container_path);
  auto written = write_link(target, path);
  if (!written && written.error().code == ENOENT) {
    TRY_VOID(make_directories(ledger));
    written = write_link(target, path);
  }
  if (written || written.error().code != EEXIST) return written;
  const UniqueFd lock = lock_records(ledger, LOCK_EX);
  if (!lock.ok()) return sys_error(errno == EEXIST ? EIO : errno, "cannot lock `{}`", runtime_path(ledger, "ending"));
  const auto old = TRY(recall_runtime(ledger, key));
  if (old && old->runtime != record.runtime && !is_container_absent(*old))
    return Error{fmt::format("a container of this id exists, which `{}` created", base::printable(old->runtime)),
                 EEXIST, "delete that container first"};
  forget_runtime(ledger, key);
  return write_link(target, path);
}

Result<std::optional<RuntimeRecord>> recall_runtime(const std::string& ledger, const std::string& key) {
  const std::string path = runtime_path(ledger, "containers", key);
  const auto text = TRY(read_link(path));
  if (!text) return std::optional<RuntimeRecord>();
  const std::size_t blank = text->find(' ');
  const std::size_t end = text->find('\n');
  if (blank == std::string::npos || end == std::string::npos || blank + 1 >= end) return damaged(path);
  const auto numbers = base::split(std::string_view(*text).substr(0, blank), '.');
  const auto pid = base::parse_number<pid_t>(numbers[0]);
  const auto start_time = numbers.size() == 2 ? base::parse_number<std::uint64_t>(numbers[1]) : std::nullopt;
  if (!pid || !start_time || (*text)[blank + 1] != '/') return damaged(path);
  return std::optional(
      RuntimeRecord{text->substr(blank + 1, end - blank - 1), {*pid, *start_time}, text->substr(end + 1)});
}

void forget_runtime(const std::string& ledger, const std::string& key) {
  ::unlink(runtime_path(ledger, "containers", key).c_str());
}

void mark_ending(const std::string& ledger, const std::string& key) {
  // Fails without a record, which is no error: runtimes accept `delete --force` of a container that never existed.
  (void)!::linkat(AT_FDCWD, runtime_path(ledger, "containers", key).c_str(), AT_FDCWD,
                  runtime_path(ledger, "ending", key).c_str(), 0);
}

void sweep_runtimes(const std::string& ledger, SweptRuntimes which) {
  const UniqueFd ending = lock_records(ledger, LOCK_EX | LOCK_NB);
  if (!ending.ok()) return;
  std::vector<std::string> keys;
  base::list_names(ending.get(), keys);
  if (which == SweptRuntimes::kAll) {
    const UniqueFd all(::open(runtime_path(ledger, "containers").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (all.ok()) base::list_names(all.get(), keys);
  }
  for (const std::string& key : keys) {
    const auto record = recall_runtime(ledger, key);
    if (!record || (*record && !is_container_absent(**record))) continue;
    forget_runtime(ledger, key);
    ::unlinkat(ending.get(), key.c_str(), 0);
  }
}

Result<void> keep_choice(const std::string& ledger, const RuntimeChoice& choice) {
  if (const auto last = last_choice(ledger); last && *last == choice) return {};
  const std::string path = runtime_path(ledger, "settings");
  TRY_VOID(make_directories(ledger));
  const UniqueFd lock = lock_records(ledger, LOCK_EX);
  if (!lock.ok()) return sys_error(errno, "cannot lock `{}`", runtime_path(ledger, "ending"));
  const std::string text = fmt::format("{} {}", choice.engine ? to_string(*choice.engine) : kNoEngine, choice.runtime);
  const int code = base::replace_link({AT_FDCWD, path + ".new"}, {AT_FDCWD, path}, text.c_str());
  return code == 0 ? Result<void>() : sys_error(code, "cannot write `{}`", path);
}

Result<std::optional<RuntimeChoice>> last_choice(const std::string& ledger) {
  const std::string path = runtime_path(ledger, "settings");
  const auto text = TRY(read_link(path));
  if (!text) return std::optional<RuntimeChoice>();
  const std::size_t blank = text->find(' ');
  const auto engine = parse_engine(text->substr(0, blank));
  if (blank == std::string::npos || (!engine && text->substr(0, blank) != kNoEngine) || (*text)[blank + 1] != '/')
    return damaged(path);
  return std::optional(RuntimeChoice{engine, text->substr(blank + 1)});
}

}  // namespace hook
