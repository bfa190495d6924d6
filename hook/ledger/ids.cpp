#include "hook/ledger/ids.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "hook/base/text_digest.hpp"
#include "hook/ledger/locks.hpp"
#include "hook/ledger/store.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr const char* kIds = "ids";
constexpr int kEntryAttempts = 8;

std::string id_path(std::string_view id) {
  return fmt::format("{}/{}", kIds, text_digest(std::string(id)));
}

Error ids_error(const LedgerFiles& files, const char* verb, const std::string& path) {
  return sys_error(errno, "cannot {} `{}/{}`", verb, files.root.path, path);
}

Result<void> add_id(const LedgerFiles& files, const std::string& id, const std::string& key) {
  const int root = files.root.fd.get();
  const std::string path = id_path(id);
  const std::string entry = path + "/" + key;
  for (int attempt = 0; attempt < kEntryAttempts; ++attempt) {
    if (::mkdirat(root, path.c_str(), 0700) != 0 && errno != EEXIST) {
      if (errno != ENOENT || (::mkdirat(root, kIds, 0700) != 0 && errno != EEXIST))
        return ids_error(files, "make", path);
      continue;
    }
    if (::symlinkat(key.c_str(), root, entry.c_str()) == 0 || errno == EEXIST) return {};
    // Another key's last entry of this id has gone, and its directory with it.
    if (errno != ENOENT) break;
  }
  return ids_error(files, "write", entry);
}

Result<void> remove_id(const LedgerFiles& files, const std::string& path, const std::string& key) {
  const int root = files.root.fd.get();
  const std::string entry = path + "/" + key;
  if (::unlinkat(root, entry.c_str(), 0) != 0 && errno != ENOENT) return ids_error(files, "remove", entry);
  // Stays while other keys are there.
  if (::unlinkat(root, path.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST)
    return {};
  return ids_error(files, "remove", path);
}

// None without such a directory.
Result<std::vector<std::string>> names_at(const LedgerFiles& files, const std::string& path) {
  using Names = std::vector<std::string>;
  LedgerDirectory directory{
      UniqueFd(::openat(files.root.fd.get(), path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
      files.root.path + "/" + path};
  if (!directory.fd.ok()) return errno == ENOENT ? Result<Names>(Names()) : ids_error(files, "list", path);
  auto names = TRY(list_names(directory));
  std::erase_if(names, [](const std::string& name) { return !is_file_name(name, kLongestKey); });
  return names;
}

// The entry of this id is there if, and only if, the grant has the id.
Result<void> recover_entry(const LedgerFiles& files, const std::string& digest, const std::string& key,
                           int timeout_ms) {
  const KeyLock lock = TRY(KeyLock::take(files, {key}, timeout_ms));
  for (const std::string& id : ids_of(TRY(read_grant(files, key)))) {
    if (text_digest(id) == digest) return add_id(files, id, key);
  }
  return remove_id(files, fmt::format("{}/{}", kIds, digest), key);
}

}  // namespace

std::set<std::string> ids_of(const std::optional<StoredGrant>& grant) {
  std::set<std::string> ids;
  if (!grant) return ids;
  for (const StoredUser& user : grant->users) {
    for (const std::string& id : {user.user.id, user.user.pod}) {
      if (!id.empty()) ids.insert(id);
    }
  }
  return ids;
}

Result<void> add_ids(const LedgerFiles& files, const StoredGrant& after, const std::optional<StoredGrant>& before) {
  const auto had = ids_of(before);
  for (const std::string& id : ids_of(after)) {
    if (!had.contains(id)) TRY_VOID(add_id(files, id, after.owner.key));
  }
  return {};
}

Result<void> remove_ids(const LedgerFiles& files, const StoredGrant& before, const std::optional<StoredGrant>& after) {
  const auto kept = ids_of(after);
  for (const std::string& id : ids_of(before)) {
    if (!kept.contains(id)) TRY_VOID(remove_id(files, id_path(id), before.owner.key));
  }
  return {};
}

Result<std::vector<std::string>> keys_of_id(const LedgerFiles& files, std::string_view id) {
  return names_at(files, id_path(id));
}

Result<void> recover_ids(const LedgerFiles& files, const IdsOfKeys& grants, const std::set<std::string>& unread,
                         int timeout_ms) {
  std::map<std::string, std::set<std::string>> missing;
  for (const auto& [key, ids] : grants) {
    for (const std::string& id : ids)
      missing[text_digest(id)].insert(key);
  }
  Result<void> first;
  for (const std::string& digest : TRY(names_at(files, kIds))) {
    const std::string path = fmt::format("{}/{}", kIds, digest);
    const auto keys = TRY(names_at(files, path));
    std::set<std::string>& expected = missing[digest];
    for (const std::string& key : keys) {
      if (expected.erase(key) > 0 || unread.contains(key)) continue;
      keep_first(first, recover_entry(files, digest, key, timeout_ms));
    }
    // Of a process that was killed before it made the entry. Others' are not empty, or made again.
    if (keys.empty() && ::unlinkat(files.root.fd.get(), path.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT &&
        errno != ENOTEMPTY && errno != EEXIST) {
      return ids_error(files, "remove", path);
    }
  }
  for (const auto& [digest, keys] : missing) {
    for (const std::string& key : keys)
      keep_first(first, recover_entry(files, digest, key, timeout_ms));
  }
  return first;
}

}  // namespace hook
