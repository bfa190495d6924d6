// Reads members of JSON that the API server sends, of which nothing is trusted. Pure.
#pragma once

#include <initializer_list>
#include <string>

#include "base/json/json.hpp"

namespace shim {

// Returns the member at a path; nullptr: it is missing.
inline const base::Json* find_at(const base::Json& object, std::initializer_list<const char*> path) {
  const base::Json* found = &object;
  for (const char* name : path)
    found = found ? base::member(*found, name) : nullptr;
  return found;
}

// Returns the text at a path; empty: it is missing, or no text.
inline std::string text_of(const base::Json& object, std::initializer_list<const char*> path) {
  const base::Json* const found = find_at(object, path);
  return found && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace shim
