// The HCAs that grants in the ledger hold, for programs that announce HCAs to Kubernetes.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"
#include "shim/kubelet/away_hcas.hpp"

namespace shim {

// The units of an HCA that grants in the ledger hold. A shared HCA has several units.
struct HcaHold {
  hook::Holding foreign;      // units of owners that the kubelet does not know, such as containers of Podman and Docker
  unsigned units = 0;         // units of all owners, pods included
  bool is_exclusive = false;  // an owner, pods included, has it exclusively
  friend bool operator==(const HcaHold&, const HcaHold&) = default;
};
using HcaHolds = std::map<std::string, HcaHold>;

// Returns the entry of the HCA; an empty one if no grant holds it.
HcaHold hold_of(const HcaHolds& holds, const std::string& hca);
// Returns the holdings of containers outside of Kubernetes, in the type of hook::PlanInput.
hook::Holdings foreign_holdings(const HcaHolds& holds);

// Adds the HCAs of a grant to holds, by the name under which each is booked. A stale grant adds nothing, nor does an
// HCA that it uses through a claim: the claim's grant has it. Pure.
void add_grant(const hook::Grant& grant, bool foreign, HcaHolds& holds);

// Reads from the ledger which HCAs are held. For the device plugin, grants of the kubelet's pods do not reduce the
// announced devices, because the kubelet itself counts them. All other grants are foreign and reduce them. The ledger
// is read again only if it has changed, or while foreign grants exist: a foreign owner may end without a change of the
// ledger.
class HeldHcaReader {
 public:
  // Owners whose grants count as foreign.
  enum class Foreign {
    kOutsideOfPods,    // containers that belong to no pod of the kubelet, and claims, which its device manager does not
                       // know
    kOutsideOfClaims,  // all owners but claims
  };
  explicit HeldHcaReader(std::string ledger, Foreign foreign = Foreign::kOutsideOfPods)
      : ledger_(std::move(ledger)), foreign_(foreign) {}
  // Reads the grants. unread: receives the errors of grants that cannot be read. If there is no ledger, no HCA is held.
  // Errors: those of the ledger; the result of the last successful read then stays.
  Result<void> read(std::vector<Error>& unread);
  // Returns true if foreign grants exist, which may end without a change of the ledger.
  bool has_foreign() const { return has_foreign_; }
  // Reads the grants and returns true if the result differs from the last read, or if the ledger cannot be read.
  bool read_again();
  // Returns the time at which the ledger must be read again although no event reports a change: the last read was so
  // soon after a change that the next change may have left the mtime of the directory as it was. nullopt: no such read
  // is due.
  std::optional<std::chrono::steady_clock::time_point> read_again_at() const { return again_at_; }
  // Returns the result of the last read by the current name of each HCA. An HCA that is not visible now, because it is
  // in a pod's network namespace, has the name that it had last, or under which it was booked.
  HcaHolds of(const fabric::Inventory& inventory, const std::string& root);
  // Returns the granted HCAs of the last of() that its inventory does not show, by device.
  const std::map<std::string, BookedHca>& away() const { return away_; }

 private:
  bool is_of_kubelet(const hook::Grant& grant);
  std::string ledger_;
  Foreign foreign_;
  // Inode and mtime of the ledger's directory of grants; empty: read the ledger again.
  std::vector<std::int64_t> stamp_;
  std::optional<std::chrono::steady_clock::time_point> again_at_;
  bool has_foreign_ = false;
  HcaHolds holds_;
  std::map<std::string, BookedHca> booked_;  // granted HCAs of the last read, by device
  std::map<std::string, BookedHca> away_;
  hook::HcaDevices devices_;          // device of each HCA seen so far, by the HCA's name
  std::set<std::string> known_pods_;  // keys of grants that a pod has used
};

}  // namespace shim
