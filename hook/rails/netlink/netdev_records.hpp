// Records of a live netdev: reading, adding, removing them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/rails/netlink/records.hpp"

namespace hook {

// What is configured on this netdev and can be put elsewhere, both families: permanent addresses without link-local
// ones, routes of all tables that leave by it but not those that the kernel makes by itself (table local, proto
// kernel, cached) nor what routers told it (proto ra, redirect), rules that name it or one of its addresses, permanent
// neighbours. Left out and said in `skipped`, as `ip` would write them: IPv4 addresses that expire (DHCP), routes that
// expire, that go by nexthop objects (RTA_NH_ID) or by several nexthops, and rules that name another netdev as well.
struct NetdevRecords {
  // Addresses (oldest first: the order makes GID indices and IPv6 source addresses), routes (on-link ones first),
  // rules, neighbours: each wants only what is before it. They are as dumped: for_netdev() makes them fit to go back
  // in.
  std::vector<NetRecord> records;
  std::vector<std::string> skipped;
};
// Asks again when a table changes meanwhile. Errors: the netdev is gone (ENODEV), a table that keeps changing (EINTR).
fabric::Result<NetdevRecords> read_records(Netlink& route, int ifindex, std::string_view name);

// Adds each in this order; one that is there already is success. Others' routes are never replaced: a route whose
// destination, metric and table are taken by another one is an error (EEXIST). The netdev has to be up for routes
// (ENETDOWN). Stops at the first error, which names the record as `ip` would write it.
fabric::Result<void> add_records(Netlink& route, const std::vector<NetRecord>& records);
// Removes each, the last one first; one that is not there is success. Goes on after an error and returns the first.
fabric::Result<void> remove_records(Netlink& route, const std::vector<NetRecord>& records);

}  // namespace hook
