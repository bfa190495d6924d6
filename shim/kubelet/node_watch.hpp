// When a program reads the node again: after an event of the kernel or of files, and from time to time.
#pragma once

#include <poll.h>

#include <chrono>
#include <vector>

#include "fabric/kept_node.hpp"
#include "shim/kubelet/file_events.hpp"
#include "shim/kubelet/kubelet_node.hpp"
#include "shim/kubelet/wake_up.hpp"

namespace shim {

class NodeWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // Shortest time between two reads after changes of the configuration or of the ledger, which changes often on a busy
  // node.
  static constexpr std::chrono::milliseconds kBetweenFileLooks{5000};
  // is_tree: the node is a file tree, whose changes cause no events of the kernel. node: must outlive this object.
  NodeWatch(KubeletNode& node, fabric::KeptNode& kept, bool is_tree,
            std::chrono::milliseconds between_file_looks = kBetweenFileLooks)
      : node_(node), kept_(kept), is_tree_(is_tree), between_file_looks_(between_file_looks) {}

  // Reads the node if a read is due, and before that the state that changes without an event. Returns the time of the
  // next call.
  Clock::time_point look();
  // Returns true if a valid configuration has been read since the start.
  bool has_config() const { return has_config_; }
  // Waits until the time, or until a descriptor is readable. Reads the pending events of node and `wake`. time: max():
  // no limit. signals: descriptor of the signals that end the program. fds: further descriptors, or -1; receives
  // their `revents`. Returns true after a signal. Errors: poll(2) fails.
  Result<bool> wait_until(Clock::time_point time, int signals, const WakeUp& wake, std::vector<pollfd>& fds);
  // Makes a read due if an event came. Call it after other reads of the KeptNode, which take its events. Returns the
  // time of the next call of look().
  Clock::time_point after_other_reads();

 private:
  void read_node();
  void look_when_settled();
  void look_after_event(std::chrono::milliseconds distance);

  KubeletNode& node_;
  fabric::KeptNode& kept_;
  bool is_tree_;
  std::chrono::milliseconds between_file_looks_;
  FileEvents files_;
  bool has_config_ = false;
  Clock::time_point looked_at_;
  Clock::time_point next_look_;         // time of the next KubeletNode::read()
  Clock::time_point next_silent_look_;  // time of the next KubeletNode::has_silent_change()
};

}  // namespace shim
