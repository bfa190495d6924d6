// Reads configuration, ledger and HCAs of the node, and derives the resources that the plugin announces.
#pragma once

#include <chrono>
#include <cstdint>
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
#include "hook/grant/hcas.hpp"
#include "hook/grant/node.hpp"
#include "hook/ledger/ledger.hpp"
#include "shim/device_plugin/away_hcas.hpp"
#include "shim/device_plugin/resources.hpp"

namespace shim {

// Returns the names of the devices of kind rdma-init.io/hca that *.json files in /etc/cdi and /var/run/cdi describe.
// All runtimes read these two directories to resolve CDI devices. root: prefix of both directories. A file that cannot
// be read or parsed is ignored, as runtimes do.
std::set<std::string> described_cdi_devices(const std::string& root);

// Adds the HCAs of a grant to holds, by the name under which each is booked. A stale grant adds nothing. Pure.
void add_grant(const hook::Grant& grant, bool foreign, HcaHolds& holds);

// Returns the state of each announced port whose changes cause no event in this network namespace, by the path of the
// state below /sys/class/infiniband. The kernel sends none for InfiniBand ports: ib_dispatch_event_clients() of
// drivers/infiniband/core/device.c (Linux 6.12) calls handlers in the kernel only. The state of a RoCE port follows the
// carrier of its netdev. rtnetlink reports the carrier in the netdev's network namespace, which is another one if the
// port has no netdev here, and may be a container's if the HCA is held exclusively. Pure.
std::map<std::string, base::Attr<std::string>> silent_ports(const fabric::Inventory& inventory,
                                                            const std::vector<Resource>& resources,
                                                            const HcaHolds& holds);

// Reads from the ledger which HCAs are held. Grants of the kubelet's pods do not reduce the announced devices, because
// the kubelet itself counts them. All other grants are foreign and reduce them. The ledger is read again only if it has
// changed, or while foreign grants exist: a foreign owner may end without a change of the ledger.
class HeldHcaReader {
 public:
  explicit HeldHcaReader(std::string ledger) : ledger_(std::move(ledger)) {}
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
