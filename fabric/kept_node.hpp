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

  // events: if they do not report all changes, each call of read() reads the whole node. now: for tests.
  explicit KeptNode(NodeEvents events, std::function<Clock::time_point()> now = Clock::now)
      : events_(std::move(events)), now_(std::move(now)) {}

  // Returns what read_node() would return. Reads port states and GIDs at each call (refresh_node()). Reads the rest
  // again if an event may have changed it, if events were lost, if an HCA or its uverbs node is no longer the one that
  // was read, or after 10 minutes. Reads a node on which a read failed at each call.
  Inventory read(const NodeReadOptions& options);

  // Returns what survey_node() would return. Reads only the names of the HCAs if no event reported a change since the
  // survey was read.
  Inventory survey(const std::string& root, const HcaFacts& facts, bool gpus);

  // The next functions are for a process that waits for events and then reads.

  // Opens the sockets that are not open. Returns false if a change can remain unreported.
  bool open_events() { return events_.open(); }
  // Returns the descriptors of the sockets, which are readable when there are events.
  std::vector<int> fds() const { return events_.fds(); }
  // Reads the pending events. Returns true if one of them may have changed the result of read(), or if events were
  // lost. The next read() then reads the whole node.
  bool take_events();
  // Returns false if the last read() came so soon after such an event that the kernel may not have finished the change.
  bool is_quiet() const;

 private:
  struct Kept {
    NodeReadOptions options;
    Inventory inventory;
    NetdevsOfInventory netdevs;
    Clock::time_point read_at;
    OpenNode open = {};
  };
  struct Survey {
    std::string root;
    HcaFacts facts;
    Inventory inventory;
    NetdevsOfInventory netdevs;
    Clock::time_point read_at;
  };

  NodeEvents events_;
  std::function<Clock::time_point()> now_;
  std::optional<Clock::time_point> changed_at_;
  Clock::time_point read_at_{};             // the begin of the last read()
  std::optional<NetdevsOfInventory> last_;  // netdevs of the last inventory that was read, also if it was not kept
  std::vector<Kept> kept_;
  std::optional<Survey> survey_;
};

}  // namespace fabric
