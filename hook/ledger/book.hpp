// Allocates HCAs to owners (in code: books them) under their locks.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

class LedgerFiles;

// Maps the name of each HCA to its device, a file name such as "0000.3b.00.0". The ledger books an HCA under its
// device, which stays the same when the HCA is renamed. HCAs with one device count as one HCA. An HCA that the map does
// not have is booked under its name.
using HcaDevices = std::map<std::string, std::string>;

// HCAs that stay locked as long as this object lives.
class LockedHcas {
 public:
  LockedHcas(LockedHcas&&) = default;
  LockedHcas& operator=(LockedHcas&&) = default;
  ~LockedHcas();
  // Returns for each locked HCA the units that `requesting` and other owners hold, for make_plan(). Releases a stale
  // grant only if it belongs to `requesting`, if it holds the HCA exclusively, or if the units of other owners reach
  // the HCA's bounds. bounds: by the HCA's name; missing: units of other owners are not counted. An HCA of a claim that
  // `requesting` may use (Owner::claims), or uses already, counts as its own. Errors: the grant of `requesting` cannot
  // be locked or read; a claim's cannot be read.
  Result<Holdings> holdings(const Owner& requesting, const std::map<std::string, UnitBounds>& bounds) const;
  // Makes book() fail with ESTALE if the owner's grant then holds other HCAs than these. For a decision that depends on
  // HCAs of the owner that this object has not locked.
  void expect_own(const std::vector<PlannedHca>& hcas);
  // Allocates the HCAs to the owner and adds the user; the change is pending until Ledger::settle(). If the owner
  // already holds an HCA, the stronger mode and the larger number of units count. Does not check limits, which
  // make_plan() has checked. An HCA that counted as the owner's by a claim stays the claim's: the owner uses it through
  // the claim (PlannedHca::claim), at most as many units as the claim has. Errors: an HCA is not locked; the claim has
  // fewer units; expect_own() is not met; such a claim has ended
  // (ESTALE); another owner holds an HCA exclusively; `hcas` has an HCA as exclusive and another owner holds it in any
  // mode; the grant has this user with another process (add_steps()); the ledger cannot be read or written.
  Result<void> book(const Owner& owner, std::vector<PlannedHca> hcas, const GrantUser& user);

 private:
  friend class Ledger;
  // Keeps no descriptor but that of the lock, because a node may have many HCAs, and the engine may start the hook with
  // a low limit of open files. Functions that read the HCA's directory open that directory again.
  struct Locked {
    std::string name;
    std::string key;  // the device, or the name of an HCA without one
    base::UniqueFd lock;
  };
  LockedHcas(std::shared_ptr<const LedgerFiles> files, std::vector<Locked> hcas);
  // Returns the HCAs (Locked::key) that the owner shares from now on, although their links name it: it held them alone.
  // Sets `device` of each HCA. Errors: another owner's grant forbids the mode of an HCA.
  Result<std::set<std::string>> check_free(const Owner& owner, std::vector<PlannedHca>& hcas) const;
  // An HCA of a claim that the requesting owner may use.
  struct Lent {
    std::string claim;  // key of the claim's grant
    unsigned units = 1;
  };
  using LentHcas = std::map<std::string, Lent>;  // by Locked::key
  // Returns the HCAs of the owner's claims. own: the HCAs of its grant.
  Result<LentHcas> find_lent(const Owner& owner, const std::vector<PlannedHca>& own) const;
  std::shared_ptr<const LedgerFiles> files_;
  std::vector<Locked> hcas_;
  // Facts about an HCA that no other owner holds exclusively.
  struct Free {
    bool is_free = false;    // the HCA's link in the index is "none"
    bool is_own = false;     // the HCA's link in the index names the requesting owner
    bool is_unused = false;  // no other owner holds the HCA in any mode
  };
  // The owner of the last holdings(), and the HCAs (Locked::key) that no other owner then held exclusively. Both stay
  // true while the HCA is locked: only a call with its lock adds it to a grant.
  mutable std::string asked_for_;
  mutable std::map<std::string, Free> free_;
  mutable LentHcas lent_;
  std::optional<std::set<std::string>> own_;
};

}  // namespace hook
