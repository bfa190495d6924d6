// Reads configuration, ledger and HCAs of the node, and derives the resources that the plugin announces.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/node.hpp"
#include "shim/device_plugin/resources.hpp"
#include "shim/kubelet/held_hcas.hpp"

namespace shim {

// Returns the names of the devices of kind rdma-init.io/hca that *.json files in /etc/cdi and /var/run/cdi describe.
// All runtimes read these two directories to resolve CDI devices. root: prefix of both directories. A file that cannot
// be read or parsed is ignored, as runtimes do.
std::set<std::string> described_cdi_devices(const std::string& root);

// Returns the state of each announced port whose changes cause no event in this network namespace, by the path of the
// state below /sys/class/infiniband. The kernel sends none for InfiniBand ports: ib_dispatch_event_clients() of
// drivers/infiniband/core/device.c (Linux 6.12) calls handlers in the kernel only. The state of a RoCE port follows the
// carrier of its netdev. rtnetlink reports the carrier in the netdev's network namespace, which is another one if the
// port has no netdev here, and may be a container's if the HCA is held exclusively. Pure.
std::map<std::string, base::Attr<std::string>> silent_ports(const fabric::Inventory& inventory,
                                                            const std::vector<Resource>& resources,
                                                            const HcaHolds& holds);

class NodeReader {
 public:
  // The references must outlive this object.
  NodeReader(const hook::NodeSettings& node, const base::Log& log) : node_(node), log_(log), held_hcas_(node.ledger) {}

  // Reads the whole node. A part that cannot be read is logged once. If the configuration is invalid, the previous one
  // stays in use. If the HCAs cannot be listed, the announced resources stay. Returns false if no valid configuration
  // has been read since the start.
  bool read();
  const std::vector<Resource>& resources() const { return resources_; }
  // Returns the directories of the configuration and of the ledger, whose changes may change the result of read().
  std::vector<std::string> directories() const;
  // Returns true if the states of silent_ports_ or of foreign grants may change without an event.
  bool has_silent_state() const { return !silent_ports_.empty() || held_hcas_.has_foreign(); }
  // Reads the state of has_silent_state(), and returns true if it has changed since the last read(), so that read() is
  // due.
  bool has_silent_change();
  // Returns the time at which the node must be read again even without an event: keep_settling() withholds new problems
  // until then, or HeldHcaReader::read_again_at(). nullopt: no such read is due.
  std::optional<std::chrono::steady_clock::time_point> settles_at() const;
  // Returns the resource names in the administrator's config.json, each once. Includes resources whose HCAs could not
  // be read yet.
  std::set<std::string> configured_resources() const;
  // Returns the error of the last read() about the configuration or, if the configuration was read, about the HCAs;
  // empty if there is none.
  std::string problem() const;
  // Returns true if the last read() could read all parts.
  bool is_complete() const;
  const hook::DevicePluginOptions& options() const { return config_->device_plugin; }

 private:
  void read_config();
  void log_changes(const std::vector<Resource>& now) const;
  void note_moved(const HcaHolds& now);
  std::vector<Resource> known_resources(const fabric::Inventory& inventory, const HcaHolds& holds) const;
  void log_once(const std::string& about, const std::string& what);
  fabric::HcaFacts facts() const;

  const hook::NodeSettings& node_;
  const base::Log& log_;
  HeldHcaReader held_hcas_;
  std::vector<hook::ConfigText> texts_;
  std::optional<hook::Config> config_;
  std::vector<Resource> resources_;
  std::optional<std::map<std::string, unsigned>> held_;  // held units by HCA name; nullopt: not read yet
  Moments moved_at_;
  std::map<std::string, base::Attr<std::string>> silent_ports_;  // states of silent_ports(), by path
  std::map<std::string, std::string> last_message_;              // last message of log_once(), by subject
};

}  // namespace shim
