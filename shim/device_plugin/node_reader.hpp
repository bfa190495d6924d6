// Reads configuration, ledger and HCAs of the node, and derives the resources that the plugin announces.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/node.hpp"
#include "shim/device_plugin/resources.hpp"
#include "shim/kubelet/held_hcas.hpp"
#include "shim/kubelet/kubelet_node.hpp"

namespace shim {

// Returns the names of the devices of kind rdma-init.io/hca that *.json files in /etc/cdi and /var/run/cdi describe.
// All runtimes read these two directories to resolve CDI devices. root: prefix of both directories. A file that cannot
// be read or parsed is ignored, as runtimes do.
std::set<std::string> described_cdi_devices(const std::string& root);

class NodeReader : public KubeletNode {
 public:
  // The references must outlive this object.
  NodeReader(const hook::NodeSettings& node, const base::Log& log)
      : KubeletNode(node, log, HeldHcaReader::Foreign::kOutsideOfPods) {}

  // If the HCAs cannot be listed, the announced resources stay.
  bool read() override;
  const std::vector<Resource>& resources() const { return resources_; }
  // Returns the time at which the node must be read again even without an event: keep_settling() withholds new problems
  // until then, or HeldHcaReader::read_again_at(). nullopt: no such read is due.
  std::optional<std::chrono::steady_clock::time_point> settles_at() const override;
  // Returns the resource names in the administrator's config.json, each once. Includes resources whose HCAs could not
  // be read yet.
  std::set<std::string> configured_resources() const;
  const hook::DevicePluginOptions& options() const { return config().device_plugin; }

 private:
  void log_changes(const std::vector<Resource>& now) const;
  void note_moved(const HcaHolds& now);
  std::vector<Resource> known_resources(const fabric::Inventory& inventory, const HcaHolds& holds) const;
  fabric::HcaFacts facts() const;

  std::vector<Resource> resources_;
  std::optional<std::map<std::string, unsigned>> held_;  // held units by HCA name; nullopt: not read yet
  Moments moved_at_;
};

}  // namespace shim
