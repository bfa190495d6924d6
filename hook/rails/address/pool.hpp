// Addresses from config.json's ranges: one file per address that is in use, so that no two containers of the node get
// the same, however many ask at once.
//
//   DIR/addresses/NETWORK/PLACE/ADDRESS -> KEY@RAIL@NTH   in use by the grant KEY (a symbolic link: made or not, in one
//                                                         call)
//   DIR/addresses/NETWORK/PLACE/last@FROM -> ADDRESS      where the next search of the range from FROM begins: an
//                                                         address rests before it is used again
//
// PLACE is the number of the rail, or "all" for ranges that are of every rail: those share their addresses. Taking and
// giving back hold flock on DIR/addresses/NETWORK/PLACE, so that a look and what follows from it are one step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/address.hpp"
#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/files.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

struct PoolClaim {
  std::string key;
  unsigned rail = 0;
  unsigned nth = 0;
  friend bool operator==(const PoolClaim&, const PoolClaim&) = default;
};
using PoolClaims = std::map<fabric::Address, PoolClaim>;

// One directory of addresses in use: DIR/addresses/NETWORK/PLACE. Internal to pool.cpp. It is locked (flock) as long as
// this is.
class RangeDirectory {
 public:
  // Errors: the lock is not to be had in that time (EAGAIN), an address in use cannot be read.
  static Result<RangeDirectory> open(LedgerDirectory directory, int timeout_ms);

  // One that take() does not write to, and that nobody else waits for. Of no directory: nothing is in use. Errors: an
  // address in use cannot be read.
  static Result<RangeDirectory> look(LedgerDirectory directory);
  // Those of keys that `holds` says no to are free. Of one that is looked at.
  void free_all_but(const std::function<bool(const std::string& key)>& holds);

  // What the claim holds of this range already and is not in `given`, else the next free one that is not in `never`.
  // Errors: all are in use (EADDRNOTAVAIL), with their number and the remedy.
  Result<fabric::Address> take(const AddressRange& range, const std::set<fabric::Address>& never,
                               const PoolClaim& claim, const std::set<fabric::Address>& given);
  // Removes what take() added.
  void undo();
  // Removes what this key holds for these rails; nullptr: for all rails. What cannot be removed does not keep the rest.
  Result<void> remove(std::string_view key, const std::set<unsigned>* rails);

 private:
  RangeDirectory(LedgerDirectory directory, PoolClaims claims, bool writes);
  std::optional<fabric::Address> find_free(const AddressRange& range, const std::set<fabric::Address>& never) const;
  Error used_up(const AddressRange& range, unsigned rail) const;
  void note_last(const AddressRange& range, const std::string& address) const;

  LedgerDirectory directory_;
  PoolClaims claims_;
  bool writes_ = true;
  std::map<std::string, fabric::Address> looked_last_ = {};  // what note_last() would have written
  std::vector<std::string> added_ = {};
};

// Stands for a network's name, and is none: what all networks give of one stock (take_vf_values()).
inline constexpr const char* kStockOfAll = "@vf";

class AddressPool {
 public:
  // directory: the ledger's (0700, root's). Makes what is missing below it. timeout_ms: for the lock of each place.
  static Result<AddressPool> open(const std::string& ledger_directory, int timeout_ms = 10000);

  // For this rail one address of each range that is for it, in their order; what this key holds there already is given
  // again. nth: the children of one rail in shared-multi count from 0. Never given: a range's gateway, the subnet's
  // own address, an IPv4 subnet's broadcast address. Errors, after which the key holds no more than before: a range is
  // used up, with the figure and the remedy (`rdma-hook recover`); a malformed range, or one that a rail shares with a
  // range of every rail. A process killed in between leaves addresses that the key holds, no more.
  Result<std::vector<RailAddress>> take(const std::string& network, unsigned rail, unsigned nth,
                                        const std::vector<AddressRange>& ranges, std::string_view key) const;
  // Gives back what this key holds for the rails of `where` (what take() was called with); empty: everything, in all
  // networks. Success when it holds nothing; an error, the first, names what it still holds. Costs in proportion to the
  // addresses in use of these rails.
  struct NetworkRail {
    std::string network;
    unsigned rail = 0;
  };
  Result<void> give_back(std::string_view key, const std::vector<NetworkRail>& where) const;
  // Who holds what: "NETWORK/PLACE/ADDRESS" -> key. Two networks may have the same address.
  Result<std::map<std::string, std::string>> list() const;

 private:
  AddressPool(std::shared_ptr<const LedgerDirectory> directory, int timeout_ms);
  std::shared_ptr<const LedgerDirectory> directory_;  // DIR/addresses
  int timeout_ms_;
};

// What AddressPool::take() would answer, call after call, while nothing is locked, made or taken.
class AddressForesight {
 public:
  // ledger_directory: empty: no address is in use. holds: whether a grant does; asked when a range is used up.
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
