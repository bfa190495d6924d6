#include "hook/rails/address/pool.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>

#include "base/file.hpp"
#include "base/process/root_lock.hpp"
#include "base/replace_file.hpp"
#include "base/text.hpp"
#include "hook/config/node_slice.hpp"

namespace hook {
namespace {

using fabric::Address;

// Other processes have the lock only for microseconds.
constexpr base::LockPause kPause{std::chrono::microseconds(200), std::chrono::microseconds(200)};

// The grant for which an address is in use, and the rail and the child (mode shared-multi) of the grant.
struct PoolClaim {
  std::string key;
  unsigned rail = 0;
  unsigned nth = 0;
  friend bool operator==(const PoolClaim&, const PoolClaim&) = default;
};
using PoolClaims = std::map<Address, PoolClaim>;

std::string to_text(const PoolClaim& claim) {
  return fmt::format("{}@{}@{}", claim.key, claim.rail, claim.nth);
}

// Parses the target of a symbolic link in the directory. A malformed target becomes a claim of a key that no grant has.
// Its address then stays allocated, which does less harm than an address that two containers get.
PoolClaim parse_claim(std::string_view text) {
  const auto parts = base::split(text, '@');
  if (parts.size() == 3) {
    const auto rail = base::parse_number<unsigned>(parts[1]);
    const auto nth = base::parse_number<unsigned>(parts[2]);
    if (rail && nth) return {std::string(parts[0]), *rail, *nth};
  }
  return {std::string(text), 0, 0};
}

// Reads a symbolic link. Returns nullopt if there is no such name, and an empty text if it is no link.
Result<std::optional<std::string>> read_link(const LedgerDirectory& place, const std::string& name) {
  auto target = base::read_link(place.fd.get(), name.c_str());
  if (target || errno == ENOENT) return target;
  if (errno == EINVAL) return std::optional(std::string());
  return sys_error(errno, "cannot read `{}/{}`", place.path, name);
}

// Locks the directory. Closing the descriptor releases the lock.
Result<void> lock_place(const LedgerDirectory& place, int timeout_ms) {
  const int failed = base::flock_within(place.fd.get(), LOCK_EX, std::chrono::milliseconds(timeout_ms), kPause);
  if (failed == EAGAIN)
    return Error{fmt::format("cannot lock `{}` within {} ms: another process holds it", place.path, timeout_ms), EAGAIN,
                 "try again"};
  return failed == 0 ? Result<void>() : sys_error(failed, "cannot lock `{}`", place.path);
}

std::string last_name(const AddressRange& range) {
  return "last@" + fabric::to_string(range.from);
}

Result<PoolClaims> read_claims(const LedgerDirectory& place) {
  PoolClaims claims;
  for (const std::string& name : TRY(list_names(place))) {
    const auto address = fabric::parse_address(name);
    if (!address) continue;
    if (const auto text = TRY(read_link(place, name))) claims[*address] = parse_claim(*text);
  }
  return claims;
}

bool contains(const AddressRange& range, const Address& address) {
  return range.from <= address && address <= range.to;
}

// Returns the first and last address of the subnet. last_of() expects the prefix of an IPv4-mapped IPv6 address, so an
// IPv4 prefix, which is at most 32, is increased by 96.
std::pair<Address, Address> ends_of(const AddressRange& range) {
  return {fabric::masked(range.subnet, range.prefix),
          last_of(range.subnet, range.prefix + (range.subnet.is_ipv4() ? 96 : 0))};
}

constexpr const char* kEveryRail = "all";
constexpr std::size_t kLongestNetwork = 63;

Result<LedgerDirectory> open_network(const LedgerDirectory& root, const std::string& network, bool make) {
  // Accepts kVfValues, which is no network's name, because is_file_name() refuses '@'.
  if (network != kVfValues && !is_file_name(network, kLongestNetwork))
    return make_error("cannot use network `{}`: that is no name of a network",
                      base::printable(network.substr(0, kLongestNetwork)));
  return open_directory(root.fd.get(), network, root.path + "/" + network, make);
}

Result<LedgerDirectory> open_place(const LedgerDirectory& network, const std::string& name, bool make) {
  return open_directory(network.fd.get(), name, network.path + "/" + name, make);
}

Result<void> check_key(std::string_view key) {
  if (is_file_name(key, kLongestKey)) return {};
  return make_error("internal error: grant key `{}` is not 1 to {} of [A-Za-z0-9_.-]",
                    base::printable(key.substr(0, kLongestKey)), kLongestKey);
}

// Checks a range again, as a safeguard: the checks of config.json find the same errors earlier, and report the line.
Result<void> check_range(const AddressRange& range) {
  const bool ipv4 = range.subnet.is_ipv4();
  const bool sound = range.from.is_ipv4() == ipv4 && range.to.is_ipv4() == ipv4 && range.from <= range.to &&
                     range.prefix <= (ipv4 ? 32 : 128) && !range.per_node;
  if (sound) {
    const auto [first, last] = ends_of(range);
    if (first <= range.from && range.to <= last) return {};
  }
  return make_error("cannot allocate from `{}`: it is no range of `{}/{}`", to_string(range),
                    fabric::to_string(range.subnet), range.prefix);
}

// Refuses a range for one rail that overlaps a range for all rails. The two ranges are booked in different directories,
// so an address in both ranges could be allocated twice.
Result<void> check_apart(const AddressRange& own, const AddressRange& other) {
  if (!own.rail || other.rail || other.to < own.from || own.to < other.from) return {};
  return Error{
      .message = fmt::format("range {} of rail {} overlaps range {}, which has no `rail` and so serves all rails",
                             to_string(own), *own.rail, to_string(other)),
      .code = EINVAL,
      .hint = "use ranges without overlap in config.json"};
}

std::set<Address> never_allocated(const std::vector<const AddressRange*>& ranges) {
  std::set<Address> never;
  for (const AddressRange* range : ranges) {
    if (range->gateway) never.insert(*range->gateway);
    never.insert(range->own.begin(), range->own.end());
    // Subnets of one or two addresses have no network or broadcast address (RFC 3021, RFC 6164). The first address of
    // an IPv6 subnet is the anycast address of the routers (RFC 4291, 2.6.1).
    const bool ipv4 = range->subnet.is_ipv4();
    if (range->prefix + 2 > (ipv4 ? 32 : 128)) continue;
    const auto [first, last] = ends_of(*range);
    never.insert(first);
    if (ipv4) never.insert(last);
  }
  return never;
}

// One directory of addresses in use, DIR/addresses/NETWORK/PLACE. Locks: an object that open()
// returned has the lock (flock(2)) of the directory until it is destroyed.
class RangeDirectory {
 public:
  // Locks the directory and reads it. Errors: EAGAIN, the lock is not free within timeout_ms; a claim cannot be read.
  static Result<RangeDirectory> open(LedgerDirectory directory, int timeout_ms);

  // Allocates an address. allocated: addresses that this request has already received. If `claim` already has another
  // address of the range, returns that address.
  // Otherwise books and returns the next free address that is not in `never`.
  // Errors, with remedy: all addresses of the range are in use (EADDRNOTAVAIL).
  Result<Address> take(const AddressRange& range, const std::set<Address>& never, const PoolClaim& claim,
                       const std::set<Address>& allocated);
  // Removes the claims that take() added.
  void roll_back();
  // Removes the claims of this key. Continues after an error and returns the first one.
  // rails: only claims for these rails; nullptr: for all rails.
  Result<void> remove(std::string_view key, const std::set<unsigned>* rails);

 private:
  RangeDirectory(LedgerDirectory directory, PoolClaims claims)
      : directory_(std::move(directory)), claims_(std::move(claims)) {}
  std::optional<Address> find_free(const AddressRange& range, const std::set<Address>& never) const;
  Error used_up(const AddressRange& range, unsigned rail) const;
  void note_last(const AddressRange& range, const std::string& address) const;

  LedgerDirectory directory_;
  PoolClaims claims_;
  std::vector<std::string> added_ = {};
};

Result<RangeDirectory> RangeDirectory::open(LedgerDirectory directory, int timeout_ms) {
  TRY_VOID(lock_place(directory, timeout_ms));
  auto claims = TRY(read_claims(directory));
  return RangeDirectory(std::move(directory), std::move(claims));
}

Result<Address> RangeDirectory::take(const AddressRange& range, const std::set<Address>& never, const PoolClaim& claim,
                                     const std::set<Address>& allocated) {
  // The key can already have an address, from a call that was killed or from an earlier start of the same grant. Such
  // an address is used again.
  for (const auto& [address, booked] : claims_)
    if (booked == claim && contains(range, address) && !allocated.contains(address)) return address;
  const auto free = find_free(range, never);
  if (!free) return used_up(range, claim.rail);
  const std::string name = fabric::to_string(*free);
  if (::symlinkat(to_text(claim).c_str(), directory_.fd.get(), name.c_str()) != 0)
    return sys_error(errno, "cannot make `{}/{}`", directory_.path, name);
  claims_[*free] = claim;
  added_.push_back(name);
  note_last(range, name);
  return *free;
}

void RangeDirectory::roll_back() {
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

// Returns the next free address after the last allocation; nullopt if no address is free. Skips only addresses that are
// in use or in `never`, so the search is short even in a huge range.
// never: addresses that must not be allocated.
std::optional<Address> RangeDirectory::find_free(const AddressRange& range, const std::set<Address>& never) const {
  const auto text = read_link(directory_, last_name(range));
  const auto last = text && *text ? fabric::parse_address(**text) : std::nullopt;
  const Address start = last && contains(range, *last) && *last != range.to ? next_address(*last) : range.from;
  Address address = start;
  do {
    if (!claims_.contains(address) && !never.contains(address)) return address;
    address = address == range.to ? range.from : next_address(address);
  } while (address != start);
  return std::nullopt;
}

Error RangeDirectory::used_up(const AddressRange& range, unsigned rail) const {
  const auto count = std::ranges::count_if(claims_, [&](const auto& held) { return contains(range, held.first); });
  return Error{fmt::format("cannot allocate an address of {} for rail {}: no address is free ({} in use)",
                           to_string(range), rail, count),
               EADDRNOTAVAIL, "run `rdma-hook recover`, or widen the range in config.json"};
}

// Records the last allocation. Errors are ignored: without the record, a released address is only used again earlier.
// The directory is locked, so no other process uses the temporary name.
void RangeDirectory::note_last(const AddressRange& range, const std::string& address) const {
  const int directory = directory_.fd.get();
  (void)base::replace_link({directory, "next"}, {directory, last_name(range)}, address.c_str());
}

std::string place_of(const AddressRange& range) {
  return range.rail ? fmt::format("{}", *range.rail) : kEveryRail;
}

// Locked directories, sorted by name: the directory of a rail (a number) is locked before the directory "all". All
// calls lock in this order, which prevents a deadlock.
using Places = std::map<std::string, RangeDirectory>;
Result<Places> open_places(const LedgerDirectory& network, const std::vector<const AddressRange*>& ranges,
                           int timeout_ms) {
  std::set<std::string> names;
  for (const AddressRange* range : ranges)
    names.insert(place_of(*range));
  Places places;
  for (const std::string& name : names) {
    auto directory = TRY(open_place(network, name, true));
    places.emplace(name, TRY(RangeDirectory::open(std::move(directory), timeout_ms)));
  }
  return places;
}

// Allocates one address of each range.
// take: allocates in one range. Its arguments are the addresses that are never allocated, and the addresses that this
// call has already allocated.
Result<std::vector<RailAddress>> take_each(const std::vector<const AddressRange*>& ranges, const std::string& network,
                                           auto take) {
  const auto never = never_allocated(ranges);
  std::vector<RailAddress> taken;
  std::set<Address> allocated;
  for (const AddressRange* range : ranges) {
    const Result<Address> address = take(*range, never, allocated);
    if (!address) return base::wrap(address.error(), fmt::format("network `{}`", network));
    allocated.insert(*address);
    taken.push_back({*address, range->prefix, range->gateway});
  }
  return taken;
}

// Releases the addresses of the key in all directories of a network.
// rails: releases only the addresses of these rails; nullptr: those of all rails.
Result<void> release_in(const LedgerDirectory& root, const std::string& name, const std::set<unsigned>* rails,
                        std::string_view key, int timeout_ms) {
  const auto network = open_network(root, name, false);
  if (!network) return network.error().code == ENOENT ? Result<void>() : network.error();
  const std::vector<std::string> there = TRY(list_names(*network));
  Result<void> first;
  for (const std::string& place : there) {
    const auto rail = base::parse_number<unsigned>(place);
    // The directory "all" can have addresses of any rail, so it is always searched.
    if (rails && place != kEveryRail && !(rail && rails->contains(*rail))) continue;
    const auto remove = [&]() -> Result<void> {
      auto directory = TRY(open_place(*network, place, false));
      return TRY(RangeDirectory::open(std::move(directory), timeout_ms)).remove(key, rails);
    };
    keep_first(first, remove());
  }
  return first;
}

}  // namespace

Result<std::vector<const AddressRange*>> ranges_of(unsigned rail, const std::vector<AddressRange>& ranges) {
  std::vector<const AddressRange*> ours;
  for (const AddressRange& range : ranges)
    if (!range.rail || *range.rail == rail) ours.push_back(&range);
  for (const AddressRange* range : ours) {
    TRY_VOID(check_range(*range));
    for (const AddressRange* other : ours)
      TRY_VOID(check_apart(*range, *other));
  }
  return ours;
}

std::string to_string(const AddressRange& range) {
  return fmt::format("{}-{}", fabric::to_string(range.from), fabric::to_string(range.to));
}

AddressPool::AddressPool(std::shared_ptr<const LedgerDirectory> directory, int timeout_ms)
    : directory_(std::move(directory)), timeout_ms_(timeout_ms) {}

Result<AddressPool> AddressPool::open(const std::string& ledger_directory, int timeout_ms) {
  const auto root = TRY(open_directory(AT_FDCWD, ledger_directory, ledger_directory, true));
  auto own = TRY(open_directory(root.fd.get(), "addresses", ledger_directory + "/addresses", true));
  return AddressPool(std::make_shared<const LedgerDirectory>(std::move(own)), timeout_ms);
}

Result<std::vector<RailAddress>> AddressPool::take(const std::string& network, unsigned rail, unsigned nth,
                                                   const std::vector<AddressRange>& ranges,
                                                   std::string_view key) const {
  TRY_VOID(check_key(key));
  const auto ours = TRY(ranges_of(rail, ranges));
  if (ours.empty()) return std::vector<RailAddress>();
  const auto directory = TRY(open_network(*directory_, network, true));
  auto places = TRY(open_places(directory, ours, timeout_ms_));
  auto taken = take_each(ours, network, [&](const AddressRange& range, const auto& never, const auto& allocated) {
    return places.at(place_of(range)).take(range, never, {std::string(key), rail, nth}, allocated);
  });
  if (taken) return taken;
  for (auto& [name, place] : places)
    place.roll_back();
  return taken;
}

Result<void> AddressPool::release_grant(std::string_view key, const std::vector<NetworkRail>& where) const {
  TRY_VOID(check_key(key));
  std::map<std::string, std::set<unsigned>> rails;
  for (const NetworkRail& place : where)
    rails[place.network].insert(place.rail);
  Result<void> first;
  for (const auto& [network, numbers] : rails)
    keep_first(first, release_in(*directory_, network, &numbers, key, timeout_ms_));
  if (!where.empty()) return first;
  // All networks on disk are searched, because config.json may not have some of them any more.
  const std::vector<std::string> networks = TRY(list_names(*directory_));
  for (const std::string& network : networks)
    keep_first(first, release_in(*directory_, network, nullptr, key, timeout_ms_));
  return first;
}

Result<std::map<std::string, std::string>> AddressPool::list() const {
  std::map<std::string, std::string> owners;
  const std::vector<std::string> networks = TRY(list_names(*directory_));
  for (const std::string& name : networks) {
    const auto network = TRY(open_network(*directory_, name, false));
    const std::vector<std::string> places = TRY(list_names(network));
    for (const std::string& place : places) {
      const auto directory = TRY(open_place(network, place, false));
      const PoolClaims claims = TRY(read_claims(directory));
      for (const auto& [address, claim] : claims)
        owners[fmt::format("{}/{}/{}", name, place, fabric::to_string(address))] = claim.key;
    }
  }
  return owners;
}

}  // namespace hook
