// Which part of a subnet is this node's, when one configuration is for all nodes. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/config/config.hpp"

namespace hook {

// 17 of "gpu-node-17"; nullopt: it ends with no digit, or has more than a number holds.
std::optional<std::uint64_t> trailing_number(std::string_view name);

// The address behind this one.
fabric::Address next_address(fabric::Address address);
// With all bits from first_bit on, of its 128, set.
fabric::Address last_of(fabric::Address address, unsigned first_bit);

// range.per_node is set, here and below; the slices of a subnet count from 0.
//
// How many there are; UINT64_MAX: that many or more.
std::uint64_t slice_count(const AddressRange& range);
// The slice that has this address; nullopt: it is not in the subnet, or the number is too large.
std::optional<std::uint64_t> slice_with(const AddressRange& range, const fabric::Address& address);
// The part of the range that is in this slice: `from` and `to` are its ends, without the subnet's own and its broadcast
// address, and per_node is not set any more. Errors (ERANGE): the subnet has no such slice.
Result<AddressRange> slice_of(const AddressRange& range, std::uint64_t index);

// The same of a range of MAC addresses or GUIDs. A last slice that is not whole is none.
std::uint64_t slice_count(const VfRange& range);
Result<VfRange> slice_of(const VfRange& range, std::uint64_t index);

// A list of nodes, as check-config takes it: a line each of name and index, blanks between, # begins a remark. Without
// an index it is the number at the end of the name.
//
// What is wrong with it for these networks, as "line 7: ...": a line that is none, an index that two nodes have, one
// that a subnet or range has no slice for, and a range of MAC addresses or GUIDs that each node gives all of.
std::vector<std::string> check_nodes(std::string_view list, const std::map<std::string, Network>& networks);

}  // namespace hook
