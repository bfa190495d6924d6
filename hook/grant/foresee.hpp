// Determines the plan of a container: reads and decides, but books and changes nothing. createRuntime and `rdma-hook
// plan` share this code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/grant/node.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {

struct Call;

struct ForeseeInput {
  const ContainerRequest& requesting;  // the container; it must have a request
  const Owner& owner;
  const NodeSettings& node;
  const Ledger* ledger = nullptr;   // nullptr: all HCAs count as free
  bool variables = false;           // the caller can still set variables and mounts in the container's config.json
  std::string bundle = {};          // bundle of a container that does not exist yet; empty: unknown
  bool has_mounts = false;          // the container's config.json already has the mounts of its grant: plan none
  Call* call = nullptr;             // gets the time of reading, and notes on facts that cannot be read; may be nullptr
  int lock_ms = kHcaLockTimeoutMs;  // longest wait for the locks of HCAs
};

// Adds to the inventory the HCAs that moved into the owner's network namespace. Errors: those of add_own_hcas().
Result<void> add_moved_hcas(const ForeseeInput& input, fabric::Inventory& inventory);

struct ForeseenPlan {
  Plan plan;
  // Locks of all HCAs that the request or the shortlist can match. While this object lives, it is the only one that
  // decides about these HCAs. nullopt: there is no ledger.
  std::optional<LockedHcas> locks = {};
  std::vector<std::string> own = {};  // names of the HCAs that the owner already holds
  // HCAs of the shortlist that the container cannot get. If there are any, nothing was decided, and `plan` is empty.
  std::vector<std::string> unavailable = {};
  bool lost_to_others = false;  // another owner has one of them, or another process keeps a lock
  // The next members are set by find_plan() only. links: for Ledger::note_links(); may be empty.
  fabric::Inventory inventory = {};
  std::string links = {};
};

// Locks the HCAs and decides. inventory: from read_node_for() and add_moved_hcas(). The plan leaves out mounts that the
// container's config.json already has. If the caller can still edit that config.json and config.json mounts nothing at
// /sys, the plan has no mounts. Errors: those of the ledger, make_plan(), uses_host_network() and rdma_controller();
// EAGAIN, another process keeps a lock. shortlist: decides among these HCAs only, for a count of so many HCAs
// (rank.hpp), and locks only these and the HCAs of their PFs and VFs.
Result<ForeseenPlan> foresee(const ForeseeInput& input, const fabric::Inventory& inventory,
                             const std::vector<std::string>* shortlist = nullptr);

// Like foresee(), but decides only among the HCAs of `bound`, a grant that the owner already has: reads no other grant,
// and takes no lock. Returns nullopt if a new booking is needed: these HCAs no longer suffice, or the plan mounts a
// view, and only a booking records the name of a view.
Result<std::optional<Plan>> foresee_bound(const ForeseeInput& input, const fabric::Inventory& inventory,
                                          const Grant& bound, const std::vector<std::string>* shortlist = nullptr);

}  // namespace hook
