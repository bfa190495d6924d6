// Computes the rails that add_rails() would add, without changes.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/plan/rail.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

struct ForeseenRail {
  // A new rail has the addresses that would be allocated from ranges, or that move with the netdev. The addresses that
  // a CNI plugin would allocate are not known.
  Rail rail;
  std::string network;
  // The source of the addresses: "config.json", the name of a CNI plugin (which is not called), or "netdev" for
  // addresses that move with the netdev. Empty if the rail gets no address.
  std::string addresses_by;
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
  const Ledger* ledger = nullptr;     // nullptr: there is no ledger, so no address is in use
  std::string ledger_directory = {};  // directory of that ledger
  std::string key = {};               // key of the grant
};

// Returns the rails that the grant already has, and the rails that add_rails() would add. Changes nothing. A snapshot
// limits the checks, and each limit adds a warning. Without netdevs in the snapshot no new rail can be planned, and no
// rails are returned. Without routes the default route of a moving netdev is not checked. Addresses of kubelet and sshd
// are not checked with any snapshot.
// Errors: plan_rails() refuses; a range is used up by grants that are in use; the record or the node's network cannot
// be read.
base::Result<Foreseen> foresee_rails(const ForesightInput& input);

}  // namespace hook
