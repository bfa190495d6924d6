#include "hook/rails/address/range_directory.hpp"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::Error;
using fabric::Result;
using fabric::sys_error;

constexpr long kLockPause = 200'000;  // ns: the lock is held for microseconds

std::string to_text(const PoolClaim& claim) {
  return fmt::format("{}@{}@{}", claim.key, claim.rail, claim.nth);
}

// A link of another form keeps its address, under a name that is no grant's key: better kept for ever than given twice.
PoolClaim parse_claim(std::string_view text) {
  const auto parts = fabric::split(text, '@');
  if (parts.size() == 3) {
    const auto rail = fabric::parse_number<unsigned>(parts[1]);
    const auto nth = fabric::parse_number<unsigned>(parts[2]);
    if (rail && nth) return {std::string(parts[0]), *rail, *nth};
  }
  return {std::string(text), 0, 0};
}

// nullopt: there is none of this name. Of what is no link: "".
Result<std::optional<std::string>> read_link(const LedgerDirectory& place, const std::string& name) {
  char buffer[512];
  const ssize_t count = ::readlinkat(place.fd.get(), name.c_str(), buffer, sizeof buffer);
  if (count >= 0) return std::optional(std::string(buffer, static_cast<std::size_t>(count)));
  if (errno == ENOENT) return std::optional<std::string>();
  if (errno == EINVAL) return std::optional(std::string());
  return sys_error(errno, "cannot read `{}/{}`", place.path, name);
}

// A bounded wait, as in ledger_files.cpp; the lock goes with the descriptor.
Result<void> lock_place(const LedgerDirectory& place, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (::flock(place.fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return sys_error(errno, "cannot lock `{}`", place.path);
    if (std::chrono::steady_clock::now() >= deadline) {
      return Error{fmt::format("cannot lock `{}` within {} ms: another process holds it", place.path, timeout_ms),
                   EAGAIN, "try again"};
    }
    const timespec wait{.tv_sec = 0, .tv_nsec = kLockPause};
    ::nanosleep(&wait, nullptr);
  }
  return {};
}

Address next(Address address) {
  for (auto byte = address.bytes.rbegin(); byte != address.bytes.rend() && ++*byte == 0; ++byte) {
  }
  return address;
}

std::string last_name(const AddressRange& range) {
  return "last@" + fabric::to_string(range.from);
}

}  // namespace

Result<PoolClaims> read_claims(const LedgerDirectory& place) {
  PoolClaims claims;
  for (const std::string& name : TRY(list_names(place))) {
    const auto address = fabric::parse_address(name);
    if (!address) continue;
    if (const auto text = TRY(read_link(place, name))) claims[*address] = parse_claim(*text);
  }
  return claims;
}

std::string to_string(const AddressRange& range) {
  return fmt::format("{}-{}", fabric::to_string(range.from), fabric::to_string(range.to));
}

bool contains(const AddressRange& range, const Address& address) {
  return range.from <= address && address <= range.to;
}

std::pair<Address, Address> ends_of(const AddressRange& range) {
  Address last = range.subnet;
  for (unsigned bit = range.prefix + (range.subnet.is_ipv4() ? 96 : 0); bit < 128; ++bit)
    last.bytes[bit / 8] |= static_cast<std::uint8_t>(0x80U >> (bit % 8));
  return {fabric::masked(range.subnet, range.prefix), last};
}

RangeDirectory::RangeDirectory(LedgerDirectory directory, PoolClaims claims, bool writes)
    : directory_(std::move(directory)), claims_(std::move(claims)), writes_(writes) {}

Result<RangeDirectory> RangeDirectory::open(LedgerDirectory directory, int timeout_ms) {
  TRY_VOID(lock_place(directory, timeout_ms));
  auto claims = TRY(read_claims(directory));
  return RangeDirectory(std::move(directory), std::move(claims), true);
}

Result<RangeDirectory> RangeDirectory::look(LedgerDirectory directory) {
  PoolClaims claims;
  if (directory.fd.ok()) claims = TRY(read_claims(directory));
  return RangeDirectory(std::move(directory), std::move(claims), false);
}

void RangeDirectory::free_all_but(const std::function<bool(const std::string& key)>& holds) {
  std::erase_if(claims_, [&](const auto& claim) { return !holds(claim.second.key); });
}

Result<Address> RangeDirectory::take(const AddressRange& range, const std::set<Address>& never, const PoolClaim& claim,
                                     const std::set<Address>& given) {
  for (const auto& [address, holder] : claims_) {
    if (holder == claim && contains(range, address) && !given.contains(address)) return address;
  }
  const auto free = find_free(range, never);
  if (!free) return used_up(range, claim.rail);
  if (!writes_) {
    claims_[*free] = claim;
    looked_last_[last_name(range)] = *free;
    return *free;
  }
  const std::string name = fabric::to_string(*free);
  if (::symlinkat(to_text(claim).c_str(), directory_.fd.get(), name.c_str()) != 0) {
    return sys_error(errno, "cannot make `{}/{}`", directory_.path, name);
  }
  claims_[*free] = claim;
  added_.push_back(name);
  note_last(range, name);
  return *free;
}

void RangeDirectory::undo() {
  for (const std::string& name : added_)
    ::unlinkat(directory_.fd.get(), name.c_str(), 0);
  added_.clear();
}

Result<void> RangeDirectory::remove(std::string_view key, const std::set<unsigned>* rails) {
  Result<void> first;
  for (const auto& [address, claim] : claims_) {
    if (claim.key != key || (rails && !rails->contains(claim.rail))) continue;
    keep_first(first, remove_file(directory_, fabric::to_string(address)));
  }
  return first;
}

// At most as many looks as addresses are in use or never given, whatever the size of the range.
std::optional<Address> RangeDirectory::find_free(const AddressRange& range, const std::set<Address>& never) const {
  const auto looked = looked_last_.find(last_name(range));
  auto last = looked != looked_last_.end() ? std::optional(looked->second) : std::nullopt;
  if (!last && directory_.fd.ok()) {
    const auto text = read_link(directory_, last_name(range));
    if (text && *text) last = fabric::parse_address(**text);
  }
  const Address start = last && contains(range, *last) && *last != range.to ? next(*last) : range.from;
  Address address = start;
  do {
    if (!claims_.contains(address) && !never.contains(address)) return address;
    address = address == range.to ? range.from : next(address);
  } while (address != start);
  return std::nullopt;
}

Error RangeDirectory::used_up(const AddressRange& range, unsigned rail) const {
  const auto count =
      std::count_if(claims_.begin(), claims_.end(), [&](const auto& held) { return contains(range, held.first); });
  return Error{.message = fmt::format("cannot give rail {} an address of {}: all that may be given are in use ({})",
                                      rail, to_string(range), count),
               .code = EADDRNOTAVAIL,
               .hint =
                   "`rdma-hook recover` returns those of containers that are gone; else widen the range in "
                   "config.json"};
}

// Best effort: without it an address is used again earlier than need be. The name is free: the place is locked.
void RangeDirectory::note_last(const AddressRange& range, const std::string& address) const {
  constexpr const char* kTemporary = "next";
  ::unlinkat(directory_.fd.get(), kTemporary, 0);  // of a process that was killed here
  if (::symlinkat(address.c_str(), directory_.fd.get(), kTemporary) != 0) return;
  if (::renameat(directory_.fd.get(), kTemporary, directory_.fd.get(), last_name(range).c_str()) == 0) return;
  ::unlinkat(directory_.fd.get(), kTemporary, 0);
}

}  // namespace hook
