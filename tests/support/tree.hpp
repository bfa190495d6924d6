// An inventory as a file tree below a directory, in the layout of a real sysfs: class entries are links into
// /sys/devices, and an HCA's netdevs are below its PCI function. rdma-init reads it with --root.
//
// A tree cannot represent everything. Routes, limits and kinds of netdevs have no file. An unreadable attribute
// (EINVAL) is a missing file, or an empty file for a netdev's carrier. A node that the device cgroup refuses is
// missing.
#pragma once

#include <string>

#include "fabric/inventory.hpp"

namespace test_support {

struct TreeOptions {
  // Every slot up to gid_tbl_len has a file, as in a kernel. Empty slots read as zeros and have no type.
  bool full = false;
};

// Writes the tree. Aborts on error.
void lay_out(const fabric::Inventory& inventory, const std::string& directory, const TreeOptions& options = {});

// Reads the tree below `directory`: all of it, or only the part for the choice of ports.
fabric::Inventory read_tree(const std::string& directory, bool full = false);

}  // namespace test_support
