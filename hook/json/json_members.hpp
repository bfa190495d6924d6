// Members of a document that this program wrote itself: each is there and of its type, or the document is damaged.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/result.hpp"
#include "hook/json/json.hpp"

namespace hook {

// nullptr: no object, or no such member.
const Json* member(const Json& object, const char* name);
// "`NAME` is missing or wrong".
fabric::Error wrong_member(const char* name);
fabric::Result<std::string> text_at(const Json& object, const char* name);
fabric::Result<std::uint64_t> number_at(const Json& object, const char* name, std::uint64_t most);
fabric::Result<bool> truth_at(const Json& object, const char* name);

}  // namespace hook
