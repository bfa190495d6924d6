#include "hook/ledger/index.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/file.hpp"
#include "base/replace_file.hpp"
#include "base/text.hpp"
#include "base/text_digest.hpp"
#include "hook/ledger/locks.hpp"
#include "hook/ledger/store.hpp"

namespace hook {
namespace {

constexpr const char* kIds = "ids";
constexpr const char* kLent = "lent";
constexpr int kEntryAttempts = 8;
constexpr const char* kSharedLink = "shared";

std::string id_path(std::string_view id) {
  return fmt::format("{}/{}", kIds, text_digest(std::string(id)));
}

std::string lent_path(const std::string& view) {
  return fmt::format("{}/{}", kLent, view);
}

Error path_error(const LedgerDirectory& directory, const char* verb, const std::string& path) {
  return sys_error(errno, "cannot {} `{}/{}`", verb, directory.path, path);
}

// Makes an entry of `path`, a result of lists_of().
Result<void> add_to_list(const LedgerFiles& files, const std::string& path, const std::string& key) {
  const int root = files.root.fd.get();
  const std::string entry = path + "/" + key;
  for (int attempt = 0; attempt < kEntryAttempts; ++attempt) {
    if (::mkdirat(root, path.c_str(), 0700) != 0 && errno != EEXIST) {
      if (errno != ENOENT || (::mkdirat(root, path.substr(0, path.find('/')).c_str(), 0700) != 0 && errno != EEXIST))
        return path_error(files.root, "make", path);
      continue;
    }
    if (::symlinkat(key.c_str(), root, entry.c_str()) == 0 || errno == EEXIST) return {};
    // Between mkdirat() and symlinkat(), another process removed the last entry of this id, and then the directory.
    if (errno != ENOENT) break;
  }
  return path_error(files.root, "write", entry);
}

Result<void> remove_from_list(const LedgerFiles& files, const std::string& path, const std::string& key) {
  const int root = files.root.fd.get();
  const std::string entry = path + "/" + key;
  if (::unlinkat(root, entry.c_str(), 0) != 0 && errno != ENOENT) return path_error(files.root, "remove", entry);
  // The directory has one entry for each grant with this id or view, and its removal fails unless it is empty.
  if (::unlinkat(root, path.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST)
    return {};
  return path_error(files.root, "remove", path);
}

// Returns the names that have the form of a key; returns none if the directory does not exist.
Result<std::vector<std::string>> names_at(const LedgerFiles& files, const std::string& path) {
  using Names = std::vector<std::string>;
  LedgerDirectory directory{base::open_to_list(files.root.fd.get(), path.c_str()), files.root.path + "/" + path};
  if (!directory.fd.ok()) return errno == ENOENT ? Result<Names>(Names()) : path_error(files.root, "list", path);
  auto names = TRY(list_names(directory));
  std::erase_if(names, [](const std::string& name) { return !is_file_name(name, kLongestKey); });
  return names;
}

// Makes the entry of the grant in this list if the grant belongs there; otherwise removes it.
Result<void> recover_entry(const LedgerFiles& files, const std::string& path, const std::string& key, int timeout_ms) {
  const KeyLock lock = TRY(KeyLock::take(files, {key}, timeout_ms));
  const bool belongs = lists_of(TRY(read_grant(files, key))).contains(path);
  return belongs ? add_to_list(files, path, key) : remove_from_list(files, path, key);
}

std::string entries_path(const std::string& hca) {
  return hca + "/holders";
}
std::string entry_path(const std::string& hca, std::string_view key, unsigned units) {
  return fmt::format("{}/holders/{}", hca, index_entry_name(key, units));
}
std::string exclusive_path(const std::string& hca) {
  return hca + "/exclusive";
}

// Makes the file of an index entry. Returns false if its directory is missing. how: more flags for open(2).
Result<bool> try_entry(const LedgerFiles& files, const std::string& path, int how = 0) {
  if (make_file(files.hca.fd.get(), path) || (errno == EEXIST && how == 0)) return true;
  if (errno == ENOENT) return false;
  // open(2) finds the error, or makes the file on a file system that supports no other call.
  const UniqueFd fd(
      ::openat(files.hca.fd.get(), path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | how, 0600));
  if (fd.ok()) return true;
  return errno == ENOENT ? Result<bool>(false) : path_error(files.hca, "write", path);
}

Result<void> add_entry(const LedgerFiles& files, const std::string& hca, const std::string& key, unsigned units) {
  const std::string path = entry_path(hca, key, units);
  // Usually the directories exist: the first attempt then costs one system call.
  if (TRY(try_entry(files, path))) return {};
  const auto directory = TRY(files.open_hca(hca, true));
  TRY(files.open_entries(directory));
  if (TRY(try_entry(files, path))) return {};
  return path_error(files.hca, "write", path);
}

Result<void> make_exclusive(const LedgerFiles& files, const std::string& hca, const std::string& key,
                            std::string_view replaces) {
  const auto owner_key = TRY(read_state(files, hca)).exclusive_key();
  if (owner_key == key) return {};
  if (!owner_key || *owner_key == replaces) return write_state(files, hca, {HcaState::Kind::kExclusive, key});
  return Error{fmt::format("cannot write `{}/{}`: grant `{}` holds the HCA exclusively", files.hca.path,
                           exclusive_path(hca), *owner_key),
               EBUSY, "run `rdma-hook recover`, then try again"};
}

// Adds the new entries. The caller removes the old ones afterwards: in between, the units of an owner count twice, but
// never as 0.
Result<void> add_entries(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& after,
                         std::string_view replaces) {
  for (const PlannedHca& hca : after) {
    if (!hca.claim.empty()) continue;
    const std::string& name = booked_as(hca);
    TRY_VOID(check_hca_name(name));
    if (hca.mode == Mode::kExclusive) TRY_VOID(make_exclusive(files, name, key, replaces));
    TRY_VOID(add_entry(files, name, key, hca.units));
  }
  return {};
}

// Calls use(entry) for each entry of an HCA until it returns false. Returns false if the directory of the entries is
// missing, as of an HCA that was never held.
Result<bool> each_entry(const LedgerFiles& files, const std::string& hca, auto use) {
  const std::string path = entries_path(hca);
  const UniqueFd fd = base::open_to_list(files.hca.fd.get(), path.c_str());
  if (!fd.ok()) return errno == ENOENT ? Result<bool>(false) : path_error(files.hca, "list", path);
  const bool listed = base::next_names(fd.get(), [&](std::string_view name) {
    auto entry = parse_index_entry(name);
    return !entry || use(std::move(*entry));
  });
  return listed ? Result<bool>(true) : path_error(files.hca, "list", path);
}

Result<void> remove_path(const LedgerFiles& files, const std::string& path) {
  if (::unlinkat(files.hca.fd.get(), path.c_str(), 0) == 0 || errno == ENOENT) return {};
  return path_error(files.hca, "remove", path);
}

// The lists that have a grant. Their paths are made only for a change, because a path has a digest of the id.
struct Listed {
  std::set<std::string> ids;    // ids of containers, pods and claims
  std::set<std::string> views;  // views that lend files of the node
};

Listed listed_of(const std::optional<StoredGrant>& grant) {
  Listed listed;
  if (!grant) return listed;
  const auto add_claims = [&](const std::vector<PlannedHca>& hcas) {
    for (const PlannedHca& hca : hcas)
      if (!hca.claim.empty()) listed.ids.insert(hca.claim);
  };
  add_claims(grant->hcas);
  if (grant->owner.claim) listed.ids.insert(grant->owner.claim->pods.begin(), grant->owner.claim->pods.end());
  for (const StoredUser& user : grant->users) {
    add_claims(user.hcas);
    for (const std::string& id : {user.user.id, user.user.pod})
      if (!id.empty()) listed.ids.insert(id);
    for (const std::string& view : views_of(user.user))
      if (is_lending_view(view)) listed.views.insert(view);
  }
  return listed;
}

}  // namespace

std::set<std::string> lists_of(const std::optional<StoredGrant>& grant) {
  const Listed listed = listed_of(grant);
  std::set<std::string> paths;
  for (const std::string& id : listed.ids)
    paths.insert(id_path(id));
  for (const std::string& view : listed.views)
    paths.insert(lent_path(view));
  return paths;
}

Result<void> add_ids(const LedgerFiles& files, const StoredGrant& after, const std::optional<StoredGrant>& before) {
  const Listed had = listed_of(before);
  const Listed has = listed_of(after);
  for (const std::string& id : has.ids)
    if (!had.ids.contains(id)) TRY_VOID(add_to_list(files, id_path(id), after.owner.key));
  for (const std::string& view : has.views)
    if (!had.views.contains(view)) TRY_VOID(add_to_list(files, lent_path(view), after.owner.key));
  return {};
}

Result<void> remove_ids(const LedgerFiles& files, const StoredGrant& before, const std::optional<StoredGrant>& after) {
  const Listed had = listed_of(before);
  const Listed kept = listed_of(after);
  for (const std::string& id : had.ids)
    if (!kept.ids.contains(id)) TRY_VOID(remove_from_list(files, id_path(id), before.owner.key));
  for (const std::string& view : had.views) {
    if (kept.views.contains(view)) continue;
    TRY_VOID(remove_from_list(files, lent_path(view), before.owner.key));
    files.left_views.insert(view);
  }
  return {};
}

Result<bool> has_list_of_id(const LedgerFiles& files, std::string_view id) {
  const std::string path = id_path(id);
  if (::faccessat(files.root.fd.get(), path.c_str(), F_OK, 0) == 0) return true;
  return errno == ENOENT ? Result<bool>(false) : path_error(files.root, "read", path);
}

Result<std::vector<std::string>> keys_of_id(const LedgerFiles& files, std::string_view id) {
  return names_at(files, id_path(id));
}

Result<std::vector<std::string>> keys_of_view(const LedgerFiles& files, const std::string& view) {
  return names_at(files, lent_path(view));
}

Result<void> recover_lists(const LedgerFiles& files, const ListsOfKeys& grants, const std::set<std::string>& unread,
                           int timeout_ms) {
  std::map<std::string, std::set<std::string>> missing;  // keys that the index lacks, by list
  for (const auto& [key, paths] : grants) {
    for (const std::string& path : paths)
      missing[path].insert(key);
  }
  Result<void> first;
  for (const char* part : {kIds, kLent}) {
    for (const std::string& name : TRY(names_at(files, part))) {
      const std::string path = fmt::format("{}/{}", part, name);
      const auto keys = TRY(names_at(files, path));
      std::set<std::string>& expected = missing[path];
      for (const std::string& key : keys) {
        if (expected.erase(key) > 0 || unread.contains(key)) continue;
        keep_first(first, recover_entry(files, path, key, timeout_ms));
      }
      // If the directory is empty, a process was killed before it made an entry there. The removal is safe: it fails if
      // another process has just made an entry, and a process that is about to make one makes the directory again.
      if (keys.empty() && ::unlinkat(files.root.fd.get(), path.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT &&
          errno != ENOTEMPTY && errno != EEXIST) {
        return path_error(files.root, "remove", path);
      }
    }
  }
  for (const auto& [path, keys] : missing) {
    for (const std::string& key : keys)
      keep_first(first, recover_entry(files, path, key, timeout_ms));
  }
  return first;
}

std::optional<std::string> HcaState::exclusive_key() const {
  return kind == Kind::kExclusive ? std::optional(key) : std::nullopt;
}

Result<void> write_state(const LedgerFiles& files, const std::string& hca, const HcaState& state) {
  const std::string path = exclusive_path(hca);
  if (state.kind == HcaState::Kind::kUnknown) return remove_path(files, path);
  const char* const target = state.kind == HcaState::Kind::kExclusive ? state.key.c_str()
                             : state.kind == HcaState::Kind::kShared  ? kSharedLink
                                                                      : kFreeLink;
  const base::NameAt temporary{files.pending.fd.get(), files.temporary_name()};
  const base::NameAt link{files.hca.fd.get(), path};
  int code = base::replace_link(temporary, link, target);
  if (code == ENOENT && files.open_hca(hca, true)) code = base::replace_link(temporary, link, target);
  errno = code;
  return code == 0 ? Result<void>() : path_error(files.hca, "write", path);
}

std::string index_entry_name(std::string_view key, unsigned units) {
  return fmt::format("{}@{}", key, units);
}

std::optional<IndexEntry> parse_index_entry(std::string_view name) {
  const std::size_t at = name.rfind('@');
  if (at == std::string_view::npos || !is_file_name(name.substr(0, at), kLongestKey)) return std::nullopt;
  const auto units = base::parse_number<unsigned>(name.substr(at + 1));
  if (!units) return std::nullopt;
  return IndexEntry{.key = std::string(name.substr(0, at)), .units = *units};
}

Result<void> remove_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned units) {
  return remove_path(files, entry_path(hca, key, units));
}

Result<bool> correct_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned wrong,
                           unsigned units) {
  // The right entry is made before the wrong one is removed, so that the grant always counts. O_EXCL detects whether
  // the right entry existed.
  auto made = try_entry(files, entry_path(hca, key, units), O_EXCL);
  if (!made.has_value() && made.error().code == EEXIST) made = false;
  if (made.has_value()) TRY_VOID(remove_entry(files, hca, key, wrong));
  return made;
}

Result<HcaState> read_state(const LedgerFiles& files, const std::string& hca) {
  const std::string path = exclusive_path(hca);
  char buffer[kLongestKey + 1];
  const ssize_t length = ::readlinkat(files.hca.fd.get(), path.c_str(), buffer, sizeof buffer);
  if (length < 0 && errno == ENOENT) return HcaState();
  if (length < 0 && errno != EINVAL) return path_error(files.hca, "read", path);  // EINVAL: the file is not a link
  // readlink(2) cuts a longer target to the size of the buffer, kLongestKey + 1, and is_file_name() refuses that
  // length.
  std::string key(buffer, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  if (key == kFreeLink) return HcaState{HcaState::Kind::kFree};
  if (key == kSharedLink) return HcaState{HcaState::Kind::kShared};
  if (is_file_name(key, kLongestKey)) return HcaState{HcaState::Kind::kExclusive, std::move(key)};
  return Error{
      .message = fmt::format("cannot read `{}/{}`: it names no grant", files.hca.path, path),
      .code = EBADMSG,
      .hint = "run `rdma-hook recover`, which corrects this link, or removes it if no grant holds the HCA exclusively"};
}

Result<std::map<std::string, Result<HcaState>>> read_states(const LedgerFiles& files,
                                                            const std::set<std::string>& except) {
  std::map<std::string, Result<HcaState>> states;
  for (std::string& hca : TRY(list_names(files.hca))) {
    if (except.contains(hca) || !check_hca_name(hca)) continue;
    auto state = read_state(files, hca);
    if (state || state.error().code != ENOTDIR) states.emplace(std::move(hca), std::move(state));
  }
  return states;
}

Result<void> remove_exclusive(const LedgerFiles& files, const std::string& hca, std::string_view key,
                              HcaState::Kind then) {
  const auto state = read_state(files, hca);
  if (!state)
    return state.error().code == EBADMSG ? Result<void>() : state.error();  // recover() repairs a damaged link
  return state->exclusive_key() == key ? write_state(files, hca, {then}) : Result<void>();
}

Result<void> set_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& before,
                       const std::vector<PlannedHca>& after, std::string_view replaces) {
  TRY_VOID(add_entries(files, key, after, replaces));
  return remove_index(files, key, before, after);
}

Result<void> remove_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& claims,
                          const std::vector<PlannedHca>& keep) {
  const auto kept = [&](const PlannedHca& claim, auto same) {
    return std::ranges::any_of(keep, [&](const auto& other) {
      return other.claim.empty() && booked_as(other) == booked_as(claim) && same(other);
    });
  };
  std::set<std::pair<std::string, unsigned>> removed;  // claims can list an HCA twice (all_claims())
  for (const PlannedHca& claim : claims) {
    if (!claim.claim.empty()) continue;
    const bool stays = kept(claim, [](const PlannedHca&) { return true; });
    const bool entry = !kept(claim, [&](const PlannedHca& other) { return other.units == claim.units; });
    const bool link = claim.mode == Mode::kExclusive &&
                      !kept(claim, [](const PlannedHca& other) { return other.mode == Mode::kExclusive; });
    if (!entry && !link) continue;
    const std::string& name = booked_as(claim);
    TRY_VOID(check_hca_name(name));
    if (entry && removed.emplace(name, claim.units).second) TRY_VOID(remove_entry(files, name, key, claim.units));
    if (link) {
      TRY_VOID(remove_exclusive(files, name, key, stays ? HcaState::Kind::kShared : HcaState::Kind::kFree));
    }
  }
  return {};
}

Result<std::optional<unsigned>> count_others(const LedgerFiles& files, const std::string& hca, std::string_view key,
                                             UnitBounds bounds, const IsValid& is_valid) {
  std::uint64_t sure = 0;
  std::uint64_t unsure = 0;
  std::vector<IndexEntry> unread;
  const auto look = [&] {
    for (const IndexEntry& doubtful : unread)
      sure += is_valid(doubtful) ? std::max(doubtful.units, 1U) : 0;
    unread.clear();
    unsure = 0;
  };
  const bool is_there = TRY(each_entry(files, hca, [&](IndexEntry entry) {
    if (entry.key == key) return true;
    unsure += std::max(entry.units, 1U);  // an entry name with 0 units is damaged: count 1 unit
    unread.push_back(std::move(entry));
    if (sure + unsure >= bounds.least) look();
    return sure < bounds.most;
  }));
  if (!is_there) return std::optional<unsigned>();
  return std::optional(
      static_cast<unsigned>(std::min<std::uint64_t>(sure + unsure, std::numeric_limits<unsigned>::max())));
}

Result<std::vector<IndexEntry>> list_entries(const LedgerFiles& files, const std::string& hca) {
  std::vector<IndexEntry> entries;
  TRY(each_entry(files, hca, [&](IndexEntry entry) {
    entries.push_back(std::move(entry));
    return true;
  }));
  return entries;
}

}  // namespace hook
