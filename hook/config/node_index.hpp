// Converts the name of a node to the index of its slice, by "node_index" of config.json. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hook/config/config.hpp"

namespace hook {

// Returns whether a text can be a member of "node_index": the name of a node, or a pattern. A pattern has one `#`,
// which stands for a decimal number, or one `%`, which stands for a number in base 36 (0-9, a-z), such as 00000a in the
// names of AKS. At most 253 characters.
bool is_node_pattern(std::string_view text);

// Returns 17 for "gpu-node-17". Returns nullopt if the name does not end with a digit or the number has more than 64
// bits.
std::optional<std::uint64_t> trailing_number(std::string_view name);

// Returns whether the name has digits in more than one place, as "gpu-h100-017" has. Then another node's name can end
// with the same number.
bool has_several_numbers(std::string_view name);
inline constexpr const char* kSeveralNumbersRemedy =
    "if names of two nodes end with the same number, write \"node_index\" as an object of node names";

// Returns the index of the node with this name. by: kName, the number at the end of the name; kNames, the number of the
// entry for this name, or else of the one pattern that matches, plus the number that the pattern stands for.
// Errors, with a remedy that a ConfigMap may follow. kName: the name does not end with a number, or has several numbers
// after its last letter: ip-10-0-3-17 and ip-10-0-4-17 would have one index. kNames: neither an entry nor exactly one
// pattern matches.
Result<std::uint64_t> index_of_name(const NodeIndex& by, std::string_view name);

}  // namespace hook
