// What is configured on a rail once its netdev is inside: addresses, its own routing table, the rule that leads there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/plan/rail.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

struct RailConfig {
  std::vector<NetRecord> addresses;
  // In the order in which they can be made. With a table of its own the rail leaves the main table alone: connected
  // route, default route by the gateway, and `from ADDRESS lookup TABLE`.
  std::vector<NetRecord> routes;
};

// Pure. ifindex: inside. carried: what its netdev had on the node, when that moved and has no addresses of config.json:
// put there as it was, and rules for its own table come on top.
RailConfig configure_rail(const Rail& rail, int ifindex, unsigned rule_priority, const std::vector<NetRecord>& carried);

// The address whose GID NCCL is to use: IPv4 before IPv6, never fe80::/10; nullopt: none.
std::optional<fabric::Address> gid_address(const RailConfig& config);

// Of these records the addresses beside those that the kernel gives every netdev.
std::vector<RailAddress> addresses_in(const std::vector<NetRecord>& records);

// rails: without such addresses. Over InfiniBand they need none.
void warn_of_no_address(const std::vector<const Rail*>& rails, const fabric::Inventory& inventory,
                        std::vector<std::string>& warnings);

}  // namespace hook
