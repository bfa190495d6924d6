// "rails" of config.json for tests.
#pragma once

#include <string>
#include <vector>

#include "hook/config/read_config.hpp"

namespace test_support {

// Parses the value of "rails", a JSON list.
inline std::vector<hook::RailEntry> rails_of(const std::string& list) {
  return hook::parse_config({{"c.json", "{\"rails\": " + list + "}"}}).config.rails;
}

}  // namespace test_support
