// Is the address free, does the gateway answer: before the container starts, for all its rails at once.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/rails/netlink/open_netns.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

// A rail whose netdev is up inside.
struct PlacedRail {
  const RailRecord* record = nullptr;
  const Network* network = nullptr;
  int ifindex = 0;  // inside
};

// Before the addresses are added. Errors: another host has one of them, and the network's duplicate_test is "fail".
fabric::Result<void> test_duplicates(NetworkNamespace& inside, const std::vector<PlacedRail>& rails,
                                     std::vector<std::string>& warnings);
// After addresses and routes are there. Errors: a gateway is silent, and gateway_test is "fail".
fabric::Result<void> test_gateways(NetworkNamespace& inside, const std::vector<PlacedRail>& rails,
                                   std::vector<std::string>& warnings);

}  // namespace hook
