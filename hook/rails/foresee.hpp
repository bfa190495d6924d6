// The rails that give_rails() would give, found out without changing anything.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/plan/rail.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

struct ForeseenRail {
  Rail rail;  // with its addresses, as far as they are known before they are taken; those that come along, too
  std::string network;
  // Who gives the addresses: "config.json", a CNI plugin, which is not asked, or "netdev" where they come along with
  // it. Empty: nobody.
  std::string addresses_by;
};

struct Foreseen {
  std::vector<ForeseenRail> rails;    // those that the grant has already come first
  std::vector<std::string> warnings;  // what could not be checked; rails without an address
};

struct ForesightInput {
  const Plan& plan;
  const Config& config;
  const fabric::Inventory& inventory;
  bool is_snapshot = false;           // the inventory is; else the node's network is read
  const Ledger* ledger = nullptr;     // nullptr: none, so that no address is in use
  std::string ledger_directory = {};  // of that
  std::string key = {};               // of the grant
};

// Errors are what give_rails() would refuse before its first change: those of plan_rails(), and a range that is used up
// by grants that are held. A snapshot without netdevs is not checked: a warning says so, and there are no rails. Nor
// what a snapshot does not tell of netdevs that move: of which services they have the addresses, and without routes
// whether they have the default route.
fabric::Result<Foreseen> foresee_rails(const ForesightInput& input);

}  // namespace hook
