// Allocates addresses from the ranges of config.json. Each address in use has a file, so that no two containers of the
// node get the same address, even at the same time.
//
//   DIR/addresses/NETWORK/PLACE/ADDRESS -> KEY@RAIL@NTH   in use by the grant KEY (symlink(2) is atomic)
//   DIR/addresses/NETWORK/PLACE/last@FROM -> ADDRESS      last allocation in the range that begins at FROM; the next
//                                                         search begins after it, so that a released address is not
//                                                         used again at once
//
// PLACE is the number of the rail, or "all" for ranges without a rail, from which all rails allocate. take() and
// release_grant() lock DIR/addresses/NETWORK/PLACE with flock(2), so that no other process changes the directory
// between reading and changing it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fabric/address.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/files.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// The grant for which an address is in use, and the rail and the child (mode shared-multi) of the grant.
struct PoolClaim {
  std::string key;
  unsigned rail = 0;
  unsigned nth = 0;
  friend bool operator==(const PoolClaim&, const PoolClaim&) = default;
};
using PoolClaims = std::map<fabric::Address, PoolClaim>;

// One directory of addresses in use, DIR/addresses/NETWORK/PLACE. Only pool.cpp uses it. Locks: an object that open()
// returned has the lock (flock(2)) of the directory until it is destroyed.
class RangeDirectory {
 public:
  // Locks the directory and reads it. Errors: EAGAIN, the lock is not free within timeout_ms; a claim cannot be read.
  static Result<RangeDirectory> open(LedgerDirectory directory, int timeout_ms);

  // Reads the directory without a lock. take() then changes only this object. If `directory` is not open, no address is
  // in use. Errors: a claim cannot be read.
  static Result<RangeDirectory> look(LedgerDirectory directory);
  // Drops the claims of all keys for which holds() returns false, so that their addresses count as free. Call this
  // function only for an object that look() returned.
  void free_all_but(const std::function<bool(const std::string& key)>& holds);

  // Allocates an address. given: addresses that this request has already received. If `claim` already has another
  // address of the range, returns that address.
  // Otherwise books and returns the next free address that is not in `never`.
  // Errors, with remedy: all addresses of the range are in use (EADDRNOTAVAIL).
  Result<fabric::Address> take(const AddressRange& range, const std::set<fabric::Address>& never,
                               const PoolClaim& claim, const std::set<fabric::Address>& given);
  // Removes the claims that take() added.
  void undo();
  // Removes the claims of this key. Continues after an error and returns the first one.
  // rails: only claims for these rails; nullptr: for all rails.
  Result<void> remove(std::string_view key, const std::set<unsigned>* rails);

 private:
  RangeDirectory(LedgerDirectory directory, PoolClaims claims, bool writes);
  std::optional<fabric::Address> find_free(const AddressRange& range, const std::set<fabric::Address>& never) const;
  Error used_up(const AddressRange& range, unsigned rail) const;
  void note_last(const AddressRange& range, const std::string& address) const;

  LedgerDirectory directory_;
  PoolClaims claims_;
  bool writes_ = true;
  // For an object that look() returned: the last allocations, by the name "last@FROM" of the symbolic link that
  // note_last() would write.
  std::map<std::string, fabric::Address> looked_last_ = {};
  std::vector<std::string> added_ = {};
};

// Used in place of a network's name for the MAC addresses and GUIDs of VFs. All networks allocate these values from one
// set, so that no two VFs get the same value (take_vf_values()). No network can have this name.
inline constexpr const char* kStockOfAll = "@vf";

class AddressPool {
 public:
  // Opens DIR/addresses; makes it if it is missing.
  // ledger_directory: has mode 0700 and is owned by root.
  // timeout_ms: limit for the lock of each directory.
  static Result<AddressPool> open(const std::string& ledger_directory, int timeout_ms = 10000);

  // Allocates one address of each range that is for this rail, in the order of the ranges. If the key already has an
  // address for this rail and child in a range, returns that address again. Never allocates a range's gateway or the
  // node's own addresses. In a subnet with more than two addresses, never allocates the first address or an IPv4
  // subnet's broadcast address.
  // nth: number of the child of this rail in shared-multi, from 0.
  // Errors: all addresses of a range are in use (EADDRNOTAVAIL, with remedy); a malformed range; a range for one rail
  // that overlaps a range for all rails. After an error the key has no more addresses than before. If the process is
  // killed in this function, only addresses of this key stay allocated.
  Result<std::vector<RailAddress>> take(const std::string& network, unsigned rail, unsigned nth,
                                        const std::vector<AddressRange>& ranges, std::string_view key) const;
  // Releases the addresses of this key. A key without addresses is no error. Continues after an error and returns the
  // first one. The cost is proportional to the addresses in use on these rails.
  // where: only on these rails; empty: on all rails of all networks.
  struct NetworkRail {
    std::string network;
    unsigned rail = 0;
  };
  Result<void> release_grant(std::string_view key, const std::vector<NetworkRail>& where) const;
  // Returns the key of each address in use. The index of the map is "NETWORK/PLACE/ADDRESS", because two networks can
  // have the same address.
  Result<std::map<std::string, std::string>> list() const;

 private:
  AddressPool(std::shared_ptr<const LedgerDirectory> directory, int timeout_ms);
  std::shared_ptr<const LedgerDirectory> directory_;  // DIR/addresses
  int timeout_ms_;
};

// Computes the addresses that a series of AddressPool::take() calls would allocate, without locks and without changes
// on disk.
class AddressForesight {
 public:
  // ledger_directory: empty: there is no ledger, so no address is in use.
  // holds: returns true if the key has a grant that is not stale. It is called only if all addresses of a range are in
  // use.
  AddressForesight(std::string ledger_directory, std::function<bool(const std::string& key)> holds);
  Result<std::vector<RailAddress>> take(const std::string& network, unsigned rail, unsigned nth,
                                        const std::vector<AddressRange>& ranges, std::string_view key);

 private:
  Result<RangeDirectory*> place(const std::string& network, const std::string& name);
  std::string ledger_directory_;
  std::function<bool(const std::string& key)> holds_;
  std::map<std::string, RangeDirectory> places_;  // by "NETWORK/PLACE"
};

}  // namespace hook
