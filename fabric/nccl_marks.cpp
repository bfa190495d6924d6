#include "fabric/nccl_marks.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>

namespace fabric {
namespace {

constexpr long kUnset = -1;

}  // namespace

long parse_param(std::string_view value, long fallback) {
  if (value.empty()) return fallback;
  const std::string text(value);
  errno = 0;
  const long number = std::strtol(text.c_str(), nullptr, 0);
  return errno == ERANGE ? fallback : number;
}

NcclMarks nccl_marks(std::string_view traffic_class, std::string_view service_level, bool minus_one_is_default) {
  const auto byte_of = [&](std::string_view value) {
    const long number = parse_param(value, minus_one_is_default ? kUnset : 0);
    return static_cast<std::uint8_t>(number == kUnset && minus_one_is_default ? 0 : number);
  };
  return {byte_of(traffic_class), byte_of(service_level)};
}

}  // namespace fabric
