#include "hook/ledger/ledger_index.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>

#include "fabric/directory_stream.hpp"
#include "fabric/text.hpp"
#include "hook/ledger/ledger_grant.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;

constexpr const char* kExclusive = "exclusive";

Result<void> replace_exclusive(const LedgerFiles& files, const LedgerDirectory& hca, const std::string& key) {
  const std::string temporary = files.temporary_name();
  if (::symlinkat(key.c_str(), files.pending.fd.get(), temporary.c_str()) == 0 &&
      ::renameat(files.pending.fd.get(), temporary.c_str(), hca.fd.get(), kExclusive) == 0) {
    return {};
  }
  return sys_error(errno, "cannot write `{}/{}`", hca.path, kExclusive);
}

Result<void> make_exclusive(const LedgerFiles& files, const LedgerDirectory& hca, const std::string& key,
                            std::string_view replaces) {
  if (::symlinkat(key.c_str(), hca.fd.get(), kExclusive) == 0) return {};
  if (errno != EEXIST) return sys_error(errno, "cannot write `{}/{}`", hca.path, kExclusive);
  const auto holder = TRY(exclusive_key(hca));
  if (holder == key) return {};
  if (holder && *holder == replaces) return replace_exclusive(files, hca, key);
  return Error{.message = fmt::format("cannot write `{}/{}`: grant `{}` holds the HCA alone", hca.path, kExclusive,
                                      holder.value_or("?")),
               .code = EBUSY,
               .hint = "run `rdma-hook recover`, then try again"};
}

// New entries first: in between an owner counts twice, never not at all.
Result<void> add_entries(const LedgerFiles& files, const std::string& key, const std::vector<PlannedHca>& after,
                         std::string_view replaces) {
  for (const PlannedHca& hca : after) {
    const auto directory = TRY(files.open_hca(hca.name, true));
    if (hca.mode == Mode::kExclusive) TRY_VOID(make_exclusive(files, directory, key, replaces));
    const auto holders = TRY(files.open_holders(directory));
    TRY_VOID(make_empty_file(holders, index_entry_name(key, hca.units)));
  }
  return {};
}

}  // namespace

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

Result<std::optional<std::string>> exclusive_key(const LedgerDirectory& hca) {
  char buffer[kLongestKey + 1];
  const ssize_t length = ::readlinkat(hca.fd.get(), kExclusive, buffer, sizeof buffer);
  if (length < 0 && errno == ENOENT) return std::optional<std::string>();
  if (length < 0) return sys_error(errno, "cannot read `{}/{}`", hca.path, kExclusive);
  std::string key(buffer, static_cast<std::size_t>(length));
  if (is_file_name(key, kLongestKey)) return std::optional<std::string>(std::move(key));
  return Error{.message = fmt::format("cannot read `{}/{}`: it names no grant", hca.path, kExclusive),
               .hint = "remove it while no container uses that HCA"};
}

Result<void> remove_exclusive(const LedgerDirectory& hca, std::string_view key) {
  const auto holder = TRY(exclusive_key(hca));
  return holder == key ? remove_file(hca, kExclusive) : Result<void>();
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
                       [&](const auto& other) { return other.name == claim.name && same(other); });
  };
  for (const PlannedHca& claim : claims) {
    const bool entry = !kept(claim, [&](const PlannedHca& other) { return other.units == claim.units; });
    const bool link = claim.mode == Mode::kExclusive &&
                      !kept(claim, [](const PlannedHca& other) { return other.mode == Mode::kExclusive; });
    if (!entry && !link) continue;
    const auto directory = TRY(files.open_hca(claim.name, true));
    if (entry) {
      const auto holders = TRY(files.open_holders(directory));
      TRY_VOID(remove_file(holders, index_entry_name(key, claim.units)));
    }
    if (link) TRY_VOID(remove_exclusive(directory, key));
  }
  return {};
}

Result<unsigned> count_others(const LedgerDirectory& holders, std::string_view key, unsigned most,
                              const IsValid& is_valid) {
  const auto dir = fabric::open_directory_stream(holders.fd.get());
  if (!dir) return sys_error(errno, "cannot list `{}`", holders.path);
  std::uint64_t sure = 0;
  std::uint64_t unsure = 0;
  std::vector<IndexEntry> unread;
  while (sure < most) {
    const dirent* next = ::readdir(dir.get());
    const auto entry = next ? parse_index_entry(next->d_name) : std::nullopt;
    if (entry && entry->key != key) {
      unsure += entry->units;
      unread.push_back(*entry);
    }
    if (sure + unsure >= most) {
      for (const IndexEntry& doubtful : unread)
        sure += TRY(is_valid(doubtful)) ? doubtful.units : 0;
      unread.clear();
      unsure = 0;
    }
    if (!next) break;
  }
  return static_cast<unsigned>(std::min<std::uint64_t>(sure + unsure, std::numeric_limits<unsigned>::max()));
}

}  // namespace hook
