// Computes the rails that add_rails() would add, without changes.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/plan/rail.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

struct ForeseenRail {
  // A rail that the grant already has has its addresses, and a netdev that would move has those that move with it.
  Rail rail;
  // The ranges of a new rail, which would get one address of each. Whether all addresses of a range are in use is not
  // checked.
  std::vector<AddressRange> ranges = {};
  std::string network;
  // The source of the addresses: "config.json", the name of a CNI plugin (which is not called), or "netdev" for
  // addresses that move with the netdev. Empty if the rail gets no address.
  std::string addresses_by = {};
};

struct Foreseen {
  std::vector<ForeseenRail> rails;    // the rails that the grant already has, then the new ones
  std::vector<std::string> warnings;  // checks that were not possible, and rails without an address
};

struct ForesightInput {
  const Plan& plan;
  const Config& config;
  const fabric::Inventory& inventory;
  bool is_snapshot = false;           // false: the node's netdevs and routes are read from the kernel
  std::string ledger_directory = {};  // empty: there is no ledger
  std::string key = {};               // key of the grant
};

// Returns the rails that the grant already has, and the rails that add_rails() would add. Changes nothing. A snapshot
// limits the checks, and each limit adds a warning. Without netdevs in the snapshot no new rail can be planned, and no
// rails are returned. Without routes the default route of a moving netdev is not checked. Addresses of kubelet and sshd
// are not checked with any snapshot.
// Errors: those of plan_rails(), ranges_of() and node_ranges(); the record or the node's network cannot be read.
base::Result<Foreseen> foresee_rails(const ForesightInput& input);

}  // namespace hook
