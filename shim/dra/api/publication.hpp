// Compares the slices that the API server has with the wanted ones. Pure.
//
// Only the slices of the pool's highest generation count, and the scheduler does not use a pool with fewer of them than
// `resourceSliceCount`. So a change of one slice keeps the generation and is one PUT, and any other change gives all
// slices a new generation. Deletions come first and new slices last: two slices with a device of one name would make
// the pool invalid.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.hpp"
#include "base/result.hpp"

namespace shim {

// Limits of an answer with slices. An HCA has some 60 values. Each value takes up to 200 bytes of memory, and slices
// are copied.
inline constexpr base::JsonLimits kSliceLimits{
    .bytes = std::size_t{4} << 20, .depth = 64, .values = std::size_t{1} << 17};

// The answer to a LIST of ResourceSlices.
struct ListedSlices {
  std::vector<base::Json> slices;  // objects with metadata.name, metadata.resourceVersion and spec
  std::string resource_version;    // version of the list, from which a watch continues
};
// Parses the JSON text of a ResourceSliceList. Errors: it is none; a slice lacks a member; it has more than 4,096
// slices.
Result<ListedSlices> parse_slice_list(std::string_view text);

struct SliceChange {
  enum class Kind { kDelete, kUpdate, kCreate };
  Kind kind = Kind::kCreate;
  std::string name;
  base::Json body = {};  // body of the request; a DELETE has preconditions, so that it deletes no newer slice
};

// Returns the requests, in this order, after which the API server has the wanted slices; empty: it has them. wanted:
// resource_slices(), of which the generation does not count. listed: all slices of this driver and node; those that are
// not wanted are deleted. A taint that stays keeps the time at which the API server added it.
std::vector<SliceChange> slice_changes(const std::vector<base::Json>& wanted, const std::vector<base::Json>& listed);

// Returns the JSON pointer of the first member of `sent` that the API server has not kept; nullopt: it has kept all. An
// API server drops fields of a feature that is off without an error, and a driver that does not notice would write the
// slice again and again.
std::optional<std::string> dropped_member(const base::Json& sent, const base::Json& answer);

}  // namespace shim
