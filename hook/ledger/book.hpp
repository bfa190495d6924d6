// Booking HCAs, under their locks.
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

// By the HCA's name what its device is booked as, a file's name, which stays when the HCA is renamed. HCAs of one
// device are held as one. Of a name that is not there: the name.
using HcaDevices = std::map<std::string, std::string>;

// HCAs that are locked as long as this lives.
class LockedHcas {
 public:
  // Who holds the locked HCAs, as make_plan() wants it. Vanished holders are returned on the way, where they matter: an
  // exclusive holder, or a limit that is reached. limits: by HCA, the largest number that matters.
  Result<Holdings> holdings(const Owner& asking, const std::map<std::string, unsigned>& limits) const;
  // Books the HCAs for the owner and adds the user; joins what the owner holds already (of an HCA held twice, the
  // stronger mode and the larger number of units). Marked pending until settle(). Limits are the plan's; refused here
  // is only what must never be: an HCA that is not locked, and an exclusive one that another owner holds.
  Result<void> book(const Owner& owner, std::vector<PlannedHca> hcas, const GrantUser& user);

 private:
  friend class Ledger;
  // One descriptor, because a node may have many HCAs, and the engine's limit of descriptors be low. The directory is
  // opened again where it is read.
  struct Locked {
    std::string name;
    std::string key;  // what it is booked as
    fabric::UniqueFd lock;
  };
  LockedHcas(std::shared_ptr<const LedgerFiles> files, std::vector<Locked> hcas);
  // Notes of each what it is booked as.
  Result<void> check_free(const Owner& owner, std::vector<PlannedHca>& hcas) const;
  std::shared_ptr<const LedgerFiles> files_;
  std::vector<Locked> hcas_;
};

}  // namespace hook
