// Allocates HCAs to owners (in code: books them) under their locks.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

class LedgerFiles;

// Maps the name of each HCA to its device, under which the ledger books the HCA. The device is a file name, and stays
// when the HCA is renamed. HCAs of one device are held as one. An HCA without an entry is booked under its name.
using HcaDevices = std::map<std::string, std::string>;

// HCAs that stay locked as long as this object lives.
class LockedHcas {
 public:
  // Returns the share that grants have in each locked HCA, for make_plan(). Releases a stale grant only if it belongs
  // to `requesting`, if it holds the HCA exclusively, or if a limit is reached. limits: for each HCA, the largest
  // number of units that matters; counting stops there. Errors: the grant of `requesting` cannot be locked or read.
  Result<Holdings> holdings(const Owner& requesting, const std::map<std::string, unsigned>& limits) const;
  // Allocates the HCAs to the owner and adds the user, pending until settle(). If the owner already holds an HCA, the
  // stronger mode and the larger number of units count. The plan checks limits. Errors: an HCA that is not locked; an
  // HCA that another owner holds exclusively; an HCA that `hcas` has exclusively and another owner holds in any mode; a
  // user with another process (add_steps()); the ledger cannot be read or written.
  Result<void> book(const Owner& owner, std::vector<PlannedHca> hcas, const GrantUser& user);

 private:
  friend class Ledger;
  // Keeps no descriptor beside the lock, because a node may have many HCAs and the engine a low limit of descriptors.
  // Functions that read the HCA's directory open that directory again.
  struct Locked {
    std::string name;
    std::string key;  // the device, or the name of an HCA without one
    fabric::UniqueFd lock;
  };
  LockedHcas(std::shared_ptr<const LedgerFiles> files, std::vector<Locked> hcas);
  // Returns an error if another owner's grant forbids the mode of an HCA. Sets `device` of each HCA.
  Result<void> check_free(const Owner& owner, std::vector<PlannedHca>& hcas) const;
  std::shared_ptr<const LedgerFiles> files_;
  std::vector<Locked> hcas_;
};

}  // namespace hook
