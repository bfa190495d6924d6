// What the plugin announces, read from the node: configuration, ledger, HCAs.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/base/log.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/grant/node.hpp"
#include "hook/ledger/ledger.hpp"
#include "shim/device_plugin/resources.hpp"
#include "shim/result.hpp"

namespace shim {

// Names of the devices of kind rdma-init.io/hca that *.json files in /etc/cdi and /var/run/cdi describe, where every
// runtime looks, by which it knows what a CDI device is. root: stands before both directories. Of a file that cannot be
// read or parsed there are none: the runtimes ignore it as well.
std::set<std::string> described_cdi_devices(const std::string& root);

// Pure: what a grant adds. By what its HCAs are booked as. A vanished one adds nothing.
void add_grant(const hook::Grant& grant, bool foreign, HcaHolds& holds);

// Who holds what, as the ledger has it: for the kubelet's own pods nothing changes, what others hold it cannot give.
// Reads it again only when it has changed, or when somebody holds HCAs who may end without a word of it:
// not the kubelet's pods, whose grants are returned by their runtime.
class HoldReader {
 public:
  explicit HoldReader(std::string ledger) : ledger_(std::move(ledger)) {}
  // What cannot be read of one grant goes into `unread`, once. No ledger: nobody holds anything. Errors: the ledger's;
  // then what was read last stays.
  Result<void> read(std::vector<Error>& unread);
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

class NodeReader {
 public:
  // Both have to outlive it.
  NodeReader(const hook::NodeSettings& node, const hook::Log& log) : node_(node), log_(log), holders_(node.ledger) {}

  // Reads all of it. What cannot be read is said once, and what was read last stays: of a configuration that is wrong
  // the one before, of a node whose HCAs cannot be listed what was announced. False: there has been no configuration
  // yet.
  bool read();
  const std::vector<Resource>& resources() const { return resources_; }
  // When to read it again although nothing changes: what is held back until then may be announced. nullopt: nothing is.
  std::optional<std::chrono::steady_clock::time_point> settles_at() const;
  const hook::DevicePluginOptions& options() const { return config_->device_plugin; }

 private:
  void read_config();
  void say_changes(const std::vector<Resource>& now) const;
  void say_other_kinds(const std::vector<std::string>& others);
  void note_moved(const HcaHolds& now);
  void say_once(const std::string& about, const std::string& what);
  fabric::HcaFacts facts() const;

  const hook::NodeSettings& node_;
  const hook::Log& log_;
  HoldReader holders_;
  std::vector<hook::ConfigText> texts_;
  std::optional<hook::Config> config_;
  std::vector<Resource> resources_;
  std::optional<std::map<std::string, unsigned>> held_;  // how much of each HCA was held; nullopt: not read yet
  Moments moved_at_;
  std::map<std::string, std::string> said_;  // by what it is about
};

}  // namespace shim
