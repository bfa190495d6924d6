// The node as programs that announce HCAs to Kubernetes read it: configuration, ledger and HCAs, again and again.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/node.hpp"
#include "shim/kubelet/held_hcas.hpp"

namespace shim {

// Returns the state of each port of these HCAs whose changes cause no event in this network namespace, by the path of
// the state below /sys/class/infiniband. The kernel sends none for InfiniBand ports: ib_dispatch_event_clients() of
// drivers/infiniband/core/device.c (Linux 6.12) calls handlers in the kernel only. The state of a RoCE port follows the
// carrier of its netdev. rtnetlink reports the carrier in the netdev's network namespace, which is another one if the
// port has no netdev here, and may be a container's if the HCA is held exclusively. Pure.
std::map<std::string, base::Attr<std::string>> silent_ports(const fabric::Inventory& inventory,
                                                            const std::vector<std::string>& hcas,
                                                            const HcaHolds& holds);

class KubeletNode {
 public:
  // The references must outlive this object.
  KubeletNode(const hook::NodeSettings& node, const base::Log& log, HeldHcaReader::Foreign foreign)
      : node_(node), log_(log), held_hcas_(node.ledger, foreign) {}
  KubeletNode(const KubeletNode&) = delete;
  KubeletNode& operator=(const KubeletNode&) = delete;
  virtual ~KubeletNode() = default;

  // Reads the whole node. A part that cannot be read is logged once. If the configuration is invalid, the previous one
  // stays in use. If the HCAs cannot be listed, the last result stays. Returns false if no valid configuration has been
  // read since the start.
  virtual bool read() = 0;
  // Returns the directories of the configuration and of the ledger, whose changes may change the result of read().
  std::vector<std::string> directories() const;
  // Returns true if the states of silent ports or of foreign grants may change without an event.
  bool has_silent_state() const { return !silent_ports_.empty() || held_hcas_.has_foreign(); }
  // Reads the state of has_silent_state(), and returns true if it has changed since the last read(), so that read() is
  // due.
  bool has_silent_change();
  // Returns the time at which the node must be read again even without an event. nullopt: no such read is due.
  virtual std::optional<std::chrono::steady_clock::time_point> settles_at() const { return held_hcas_.read_again_at(); }
  // Returns the error of the last read() about the configuration or, if the configuration was read, about the HCAs;
  // empty if there is none.
  std::string problem() const;
  // Returns true if the last read() could read all parts.
  bool is_complete() const;
  // Returns the pause between two reads of a state that changes without an event.
  std::chrono::seconds poll_time() const {
    return std::chrono::seconds(config_ ? config_->device_plugin.poll_seconds : 1);
  }
  // Call after a successful read().
  const hook::Config& config() const { return *config_; }

 protected:
  enum class ConfigRead { kNone, kSame, kNew };
  // kNone: no valid configuration has been read since the start.
  ConfigRead read_config();
  struct Read {
    fabric::Inventory inventory;
    HcaHolds holds;
  };
  // Reads ledger and HCAs. nullopt: the HCAs cannot be listed.
  std::optional<Read> read_node(const fabric::HcaFacts& facts);
  // Logs a message about a subject, unless it is the subject's last one. An empty message means that the subject has no
  // failure now: if the same failure comes back, it is logged again. is_failure: whether the message counts for
  // is_complete().
  void log_once(const std::string& about, const std::string& message, bool is_failure = true);
  void set_silent_ports(std::map<std::string, base::Attr<std::string>> states) { silent_ports_ = std::move(states); }
  const HeldHcaReader& held_hcas() const { return held_hcas_; }

  const hook::NodeSettings& node_;
  const base::Log& log_;

 private:
  struct Message {
    std::string text;
    bool is_failure = true;
  };
  HeldHcaReader held_hcas_;
  std::vector<hook::ConfigText> texts_;
  std::optional<hook::Config> config_;
  std::map<std::string, base::Attr<std::string>> silent_ports_;  // states of silent_ports(), by path
  std::map<std::string, Message> last_message_;                  // last message of log_once(), by subject
};

}  // namespace shim
