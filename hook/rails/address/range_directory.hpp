// One directory of addresses in use: DIR/addresses/NETWORK/PLACE. Internal to address_pool.hpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "hook/config/address_range.hpp"
#include "hook/ledger/files.hpp"

namespace hook {

struct PoolClaim {
  std::string key;
  unsigned rail = 0;
  unsigned nth = 0;
  friend bool operator==(const PoolClaim&, const PoolClaim&) = default;
};
using PoolClaims = std::map<fabric::Address, PoolClaim>;

fabric::Result<PoolClaims> read_claims(const LedgerDirectory& place);

// "10.1.0.1-10.1.0.9".
std::string to_string(const AddressRange& range);
bool contains(const AddressRange& range, const fabric::Address& address);
// The subnet's first and last address. The range's prefix is that of its family.
std::pair<fabric::Address, fabric::Address> ends_of(const AddressRange& range);

// The directory is locked (flock) as long as this is.
class RangeDirectory {
 public:
  // Errors: the lock is not to be had in that time (EAGAIN), an address in use cannot be read.
  static fabric::Result<RangeDirectory> open(LedgerDirectory directory, int timeout_ms);

  // One that take() does not write to, and that nobody else waits for. Of no directory: nothing is in use. Errors: an
  // address in use cannot be read.
  static fabric::Result<RangeDirectory> look(LedgerDirectory directory);
  // Those of keys that `holds` says no to are free. Of one that is looked at.
  void free_all_but(const std::function<bool(const std::string& key)>& holds);

  // What the claim holds of this range already and is not in `given`, else the next free one that is not in `never`.
  // Errors: all are in use (EADDRNOTAVAIL), with their number and the remedy.
  fabric::Result<fabric::Address> take(const AddressRange& range, const std::set<fabric::Address>& never,
                                       const PoolClaim& claim, const std::set<fabric::Address>& given);
  // Removes what take() added.
  void undo();
  // Removes what this key holds for these rails; nullptr: for all rails. What cannot be removed does not keep the rest.
  fabric::Result<void> remove(std::string_view key, const std::set<unsigned>* rails);

 private:
  RangeDirectory(LedgerDirectory directory, PoolClaims claims, bool writes);
  std::optional<fabric::Address> find_free(const AddressRange& range, const std::set<fabric::Address>& never) const;
  fabric::Error used_up(const AddressRange& range, unsigned rail) const;
  void note_last(const AddressRange& range, const std::string& address) const;

  LedgerDirectory directory_;
  PoolClaims claims_;
  bool writes_ = true;
  std::map<std::string, fabric::Address> looked_last_ = {};  // what note_last() would have written
  std::vector<std::string> added_ = {};
};

}  // namespace hook
