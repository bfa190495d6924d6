// JSON that other programs or people wrote: bounded, without duplicate keys, and with the line of every value, so that
// a message about a configuration can say where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "hook/base/json/json_fwd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// what names the text in messages ("config.json of the bundle"). Errors: too long, too deep, a key twice in one object,
// no JSON; each with the line. Never throws.
Result<Json> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits = {});

// What is wrong with a text, for a caller that words the message itself.
struct JsonFault {
  unsigned line = 0;  // 0: the text as a whole
  std::string message;
};
// As parse_json(); of nullopt `fault` says the reason.
std::optional<Json> try_parse_json(std::string_view text, const JsonLimits& limits, JsonFault& fault);

// What a message quotes of a text that may be hostile and megabytes long: one line, cut where it is long.
std::string shown(std::string_view text, std::size_t longest);
// A part of a JSON pointer (RFC 6901).
std::string escape_pointer(std::string_view name);

// Line (from 1) at which each value of a document begins, by JSON pointer ("/pools/0/modes/1").
using JsonLines = std::map<std::string, unsigned>;
// Empty for text that does not parse.
JsonLines json_lines(std::string_view text);

// Everything up to the end of a descriptor, at most limit bytes (EFBIG beyond) and timeout_ms in all (-1: no limit).
// what names it in messages.
Result<std::string> read_text_fd(int fd, std::size_t limit, int timeout_ms, std::string_view what);
// Reads a file of at most limits.bytes. Errors name the path.
Result<std::string> read_text_file(const std::string& path, const JsonLimits& limits = {});

// Members of a document that this program wrote itself: each is there and of its type, or the document is damaged.
//
// nullptr: no object, or no such member.
const Json* member(const Json& object, const char* name);
// "`NAME` is missing or wrong".
Error wrong_member(const char* name);
Result<std::string> text_at(const Json& object, const char* name);
Result<std::uint64_t> number_at(const Json& object, const char* name, std::uint64_t most);
// "`NAME` is not known": misspelt, it would read as one that is not there.
Error unknown_member(const std::string& name);

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace hook
