#include "hook/config/mode.hpp"

namespace hook {

std::optional<Mode> parse_mode(std::string_view text) {
  for (const Mode mode : {Mode::kExclusive, Mode::kShared, Mode::kSharedMulti, Mode::kHca}) {
    if (text == to_string(mode)) return mode;
  }
  if (text == "host") return Mode::kHca;
  return std::nullopt;
}

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::kExclusive:
      return "exclusive";
    case Mode::kShared:
      return "shared";
    case Mode::kSharedMulti:
      return "shared-multi";
    case Mode::kHca:
      break;
  }
  return "hca";
}

}  // namespace hook
