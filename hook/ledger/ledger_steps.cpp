#include "hook/ledger/ledger_steps.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "fabric/text.hpp"
#include "hook/ledger/ledger_ids.hpp"

namespace hook {
namespace {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

std::string grant_file(const std::string& key) {
  return key + ".json";
}

// "PID.START" or "PID.START.N".
std::optional<ProcessIdentity> parse_worker(std::string_view text, std::size_t parts) {
  const auto fields = fabric::split(text, '.');
  if (fields.size() != parts) return std::nullopt;
  const auto pid = fabric::parse_number<pid_t>(fields[0]);
  const auto start_time = fabric::parse_number<std::uint64_t>(fields[1]);
  if (!pid || !start_time || *pid <= 0) return std::nullopt;
  return ProcessIdentity{.pid = *pid, .start_time = *start_time};
}

constexpr std::size_t kLongestLink = 255;
constexpr int kViewAttempts = 3;

// Any user of the container reads it; DIR above it keeps the node's own users out. fchmod, because the umask is the
// engine's.
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

// Puts a directory in the place of another, which is then gone. rename(2) replaces only an empty one, so the old one is
// moved aside first, and another call may come in between.
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

std::optional<PendingName> parse_pending_name(std::string_view name) {
  const auto parts = fabric::split(name, '@');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  PendingName result;
  if (parts.size() == 3) {
    result.kind = PendingName::Kind::kReturned;
  } else if (!parts[0].empty()) {
    result.kind = PendingName::Kind::kMarker;
  }
  const bool temporary = result.kind == PendingName::Kind::kTemporary;
  if (!temporary && !is_file_name(parts[0], kLongestKey)) return std::nullopt;
  const auto worker = parse_worker(parts[1], temporary ? 3 : 2);
  if (!worker) return std::nullopt;
  result.key = parts[0];
  result.worker = *worker;
  return result;
}

std::string marker_name(std::string_view key, const ProcessIdentity& worker) {
  return fmt::format("{}@{}.{}", key, worker.pid, worker.start_time);
}

Result<std::vector<std::string>> grant_keys(const LedgerFiles& files) {
  constexpr std::string_view kEnding = ".json";
  std::vector<std::string> keys;
  for (const std::string& name : TRY(list_names(files.grants))) {
    if (!name.ends_with(kEnding)) continue;
    std::string key = name.substr(0, name.size() - kEnding.size());
    if (is_file_name(key, kLongestKey)) keys.push_back(std::move(key));
  }
  return keys;
}

Result<std::optional<StoredGrant>> read_grant(const LedgerFiles& files, const std::string& key) {
  const auto text = TRY(read_ledger_file(files.grants, grant_file(key)));
  if (!text) return std::optional<StoredGrant>();
  return std::optional(TRY(parse_grant(*text, files.grants.path + "/" + grant_file(key), key)));
}

Result<void> write_grant(const LedgerFiles& files, const StoredGrant& grant) {
  const std::string text = grant_text(grant);
  if (text.size() > kLargestLedgerFile) {
    return make_error("cannot write grant `{}`: it has too many users", grant.owner.label);
  }
  return files.replace_file(files.grants, grant_file(grant.owner.key), text);
}

Result<void> remove_marker(const LedgerFiles& files, const std::string& key, const ProcessIdentity& worker,
                           const std::optional<StoredGrant>& grant) {
  const auto works = [&](const StoredUser& user) { return user.worker == worker; };
  if (grant && std::any_of(grant->users.begin(), grant->users.end(), works)) return {};
  return remove_file(files.pending, marker_name(key, worker));
}

Result<void> finish_return(const LedgerFiles& files, const std::string& name, const StoredGrant& grant) {
  // The owner may have been given a new grant meanwhile: what that says of the index and of views stays.
  const auto current = TRY(read_grant(files, grant.owner.key));
  TRY_VOID(remove_index(files, grant.owner.key, all_claims(grant),
                        current ? all_claims(*current) : std::vector<PlannedHca>()));
  for (const StoredUser& user : grant.users) {
    const auto same = [&](const StoredUser& other) { return other.user.key == user.user.key; };
    if (current && std::any_of(current->users.begin(), current->users.end(), same)) continue;
    TRY_VOID(remove_tree(files.views, user.user.key));
  }
  TRY_VOID(remove_ids(files, grant, current));
  return remove_file(files.pending, name);
}

Result<std::string> begin_return(const LedgerFiles& files, const StoredGrant& grant) {
  // "KEY" and "@PID.START.N" become "KEY@PID.START@N".
  std::string name = grant.owner.key + files.temporary_name();
  name[name.rfind('.')] = '@';
  const std::string file = grant_file(grant.owner.key);
  if (::renameat(files.grants.fd.get(), file.c_str(), files.pending.fd.get(), name.c_str()) == 0) return name;
  return sys_error(errno, "cannot return grant `{}`", grant.owner.label);
}

Result<void> return_grant(const LedgerFiles& files, const StoredGrant& grant) {
  TRY_VOID(files.undo_all(grant.owner.key));
  const auto name = begin_return(files, grant);
  if (!name) return name.error().code == ENOENT ? Result<void>() : name.error();
  return finish_return(files, *name, grant);
}

Result<std::optional<StoredGrant>> refresh(const LedgerFiles& files, const std::string& key,
                                           std::vector<std::string>* returned, std::string_view binding) {
  auto grant = TRY(read_grant(files, key));
  if (!grant) return grant;
  const StoredGrant before = *grant;
  bool changed = drop_dead_steps(*grant);
  const bool nothing = grant->users.empty() && held_hcas(*grant).empty();
  if (nothing || is_vanished(*grant, binding)) {
    TRY_VOID(return_grant(files, before));
    if (returned) returned->push_back(before.owner.label);
    return std::optional<StoredGrant>();
  }
  changed = drop_dead_tokens(*grant, binding) || changed;
  if (!changed) return grant;
  TRY_VOID(files.undo_beyond(key, held_hcas(*grant)));
  // The index first: as long as the file lists the dead worker's steps, this is done again.
  TRY_VOID(set_index(files, key, all_claims(before), held_hcas(*grant)));
  for (const StoredUser& user : before.users) {
    const auto same = [&](const StoredUser& other) { return other.user.key == user.user.key; };
    if (std::none_of(grant->users.begin(), grant->users.end(), same)) {
      TRY_VOID(remove_tree(files.views, user.user.key));
    }
  }
  TRY_VOID(write_grant(files, *grant));
  TRY_VOID(remove_ids(files, before, grant));
  return grant;
}

Result<bool> check_entry(const LedgerFiles& files, const std::string& hca, const IndexEntry& entry,
                         std::vector<std::string>* returned, int timeout_ms) {
  const KeyLock lock = TRY(KeyLock::take(files, {entry.key}, timeout_ms));
  const auto grant = TRY(refresh(files, entry.key, returned));
  const auto held = grant ? held_hcas(*grant) : std::vector<PlannedHca>();
  const PlannedHca* found = find_hca(held, hca);
  if (found && found->units == entry.units) return true;
  TRY_VOID(remove_entry(files, hca, entry.key, entry.units));
  return false;
}

Result<std::optional<StoredGrant>> check_exclusive(const LedgerFiles& files, const std::string& hca,
                                                   const std::string& key, std::vector<std::string>* returned,
                                                   int timeout_ms) {
  const KeyLock lock = TRY(KeyLock::take(files, {key}, timeout_ms));
  auto grant = TRY(refresh(files, key, returned));
  const auto held = grant ? held_hcas(*grant) : std::vector<PlannedHca>();
  const PlannedHca* found = find_hca(held, hca);
  if (found && found->mode == Mode::kExclusive) return grant;
  TRY_VOID(remove_exclusive(files, hca, key));
  return std::optional<StoredGrant>();
}

Result<void> move_view(const LedgerFiles& files, const std::string& from, const std::string& to) {
  return from == to ? Result<void>() : replace_view(files, files.views, from, to);
}

Result<void> make_view(const LedgerFiles& files, const std::string& view, const std::vector<ViewEntry>& entries) {
  if (holds(files, view, entries)) return {};
  // Filled beside, then renamed: no container can mount half a view.
  const std::string name = files.temporary_name();
  auto made = fill(files, name, entries);
  const bool first = made && ::renameat2(files.pending.fd.get(), name.c_str(), files.views.fd.get(), view.c_str(),
                                         RENAME_NOREPLACE) == 0;
  if (first) return {};
  // Another call for the same container may have been faster.
  if (made && !holds(files, view, entries)) return replace_view(files, files.pending, name, view);
  (void)remove_tree(files.pending, name).has_value();
  return made;
}

}  // namespace hook
