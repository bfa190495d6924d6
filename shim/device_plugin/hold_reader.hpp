// Who holds what, as the ledger has it: for the kubelet's own pods nothing changes, what others hold it cannot give.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/ledger/ledger.hpp"
#include "shim/device_plugin/resources.hpp"

namespace shim {

// Pure: what a grant adds. By what its HCAs are booked as. A vanished one adds nothing.
void add_grant(const hook::Grant& grant, bool foreign, HcaHolds& holds);

// Reads the ledger, and again only when it has changed, or when somebody holds HCAs who may end without a word of it:
// not the kubelet's pods, whose grants are returned by their runtime.
class HoldReader {
 public:
  explicit HoldReader(std::string ledger) : ledger_(std::move(ledger)) {}
  // What cannot be read of one grant goes into `unread`, once. No ledger: nobody holds anything. Errors: the ledger's;
  // then what was read last stays.
  fabric::Result<void> read(std::vector<fabric::Error>& unread);
  // By the names that HCAs have now; of one that is away, as in a pod's network namespace, by the name that it had.
  HcaHolds of(const fabric::Inventory& inventory, const std::string& root);

 private:
  bool is_of_kubelet(const hook::Grant& grant);
  std::string ledger_;
  std::vector<std::int64_t> stamp_;  // of the directory of grants
  bool has_foreign_ = false;
  HcaHolds holds_;
  hook::HcaDevices devices_;          // of each HCA that was seen, by its name
  std::set<std::string> known_pods_;  // keys of grants that a pod was seen to have
};

}  // namespace shim
