// The snapshot format, schema 1: an Inventory as JSON, for bug reports and for deciding about another machine.
// docs: docs/rdma-init.md, "Snapshots".
#pragma once

#include <string>
#include <string_view>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"

namespace fabric {

// Unknown keys are ignored, a missing key has its default. Errors name the place ("devices[2].ports[0].rate: expected a
// string") and change nothing. Hostile input is bounded: nesting by kMaxSnapshotDepth.
Result<Inventory> parse_snapshot(std::string_view json);

// Reads a file of at most 64 MiB ("-": standard input) and parses it.
Result<Inventory> read_snapshot(const std::string& path);

// Indented JSON with a final newline. parse_snapshot() of it gives an equal Inventory, apart from what the format has
// no key for (ifindex, kinds of netdevs, how far a table was read).
std::string write_snapshot(const Inventory& inventory);

inline constexpr int kMaxSnapshotDepth = 64;

}  // namespace fabric
