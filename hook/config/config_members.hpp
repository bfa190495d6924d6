// The members of config.json: which there are, what each may be. Internal to hook/config*.cpp.
#pragma once

#include "hook/config/config.hpp"
#include "hook/config/config_reader.hpp"

namespace hook {

// Reads a text over what config holds already: lists are replaced, networks are replaced one by one, members of "nodes"
// too. Problems are noted in the reader.
void read_config_members(ConfigReader& reader, Config& config);
// "pools" and "networks", which have a file of their own.
void read_pools(ConfigReader& reader, const ConfigValue& value, Config& config);
void read_networks(ConfigReader& reader, const ConfigValue& value, Config& config);

}  // namespace hook
