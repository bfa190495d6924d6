// Computes which part of a subnet or range (a slice) belongs to a node, if one configuration serves all nodes. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/config/config.hpp"

namespace hook {

// Returns the address plus one.
fabric::Address next_address(fabric::Address address);
// Returns the address with all bits from first_bit on set to 1. first_bit: counted from the left, from 0 of 128.
fabric::Address last_of(fabric::Address address, unsigned first_bit);

// In the functions below, range.per_node must be set. Indexes of slices begin at 0.
//
// Returns the number of slices; UINT64_MAX: this number or more.
std::uint64_t slice_count(const AddressRange& range);
// Returns the index of the slice that contains the address. Returns nullopt if the address is not in the subnet or the
// index has more than 64 bits.
std::optional<std::uint64_t> slice_with(const AddressRange& range, const fabric::Address& address);
// Returns the slice as a range of its own: `from` and `to` are its first and last address, without the network and
// broadcast address of the subnet, and per_node is not set. Errors (ERANGE): the subnet has no slice with this index.
Result<AddressRange> slice_of(const AddressRange& range, std::uint64_t index);

// The next two functions do the same as slice_count() and slice_of() above for a range of MAC addresses or GUIDs. A
// last slice with fewer than per_node values does not count.
std::uint64_t slice_count(const VfRange& range);
Result<VfRange> slice_of(const VfRange& range, std::uint64_t index);

struct NodeListCheck {
  std::vector<std::string> problems;
  std::vector<std::string> warnings;
};

// Checks a list of nodes: one line per node with its name, and with its index if the name does not determine it. Blanks
// separate both; # begins a comment.
//
// Returns problems as "line 7: ...": an invalid line, a node whose index is unknown, an index that differs from the one
// by "node_index", two nodes with one index, or an index for which a subnet or range has no slice. Also reports a range
// of MAC addresses or GUIDs without `per_node`, and warns of names with several numbers of which the last one counts.
NodeListCheck check_nodes(std::string_view list, const Config& config);

}  // namespace hook
