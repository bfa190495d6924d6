// The HCAs of the pools: GID tables, ports, rates, MTUs, and the node's own network on them. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/doctor/findings.hpp"

namespace hook {

// active_mtu in bytes of an HCA's port, which no file tells.
using ActiveMtus = std::map<std::pair<std::string, unsigned>, unsigned>;
// What `ibv_devinfo` of rdma-core prints. What is none of that is left out.
ActiveMtus parse_ibv_devinfo(std::string_view text);

// What the kernel makes of a netdev's MTU (include/rdma/ib_addr.h, iboe_get_mtu(), Linux 6.12); 0: too small for RoCE.
unsigned roce_mtu(int netdev_mtu);

// "netns", "pools", "gids", "ports", "rates", "mtu", "routes", "addresses".
std::vector<Check> check_rails(const fabric::Inventory& inventory, const Config& config, const ActiveMtus& active_mtus);

}  // namespace hook
