#include "hook/config/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/text.hpp"

namespace hook {
namespace {

// Parses bytes such as "02:00:..." with two hexadecimal digits each. Returns nullopt if there are not `size` bytes.
template <std::size_t size>
std::optional<std::array<std::uint8_t, size>> parse_bytes(std::string_view text) {
  constexpr std::size_t kDigitsPerByte = 2;
  const auto parts = base::split(text, ':');
  if (parts.size() != size) return std::nullopt;
  std::array<std::uint8_t, size> bytes{};
  for (std::size_t i = 0; i < size; ++i) {
    const auto byte = base::parse_number<std::uint8_t>(parts[i], 16);
    if (!byte || parts[i].size() != kDigitsPerByte) return std::nullopt;
    bytes[i] = *byte;
  }
  return bytes;
}

// Returns the number that the bytes form in big-endian order.
template <std::size_t size>
std::uint64_t number_of(const std::array<std::uint8_t, size>& bytes) {
  std::uint64_t number = 0;
  for (const std::uint8_t byte : bytes)
    number = number << 8 | byte;
  return number;
}

template <std::size_t size>
std::array<std::uint8_t, size> bytes_of_number(std::uint64_t number) {
  std::array<std::uint8_t, size> bytes{};
  for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte, number >>= 8)
    *byte = static_cast<std::uint8_t>(number);
  return bytes;
}

}  // namespace

Mode default_mode(const Pool& pool, const Network* network) {
  return network && network->mode ? *network->mode : pool.modes.front();
}

bool has_entry(const std::vector<RailEntry>& rails, fabric::Selector::Kind kind) {
  return std::ranges::any_of(rails, [&](const RailEntry& entry) { return entry.selector.kind == kind; });
}

bool is_of_names(const std::vector<RailEntry>& rails) {
  return std::ranges::all_of(rails, [](const RailEntry& entry) {
    const bool is_glob = entry.selector.pattern.find('*') != std::string::npos;
    return entry.selector.kind == fabric::Selector::Kind::kName && !is_glob && !entry.plane;
  });
}

bool has_planes(const std::vector<RailEntry>& rails) {
  return std::ranges::any_of(rails, [](const RailEntry& entry) { return entry.plane.has_value(); });
}

bool limits_rdma(const Config& config) {
  return std::ranges::any_of(config.pools, [](const Pool& pool) { return is_limited(pool.rdma_limits); });
}

// A mode with a limit of 1 does not count: only one owner at a time can use the HCA.
bool is_shared(const Pool& pool) {
  return std::ranges::any_of(pool.modes, [&](Mode mode) {
    const auto limit = pool.limits.find(mode);
    return mode != Mode::kExclusive && (limit == pool.limits.end() || limit->second > 1);
  });
}

// An attribute with a range gets 0 here, so that the caller sees that the attribute will be set.
VfAttributes set_attributes(const Network& network) {
  VfAttributes attributes = network.vf;
  if (network.vf_macs) attributes.mac = MacAddress{};
  if (network.vf_guids) attributes.node_guid = attributes.port_guid = 0;
  return attributes;
}

bool runs_ipam_plugins(const Config& config) {
  return std::ranges::any_of(config.networks, [](const auto& entry) { return entry.second.ipam.has_value(); });
}

std::string to_string(const ConfigProblem& problem) {
  return fmt::format("{}:{} {}: {}; remedy: {}", base::printable(problem.file),
                     problem.line == 0 ? "" : fmt::format("{}:", problem.line), problem.is_error ? "error" : "warning",
                     problem.message, problem.remedy);
}

ConfigPaths config_paths_below(const std::string& root) {
  // These are the default paths and not those of --config, so a missing file is no error.
  return {root + kConfigPath, root + kConfigDropIns, false, root + kClusterConfigPath};
}

std::optional<MacAddress> parse_mac(std::string_view text) {
  return parse_bytes<std::tuple_size_v<MacAddress>>(text);
}

std::string to_string(const MacAddress& mac) {
  return fmt::format("{:02x}", fmt::join(mac, ":"));
}

std::optional<std::uint64_t> parse_guid(std::string_view text) {
  const auto bytes = parse_bytes<sizeof(std::uint64_t)>(text);
  return bytes ? std::optional(number_of(*bytes)) : std::nullopt;
}

std::string to_string(VfRange::Kind kind, std::uint64_t value) {
  if (kind == VfRange::Kind::kMac) return to_string(to_mac(value));
  return fmt::format("{:02x}", fmt::join(bytes_of_number<sizeof value>(value), ":"));
}

std::string to_string(const VfRange& range) {
  return fmt::format("{}-{}", to_string(range.kind, range.from), to_string(range.kind, range.to));
}

std::uint64_t to_number(const MacAddress& mac) {
  return number_of(mac);
}

// Returns the low 48 bits as a MAC address.
MacAddress to_mac(std::uint64_t value) {
  return bytes_of_number<std::tuple_size_v<MacAddress>>(value);
}

}  // namespace hook
