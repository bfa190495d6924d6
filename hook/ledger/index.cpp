#include "hook/ledger/index.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

std::string holders_path(const std::string& hca) {
  return hca + "/holders";
}
std::string entry_path(const std::string& hca, std::string_view key, unsigned units) {
  return fmt::format("{}/holders/{}", hca, index_entry_name(key, units));
}
std::string exclusive_path(const std::string& hca) {
  return hca + "/exclusive";
}

Error index_error(const LedgerFiles& files, const char* verb, const std::string& path) {
  return sys_error(errno, "cannot {} `{}/{}`", verb, files.hca.path, path);
}

// False: there is no such directory.
Result<bool> try_entry(const LedgerFiles& files, const std::string& path, int how = 0) {
  const UniqueFd fd(
      ::openat(files.hca.fd.get(), path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | how, 0600));
  if (fd.ok()) return true;
  return errno == ENOENT ? Result<bool>(false) : index_error(files, "write", path);
}

Result<void> add_entry(const LedgerFiles& files, const std::string& hca, const std::string& key, unsigned units) {
  const std::string path = entry_path(hca, key, units);
  // The directories are mostly there: then this is one system call.
  if (TRY(try_entry(files, path))) return {};
  const auto directory = TRY(files.open_hca(hca, true));
  TRY(files.open_holders(directory));
  if (TRY(try_entry(files, path))) return {};
  return index_error(files, "write", path);
}

Result<void> make_exclusive(const LedgerFiles& files, const std::string& hca, const std::string& key,
                            std::string_view replaces) {
  const std::string path = exclusive_path(hca);
  // symlink(2) never replaces: of two processes one makes the link.
  const auto make = [&] { return ::symlinkat(key.c_str(), files.hca.fd.get(), path.c_str()) == 0; };
  if (make()) return {};
  if (errno == ENOENT) {
    TRY(files.open_hca(hca, true));
    if (make()) return {};
  }
  if (errno != EEXIST) return index_error(files, "write", path);
  const auto holder = TRY(exclusive_key(files, hca));
  if (holder == key) return {};
  if (holder && *holder == replaces) return replace_exclusive(files, hca, key);
  return Error{.message = fmt::format("cannot write `{}/{}`: grant `{}` holds the HCA alone", files.hca.path, path,
                                      holder.value_or("?")),
               .code = EBUSY,
               .hint = "run `rdma-hook recover`, then try again"};
}

// New entries first: in between an owner counts twice, never not at all.
Result<void> add_entries(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& after,
                         std::string_view replaces) {
  for (const PlannedHca& hca : after) {
    const std::string& name = booked_as(hca);
    TRY_VOID(check_hca_name(name));
    if (hca.mode == Mode::kExclusive) TRY_VOID(make_exclusive(files, name, key, replaces));
    TRY_VOID(add_entry(files, name, key, hca.units));
  }
  return {};
}

// Calls use(entry) with each holder until it returns false; never for an HCA that was not held yet.
template <typename Use>
Result<void> each_holder(const LedgerFiles& files, const std::string& hca, Use use) {
  const std::string path = holders_path(hca);
  const UniqueFd fd(::openat(files.hca.fd.get(), path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.ok()) return errno == ENOENT ? Result<void>() : index_error(files, "list", path);
  const bool listed = fabric::sysfs::each_name(fd.get(), [&](std::string_view name) {
    auto entry = parse_index_entry(name);
    return !entry || use(std::move(*entry));
  });
  return listed ? Result<void>() : index_error(files, "list", path);
}

Result<void> remove_path(const LedgerFiles& files, const std::string& path) {
  if (::unlinkat(files.hca.fd.get(), path.c_str(), 0) == 0 || errno == ENOENT) return {};
  return index_error(files, "remove", path);
}

}  // namespace

Result<void> replace_exclusive(const LedgerFiles& files, const std::string& hca, const std::string& key) {
  const std::string temporary = files.temporary_name();
  const std::string path = exclusive_path(hca);
  if (key.empty()) return remove_path(files, path);
  if (::symlinkat(key.c_str(), files.pending.fd.get(), temporary.c_str()) == 0 &&
      ::renameat(files.pending.fd.get(), temporary.c_str(), files.hca.fd.get(), path.c_str()) == 0) {
    return {};
  }
  return index_error(files, "write", path);
}

std::string index_entry_name(std::string_view key, unsigned units) {
  return fmt::format("{}@{}", key, units);
}

std::optional<IndexEntry> parse_index_entry(std::string_view name) {
  const std::size_t at = name.rfind('@');
  if (at == std::string_view::npos || !is_file_name(name.substr(0, at), kLongestKey)) return std::nullopt;
  const auto units = fabric::parse_number<unsigned>(name.substr(at + 1));
  if (!units) return std::nullopt;
  return IndexEntry{.key = std::string(name.substr(0, at)), .units = *units};
}

Result<void> remove_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned units) {
  return remove_path(files, entry_path(hca, key, units));
}

Result<bool> correct_entry(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned wrong,
                           unsigned units) {
  auto made = try_entry(files, entry_path(hca, key, units), O_EXCL);
  if (!made.has_value() && made.error().code == EEXIST) made = false;
  if (made.has_value()) TRY_VOID(remove_entry(files, hca, key, wrong));
  return made;
}

Result<std::optional<std::string>> exclusive_key(const LedgerFiles& files, const std::string& hca) {
  const std::string path = exclusive_path(hca);
  char buffer[kLongestKey + 1];
  const ssize_t length = ::readlinkat(files.hca.fd.get(), path.c_str(), buffer, sizeof buffer);
  if (length < 0 && errno == ENOENT) return std::optional<std::string>();
  if (length < 0 && errno != EINVAL) return index_error(files, "read", path);  // EINVAL: no link
  std::string key(buffer, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  if (is_file_name(key, kLongestKey)) return std::optional<std::string>(std::move(key));
  return Error{.message = fmt::format("cannot read `{}/{}`: it names no grant", files.hca.path, path),
               .code = EBADMSG,
               .hint = "run `rdma-hook recover`, which corrects it, or removes it if no grant uses it"};
}

Result<void> remove_exclusive(const LedgerFiles& files, const std::string& hca, std::string_view key) {
  const auto holder = exclusive_key(files, hca);
  if (!holder)
    return holder.error().code == EBADMSG ? Result<void>() : holder.error();  // recover() removes a damaged one
  return *holder == key ? remove_path(files, exclusive_path(hca)) : Result<void>();
}

Result<void> set_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& before,
                       const std::vector<PlannedHca>& after, std::string_view replaces) {
  TRY_VOID(add_entries(files, key, after, replaces));
  return remove_index(files, key, before, after);
}

Result<void> remove_index(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& claims,
                          const std::vector<PlannedHca>& keep) {
  const auto kept = [&](const PlannedHca& claim, auto same) {
    return std::any_of(keep.begin(), keep.end(),
                       [&](const auto& other) { return booked_as(other) == booked_as(claim) && same(other); });
  };
  for (const PlannedHca& claim : claims) {
    const bool entry = !kept(claim, [&](const PlannedHca& other) { return other.units == claim.units; });
    const bool link = claim.mode == Mode::kExclusive &&
                      !kept(claim, [](const PlannedHca& other) { return other.mode == Mode::kExclusive; });
    if (!entry && !link) continue;
    const std::string& name = booked_as(claim);
    TRY_VOID(check_hca_name(name));
    if (entry) TRY_VOID(remove_entry(files, name, key, claim.units));
    if (link) TRY_VOID(remove_exclusive(files, name, key));
  }
  return {};
}

Result<unsigned> count_others(const LedgerFiles& files, const std::string& hca, std::string_view key, unsigned most,
                              const IsValid& is_valid) {
  std::uint64_t sure = 0;
  std::uint64_t unsure = 0;
  std::vector<IndexEntry> unread;
  const auto look = [&] {
    for (const IndexEntry& doubtful : unread)
      sure += is_valid(doubtful) ? std::max(doubtful.units, 1U) : 0;
    unread.clear();
    unsure = 0;
  };
  TRY_VOID(each_holder(files, hca, [&](IndexEntry entry) {
    if (entry.key == key) return true;
    unsure += std::max(entry.units, 1U);  // a name that says none was damaged
    unread.push_back(std::move(entry));
    if (sure + unsure >= most) look();
    return sure < most;
  }));
  return static_cast<unsigned>(std::min<std::uint64_t>(sure + unsure, std::numeric_limits<unsigned>::max()));
}

Result<std::vector<IndexEntry>> list_entries(const LedgerFiles& files, const std::string& hca) {
  std::vector<IndexEntry> entries;
  TRY_VOID(each_holder(files, hca, [&](IndexEntry entry) {
    entries.push_back(std::move(entry));
    return true;
  }));
  return entries;
}

}  // namespace hook
