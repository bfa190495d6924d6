#include "hook/ledger/ledger_views.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string_view>

#include "fabric/text.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {
namespace {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr std::size_t kLongestLink = 255;
constexpr int kViewAttempts = 3;

// Whoever the container runs as reads it; DIR above it keeps the node's own users out. fchmod, because the umask of
// whoever starts containers is theirs.
Result<UniqueFd> make_public_directory(int parent, const std::string& name, const std::string& path) {
  if (::mkdirat(parent, name.c_str(), 0755) != 0 && errno != EEXIST) return sys_error(errno, "cannot make `{}`", path);
  UniqueFd fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.ok() || ::fchmod(fd.get(), 0755) != 0) return sys_error(errno, "cannot make `{}`", path);
  return fd;
}

Result<void> make_file(int directory, const ViewEntry& entry, const std::string& path) {
  const UniqueFd file(
      ::openat(directory, entry.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444));
  const auto size = static_cast<ssize_t>(entry.text.size());
  if (!file.ok() || ::write(file.get(), entry.text.data(), entry.text.size()) != size ||
      ::fchmod(file.get(), 0444) != 0) {
    return sys_error(errno, "cannot make `{}/{}/{}`", path, entry.directory, entry.name);
  }
  return {};
}

Result<void> fill(const LedgerFiles& files, const std::string& name, const std::vector<ViewEntry>& entries) {
  const std::string path = files.pending.path + "/" + name;
  const UniqueFd view = TRY(make_public_directory(files.pending.fd.get(), name, path));
  std::string opened;
  UniqueFd directory;
  for (const ViewEntry& entry : entries) {
    if (!is_file_name(entry.directory, kLongestLink) ||
        (!entry.name.empty() && !is_file_name(entry.name, kLongestLink))) {
      return make_error("cannot make a view of `{}/{}`: that is no name of a device",
                        fabric::printable(entry.directory), fabric::printable(entry.name));
    }
    if (entry.directory != opened) {
      directory = TRY(make_public_directory(view.get(), entry.directory, path + "/" + entry.directory));
      opened = entry.directory;
    }
    if (entry.name.empty()) continue;
    if (entry.target.empty()) {
      TRY_VOID(make_file(directory.get(), entry, path));
    } else if (::symlinkat(entry.target.c_str(), directory.get(), entry.name.c_str()) != 0) {
      return sys_error(errno, "cannot make the link `{}/{}/{}`", path, entry.directory, entry.name);
    }
  }
  return {};
}

// Whether a view holds these entries already: then it stays, because a container may have it mounted, and a removed
// directory shows nothing there. Views are written by this file only, so what has the links has no others.
bool holds(const LedgerFiles& files, const std::string& name, const std::vector<ViewEntry>& entries) {
  for (const ViewEntry& entry : entries) {
    const std::string path = name + "/" + entry.directory + (entry.name.empty() ? "" : "/" + entry.name);
    if (entry.target.empty()) {
      if (::faccessat(files.views.fd.get(), path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) return false;
      continue;
    }
    char target[PATH_MAX];
    const ssize_t size = ::readlinkat(files.views.fd.get(), path.c_str(), target, sizeof target);
    if (size < 0 || std::string_view(target, static_cast<std::size_t>(size)) != entry.target) return false;
  }
  return !entries.empty();
}

// Puts a directory in the place of another, which is then gone.
Result<void> replace_view(const LedgerFiles& files, const LedgerDirectory& from, const std::string& name,
                          const std::string& to) {
  for (int attempt = 0; attempt < kViewAttempts; ++attempt) {
    if (::renameat2(from.fd.get(), name.c_str(), files.views.fd.get(), to.c_str(), RENAME_NOREPLACE) == 0) return {};
    if (errno == ENOENT) return {};
    if (errno != EEXIST) break;
    const std::string old = files.temporary_name();
    if (::renameat(files.views.fd.get(), to.c_str(), files.pending.fd.get(), old.c_str()) != 0 && errno != ENOENT)
      break;
    TRY_VOID(remove_tree(files.pending, old));
  }
  return sys_error(errno, "cannot make `{}/{}`", files.views.path, to);
}

}  // namespace

Result<void> move_view(const LedgerFiles& files, const std::string& from, const std::string& to) {
  return from == to ? Result<void>() : replace_view(files, files.views, from, to);
}

Result<void> Ledger::make_view(std::string_view user_key, const std::vector<ViewEntry>& entries) const {
  if (!is_file_name(user_key, kLongestKey)) return make_error("cannot use container key `{}`", user_key);
  const std::string view(user_key);
  if (holds(*files_, view, entries)) return {};
  const std::string name = files_->temporary_name();
  auto made = fill(*files_, name, entries);
  const bool first = made && ::renameat2(files_->pending.fd.get(), name.c_str(), files_->views.fd.get(), view.c_str(),
                                         RENAME_NOREPLACE) == 0;
  if (first) return {};
  // Another call for the same container may have been faster.
  if (made && !holds(*files_, view, entries)) return replace_view(*files_, files_->pending, name, view);
  (void)remove_tree(files_->pending, name).has_value();
  return made;
}

std::string Ledger::view_directory(std::string_view user_key) const {
  return files_->views.path + "/" + std::string(user_key);
}

}  // namespace hook
