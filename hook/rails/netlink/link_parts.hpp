// What requests about netdevs have in common. Internal to hook/rails/netlink.
#pragma once

#include <linux/rtnetlink.h>

#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {

// dev_valid_name() (net/core/dev.c), and no '%', which would ask the kernel for a number.
bool is_netdev_name(std::string_view name);
// Errors: it is none (EINVAL).
fabric::Result<void> check_name(const std::string& name);

// For RTM_GETLINK and the like. 0: no netdev in particular.
ifinfomsg link_header(int ifindex);

// For messages about a netdev that the caller knows by its index: "`eth0`", or "netdev 7" when it is gone.
std::string shown_link(Netlink& route, int ifindex);
// Runs change() with a name in its text, "VERB `eth0`", which is looked up only when there is something to say.
fabric::Result<void> change_named(Netlink& route, NetlinkMessage message, int ifindex, std::string_view verb);

}  // namespace hook
