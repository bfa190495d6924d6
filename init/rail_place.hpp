// Rail and plane of the HCAs, which the node states in fabric::kRailsName. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace init {

struct RailPlace {
  unsigned rail = 0;
  std::optional<unsigned> plane;  // nullopt: the rail has no planes
  friend bool operator==(const RailPlace&, const RailPlace&) = default;
};

using Rails = std::map<std::string, RailPlace, std::less<>>;  // rail and plane by HCA

// Parses "mlx5_4=0,mlx5_9=1.0". An image can set the variable too, so a text that the node cannot have written is
// refused as a whole: nullopt.
std::optional<Rails> parse_rails(std::string_view text);

// Returns ":RAIL" or ":RAIL:PLANE", for NCCL_IB_HCA.
std::string nccl_suffix(const RailPlace& place);
// Returns "rail 1" or "rail 1, plane 0".
std::string to_string(const RailPlace& place);

}  // namespace init
