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

NcclMarks nccl_marks(std::string_view traffic_class, std::string_view service_level) {
  const auto byte_of = [](std::string_view value) {
    const long number = parse_param(value, kUnset);
    return static_cast<std::uint8_t>(number == kUnset ? 0 : number);
  };
  return {byte_of(traffic_class), byte_of(service_level)};
}

}  // namespace fabric
