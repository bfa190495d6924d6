// What `ethtool -K` changes, and what stays with a netdev that moves: its features, by ethtool netlink
// (net/ethtool/features.c, Linux 5.8).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {

// A bit for each feature, by the number that the running kernel gives it.
using FeatureBits = std::vector<std::uint32_t>;

struct NetdevFeatures {
  FeatureBits changeable;  // what its driver lets people turn on and off
  FeatureBits wanted;      // what they want on; counts where it is changeable
  FeatureBits active;      // what is on: one may depend on another
  friend bool operator==(const NetdevFeatures&, const NetdevFeatures&) = default;
};

// Of netdevs in the network namespace in which it is used first: that opens its socket.
class Ethtool {
 public:
  // nullopt: the kernel has no such messages.
  fabric::Result<std::optional<NetdevFeatures>> features(int ifindex, const std::string& name);
  // Sets those that are other than here, where they were and are changeable; needs CAP_NET_ADMIN. Errors: also that one
  // of them has no effect, and had one.
  fabric::Result<void> put_back(int ifindex, const std::string& name, const NetdevFeatures& before);

 private:
  fabric::Result<void> open();
  bool is_open_ = false;
  std::optional<Netlink> socket_;  // nullopt: a kernel without
  int family_ = 0;                 // 0: a kernel without
};

}  // namespace hook
