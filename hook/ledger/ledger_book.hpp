// Booking HCAs, under their locks.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/ledger/ledger_owner.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

class LedgerFiles;

// By the HCA's name: where the device is and what its node's number is, in a text. Empty: not known.
using HcaDevices = std::map<std::string, std::string>;

// HCAs that are locked as long as this lives.
class LockedHcas {
 public:
  // Who holds the locked HCAs, as make_plan() wants it. Vanished holders are returned on the way, where they matter: an
  // exclusive holder, or a limit that is reached. limits: by HCA, the largest number that matters. Who holds the device
  // under the name that it had before has it alone, in whatever mode.
  fabric::Result<Holdings> holdings(const Owner& asking, const std::map<std::string, unsigned>& limits) const;
  // Books the HCAs for the owner and adds the user; joins what the owner holds already (of an HCA held twice, the
  // stronger mode and the larger number of units). Marked pending until settle(). Limits are the plan's; refused here
  // is only what must never be: an HCA that is not locked, an exclusive one that another owner holds, and a device that
  // is held under another name.
  fabric::Result<void> book(const Owner& owner, const std::vector<PlannedHca>& hcas, const GrantUser& user);
  // Before book() of a physical function in mode exclusive: Ledger::had_pf_alone() from here on.
  fabric::Result<void> note_pf_alone() const;

 private:
  friend class Ledger;
  // One descriptor, because a node may have many HCAs, and the engine's limit of descriptors be low. The directory is
  // opened again where it is read.
  struct Locked {
    std::string name;
    fabric::UniqueFd lock;
    std::string device;                    // as devices/ names it; empty: not known
    std::optional<std::string> booked_as;  // its name there
  };
  LockedHcas(std::shared_ptr<const LedgerFiles> files, std::vector<Locked> hcas);
  fabric::Result<void> check_free(const Owner& owner, const std::vector<PlannedHca>& hcas) const;
  fabric::Result<void> note_devices(const Owner& owner, const std::vector<PlannedHca>& hcas);
  fabric::Result<void> check_devices(const std::vector<PlannedHca>& hcas) const;
  std::shared_ptr<const LedgerFiles> files_;
  std::vector<Locked> hcas_;
};

}  // namespace hook
