// The members of config.json: which there are, what each may be. Internal to hook/config*.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hook/config/config.hpp"
#include "hook/config/config_reader.hpp"

namespace hook {

// Reads a text over what config holds already: lists are replaced, networks are replaced one by one, members of "nodes"
// too. Problems are noted in the reader.
void read_config_members(ConfigReader& reader, Config& config);
// Members that have a file of their own. vf and ranges are of one network.
void read_pools(ConfigReader& reader, const ConfigValue& value, Config& config);
void read_networks(ConfigReader& reader, const ConfigValue& value, Config& config);
void read_addresses(ConfigReader& reader, const ConfigValue& value, std::vector<AddressRange>& ranges);
void read_vf(ConfigReader& reader, const ConfigValue& value, VfAttributes& vf);

// Values that several members have. nullopt, or nothing changed, with a problem noted, for what is none.
inline constexpr const char* kNameRemedy = "1 to 63 of the characters A-Z a-z 0-9 _ . -";
std::optional<std::string> read_name(ConfigReader& reader, const ConfigValue& value);
std::optional<Mode> read_mode(ConfigReader& reader, const ConfigValue& value);
template <typename Number>
void read_number(ConfigReader& reader, const ConfigValue& value, std::uint64_t lowest, std::uint64_t highest,
                 Number& target) {
  if (const auto number = reader.number(value, lowest, highest)) target = static_cast<unsigned>(*number);
}

// "runtime".
void read_runtime(ConfigReader& reader, const ConfigValue& value, RuntimeOptions& runtime);
// "nri".
void read_nri(ConfigReader& reader, const ConfigValue& value, NriOptions& nri);

}  // namespace hook
