// Computes the rails that add_rails() would add, without changes.
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
  Rail rail;  // with the addresses that are known before allocation, including those that move with the netdev
  std::string network;
  // Source of the addresses: "config.json", the name of a CNI plugin (which is not called), or "netdev" if they move
  // with it. Empty: the rail gets no address.
  std::string addresses_by;
};

struct Foreseen {
  std::vector<ForeseenRail> rails;    // rails that the grant already has come first
  std::vector<std::string> warnings;  // checks that were not possible; rails without an address
};

struct ForesightInput {
  const Plan& plan;
  const Config& config;
  const fabric::Inventory& inventory;
  bool is_snapshot = false;           // inventory is a snapshot; false: the node's network is read
  const Ledger* ledger = nullptr;     // nullptr: no ledger, so that no address is in use
  std::string ledger_directory = {};  // directory of that ledger
  std::string key = {};               // key of the grant
};

// Returns the rails that add_rails() would add, without changes. A snapshot limits the checks, with a warning: without
// netdevs there are no rails; without routes the default route of a moving netdev is not checked; addresses of kubelet
// and sshd are never checked.
// Errors are those of add_rails() before its first change: plan_rails() refuses, or grants that are held use up a
// range.
fabric::Result<Foreseen> foresee_rails(const ForesightInput& input);

}  // namespace hook
