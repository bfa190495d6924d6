// The snapshot format, schema 1: an Inventory as JSON, for bug reports and for decisions about another machine.
// docs/rdma-init.md, "Snapshots", documents it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "fabric/inventory.hpp"

namespace fabric {

// Parses a snapshot. Unknown keys are ignored, and a missing key has its default. Input is not trusted:
// kMaxSnapshotDepth limits the nesting, and every list has a limit.
// Errors name the place, such as "devices[2].ports[0].rate: expected a string".
Result<Inventory> parse_snapshot(std::string_view json);

// Reads and parses a file of at most 64 MiB. path: "-" is the standard input.
Result<Inventory> read_snapshot(const std::string& path);

// Returns indented JSON with a final newline. parse_snapshot() of this text returns an equal Inventory, except for
// members that the format does not have (ifindex, kinds of netdevs, whether a table was read to its end).
std::string write_snapshot(const Inventory& inventory);

inline constexpr int kMaxSnapshotDepth = 64;

}  // namespace fabric
