// Allocates addresses from the ranges of config.json. Each address in use has a file, so that no two containers of the
// node get the same address, even at the same time.
//
//   DIR/addresses/NETWORK/PLACE/ADDRESS -> KEY@RAIL@NTH   in use by the grant KEY (symlink(2) is atomic)
//   DIR/addresses/NETWORK/PLACE/last@FROM -> ADDRESS      last allocation in the range that begins at FROM; the next
//                                                         search begins after it, so that a released address is not
//                                                         used again at once
//
// PLACE is the number of the rail, or "all" for ranges without a rail, from which all rails allocate. take() and
// release_grant() lock the directory PLACE, so that no other process changes it between reading and changing it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fabric/address.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/files.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// Used in place of a network's name for the MAC addresses and GUIDs of VFs. All networks allocate these values from one
// set, so that no two VFs get the same value (take_vf_values()). A network cannot have this name.
inline constexpr const char* kVfValues = "@vf";

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
  // where: releases only the addresses of these rails; empty: those of all rails of all networks.
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

// Returns the ranges from which take() allocates for this rail. Errors: those of take(), except that a range is used
// up.
Result<std::vector<const AddressRange*>> ranges_of(unsigned rail, const std::vector<AddressRange>& ranges);
// Returns a range as text: "10.1.0.1-10.1.0.9".
std::string to_string(const AddressRange& range);

}  // namespace hook
