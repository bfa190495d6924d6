// The node's network as plan_rails() wants it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"

namespace hook {

// What of the node's network decides whether a netdev may leave it.
struct NodeNetwork {
  std::vector<fabric::Netdev> netdevs;              // of the node's namespace, with their addresses
  std::vector<fabric::Route> routes;                // all tables
  std::map<fabric::Address, std::string> services;  // address to "sshd" or "kubelet", which reaches the node by it
};

// Local addresses that sshd (TCP port 22) and kubelet (10250, and its connection to the API server's 6443) have bound
// or are connected by, of the texts of /proc/net/tcp and tcp6; wildcards and loopback are left out. Pure.
std::map<fabric::Address, std::string> service_addresses(std::string_view tcp, std::string_view tcp6);

// Reads netdevs, addresses and default routes by netlink; all netdevs of default routes over several, /proc/net/tcp and
// tcp6 (the first 4 MiB of each) only when `for_moves`. Errors: netlink or a file that cannot be read.
fabric::Result<NodeNetwork> read_node_network(bool for_moves);

}  // namespace hook
