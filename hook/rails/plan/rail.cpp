#include "hook/rails/plan/rail.hpp"

namespace hook {

std::string_view to_string(RailKind kind) {
  switch (kind) {
    case RailKind::kMove:
      return "move";
    case RailKind::kMacvlan:
      return "macvlan";
    case RailKind::kIpvlan:
      return "ipvlan";
    case RailKind::kIpoib:
      break;
  }
  return "ipoib";
}

std::optional<RailKind> parse_rail_kind(std::string_view text) {
  for (const RailKind kind : {RailKind::kMove, RailKind::kMacvlan, RailKind::kIpvlan, RailKind::kIpoib}) {
    if (text == to_string(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace hook
