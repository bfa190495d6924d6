// The node as its slices show it: HCAs, their names as devices, and the grants of the ledger.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "shim/dra/names.hpp"
#include "shim/kubelet/kubelet_node.hpp"

namespace shim {

// Returns the facts of attributes, and of the decision whether an HCA can be assigned. GIDs limit the number of child
// netdevs.
fabric::HcaFacts dra_facts(const hook::Config& config);

// Returns the names of the devices of a node, or of a snapshot.
DeviceNames names_on(const fabric::Inventory& inventory, const hook::NodeSettings& settings);

// Reads the node again and again.
class DraNode final : public KubeletNode {
 public:
  DraNode(const hook::NodeSettings& node, const base::Log& log)
      : KubeletNode(node, log, HeldHcaReader::Foreign::kOutsideOfClaims) {}

  bool read() override;
  // Returns the number of reads that changed the next values; 0: none has succeeded.
  std::uint64_t version() const { return version_; }
  const fabric::Inventory& inventory() const { return inventory_; }
  const HcaHolds& holds() const { return holds_; }
  const DeviceNames& names() const { return names_; }
  // Returns the HCAs of grants that are in the network namespace of a container, where their state is unknown.
  const std::set<std::string>& away() const { return away_; }

 private:
  std::uint64_t version_ = 0;
  fabric::Inventory inventory_;
  HcaHolds holds_;
  DeviceNames names_;
  std::set<std::string> away_;
};

}  // namespace shim
