// What the plugin announces, read from the node: configuration, ledger, HCAs.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/node.hpp"
#include "shim/device_plugin/hold_reader.hpp"
#include "shim/device_plugin/resources.hpp"

namespace shim {

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
