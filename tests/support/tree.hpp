// An inventory as a file tree below a directory, in the layout of a real sysfs: class entries are links into
// /sys/devices, an HCA's netdevs lie below its PCI function. What rdma-init reads with --root.
//
// A tree cannot say everything: routes, limits and kinds of netdevs have no file; EINVAL of an unreadable attribute is
// a missing file (an empty one for a netdev's carrier); a node that the device cgroup refuses is no node.
#pragma once

#include <string>

#include "fabric/inventory.hpp"

namespace test_support {

struct TreeOptions {
  // Every slot up to gid_tbl_len has a file, as in a kernel; empty ones read as zeros and have no type.
  bool full = false;
};

// Aborts when a file cannot be written.
void lay_out(const fabric::Inventory& inventory, const std::string& directory, const TreeOptions& options = {});

// What is read of a tree below `directory`, with all of it or with what choosing ports needs.
fabric::Inventory read_tree(const std::string& directory, bool full = false);

}  // namespace test_support
