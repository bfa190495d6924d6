// Detects by rtnetlink, RDMA netlink and uevents whether a node may have changed since it was read.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "fabric/inventory.hpp"
#include "fabric/read_network.hpp"

namespace fabric {

// The netdevs on which an inventory depends. On a node with pods, most events are about other
// netdevs.
struct NetdevsOfInventory {
  bool all = false;  // true: each event matters, because the index of a netdev is unknown
  std::set<unsigned> indexes;
  std::set<std::string, std::less<>> names;
};

// addresses: the inventory depends on addresses. Events about these name a netdev by its index only.
NetdevsOfInventory netdevs_of(const Inventory& inventory, bool addresses);

// Returns true if a message of rtnetlink is about one of these netdevs, its master, or a netdev on top of it. A message
// that cannot be parsed is about one of them. Source: include/uapi/linux/rtnetlink.h, if_link.h, Linux 6.12.
bool is_about(netlink::Bytes messages, const NetdevsOfInventory& netdevs);

// Returns true if a uevent can change an inventory: HCAs and their nodes, /dev/infiniband/rdma_cm, PCI functions and
// their drivers, and netdevs of hardware. rtnetlink reports other netdevs, but only by their new name if they are
// renamed. A uevent is "add@/devices/..." followed by NAME=value texts, each with a final zero.
bool is_of_inventory(std::string_view uevent);

// The sockets on which the kernel reports changes of HCAs, netdevs and addresses.
class NodeEvents {
 public:
  NodeEvents() = default;
  // Takes three sockets from which messages are read as from those of open(), for tests.
  NodeEvents(UniqueFd links, UniqueFd rdma, UniqueFd uevents)
      : links_(std::move(links)), rdma_(std::move(rdma)), uevents_(std::move(uevents)) {}

  // Opens each socket that is not open, if the kernel offers it. Returns receives_all().
  bool open();
  // Returns true if the kernel reports every change: the sockets for rtnetlink and uevents are open. The socket for
  // RDMA netlink only adds to them: a kernel without RDMA modules refuses it, Linux before 6.12 sends it no events, and
  // the same changes send uevents.
  bool receives_all() const { return links_.ok() && uevents_.ok(); }
  // Returns the descriptors of the open sockets, which are readable when there are events.
  std::vector<int> fds() const;
  // Reads all pending events. Returns true if one of them may change an inventory with these netdevs, if events were
  // lost, or if a socket failed. Closes a socket that failed. Makes one system call if no event is pending.
  bool take(const NetdevsOfInventory& netdevs);

 private:
  UniqueFd links_;
  UniqueFd rdma_;
  UniqueFd uevents_;
};

}  // namespace fabric
