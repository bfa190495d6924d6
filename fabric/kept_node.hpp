// Keeps the inventory of the node between requests, for a process that stays. A request then reads only the facts that
// change without an event of the kernel.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/node_events.hpp"
#include "fabric/read_node.hpp"

namespace fabric {

class KeptNode {
 public:
  using Clock = std::chrono::steady_clock;

  // events: nullopt: each call of read() reads the whole node. now: for tests.
  explicit KeptNode(std::optional<NodeEvents> events, std::function<Clock::time_point()> now = Clock::now)
      : events_(std::move(events)), now_(std::move(now)) {}

  // Returns what read_node() would return. Reads port states and GIDs at each call (refresh_node()). Reads the rest
  // again if an event may have changed it, if events were lost, or if an HCA or its uverbs node is no longer the one
  // that was read. Reads a node on which a read failed at each call.
  Inventory read(const NodeReadOptions& options);

 private:
  struct Kept {
    NodeReadOptions options;
    Inventory inventory;
    NetdevsOfInventory netdevs;
  };

  bool is_changed() const;

  std::optional<NodeEvents> events_;
  std::function<Clock::time_point()> now_;
  std::optional<Clock::time_point> changed_at_;
  std::vector<Kept> kept_;
};

}  // namespace fabric
