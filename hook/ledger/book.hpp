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

// The device of each HCA, by the HCA's name: the key under which the ledger books it. The key is a file name and stays
// when the HCA is renamed. HCAs of one device are held as one. An HCA without an entry is booked under its name.
using HcaDevices = std::map<std::string, std::string>;

// HCAs that stay locked as long as this object lives.
class LockedHcas {
 public:
  // Returns the grants' share of each locked HCA, for make_plan(). Releases stale grants where they matter: an
  // exclusive owner, or a limit that is reached. limits: for each HCA, the largest number of units that matters;
  // counting stops there. Errors: the grant of `requesting` cannot be locked or read.
  Result<Holdings> holdings(const Owner& requesting, const std::map<std::string, unsigned>& limits) const;
  // Allocates the HCAs to the owner and adds the user, pending until settle(). Joins the HCAs that the owner holds: of
  // an HCA held twice, the stronger mode and the larger number of units count. The plan checks limits. Errors: an HCA
  // that is not locked, an exclusive HCA of another owner, a user with another process (add_steps()), the ledger's.
  Result<void> book(const Owner& owner, std::vector<PlannedHca> hcas, const GrantUser& user);

 private:
  friend class Ledger;
  // Keeps one descriptor for each HCA, because a node may have many HCAs and the engine a low limit of descriptors.
  // Readers open the directory again.
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
