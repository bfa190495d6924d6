#include "init/rail_place.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"

namespace init {
namespace {

constexpr std::size_t kMostRails = 4096;     // above the number of HCAs of any node
constexpr unsigned kHighestNumber = 9999;    // NCCL 2.30.7 stores a plane in 14 bits
constexpr std::size_t kLongestHcaName = 63;  // IB_DEVICE_NAME_MAX without the zero byte

std::optional<unsigned> number_of(std::string_view text) {
  const auto number = base::parse_number<unsigned>(text);
  return number && *number <= kHighestNumber ? number : std::nullopt;
}

bool is_hca_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestHcaName &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~' && c != ':' && c != '^'; });
}

}  // namespace

std::optional<Rails> parse_rails(std::string_view text) {
  Rails rails;
  for (const std::string_view entry : base::split(text, ',')) {
    if (rails.size() == kMostRails) return std::nullopt;
    const auto [name, place] = base::split_first(entry, '=');
    const std::size_t point = place.find('.');
    const auto rail = number_of(place.substr(0, point));
    const auto plane = point == std::string_view::npos ? std::nullopt : number_of(place.substr(point + 1));
    const bool is_whole = rail && (plane || point == std::string_view::npos);
    if (!is_hca_name(name) || !is_whole || !rails.emplace(name, RailPlace{*rail, plane}).second) return std::nullopt;
  }
  return rails;
}

std::string nccl_suffix(const RailPlace& place) {
  return fmt::format(":{}{}", place.rail, place.plane ? fmt::format(":{}", *place.plane) : "");
}

std::string to_string(const RailPlace& place) {
  return fmt::format("rail {}{}", place.rail, place.plane ? fmt::format(", plane {}", *place.plane) : "");
}

}  // namespace init
