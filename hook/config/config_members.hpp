// The members of config.json: which there are, what each may be. Internal to hook/config*.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hook/config/config.hpp"
#include "hook/config/config_reader.hpp"

namespace hook {

// Reads a text over what config holds already: lists are replaced, networks are replaced one by one, members of "nodes"
// too. Problems are noted in the reader.
void read_config_members(ConfigReader& reader, Config& config);
// Members that have a file of their own. ranges are of one network.
void read_pools(ConfigReader& reader, const ConfigValue& value, std::vector<Pool>& pools);
void read_networks(ConfigReader& reader, const ConfigValue& value, std::map<std::string, Network>& networks);
void read_addresses(ConfigReader& reader, const ConfigValue& value, std::vector<AddressRange>& ranges);

// What is wrong with what is_config_name() is not, in pools and networks.
inline constexpr const char* kNoName = "is no name";
inline constexpr const char* kNameRemedy = "1 to 63 of the characters A-Z a-z 0-9 _ . -";

}  // namespace hook
