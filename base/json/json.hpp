// Parses JSON that other programs or people wrote: within bounds, without duplicate keys, and with the line of each
// value, so that a message about a configuration can name the line.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"

// The large functions of Json. json.cpp, which is compiled for speed, has their code. `template class` would compile
// the binary formats and patches of nlohmann/json too. clang++ wants the type by its full name.
#define RDMA_INIT_JSON nlohmann::basic_json<nlohmann::ordered_map>
#define RDMA_INIT_JSON_FUNCTIONS(prefix)                                                                              \
  prefix template RDMA_INIT_JSON::basic_json(const RDMA_INIT_JSON&);                                                  \
  prefix template RDMA_INIT_JSON::basic_json(std::initializer_list<nlohmann::detail::json_ref<RDMA_INIT_JSON>>, bool, \
                                             value_t);                                                                \
  prefix template void RDMA_INIT_JSON::json_value::destroy(value_t);                                                  \
  prefix template RDMA_INIT_JSON& RDMA_INIT_JSON::operator[](std::string);                                            \
  prefix template const RDMA_INIT_JSON& RDMA_INIT_JSON::operator[](const std::string&) const;                         \
  prefix template void RDMA_INIT_JSON::push_back(RDMA_INIT_JSON&&);                                                   \
  prefix template std::string RDMA_INIT_JSON::dump(int, char, bool, error_handler_t) const;
RDMA_INIT_JSON_FUNCTIONS(extern)

namespace base {

// Parses a text. what: the text's name in messages ("config.json of the bundle"). Errors: the text is too long, too
// deep, has too many values or a duplicate key, or is not JSON. Each error except "too long" names the line. Never
// throws.
Result<Json> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits = {});

// The first fault of a text, for a caller that composes the message itself.
struct JsonFault {
  unsigned line = 0;    // 0: the fault concerns the text as a whole
  unsigned column = 0;  // in bytes, from 1; only syntax errors have one, otherwise 0
  std::string message;
};
// Parses a text as parse_json() does, but returns nullopt and sets `fault` in place of an error.
std::optional<Json> try_parse_json(std::string_view text, const JsonLimits& limits, JsonFault& fault);

// Returns the text of a document, as Json::dump() does, in less time. Replaces a part of a text that is no UTF-8.
std::string to_text(const Json& json);

// Returns the quotation of a text that may be hostile and megabytes long: one line, cut to `longest` bytes and "...".
std::string shown(std::string_view text, std::size_t longest);
// Returns a name as part of a JSON pointer (RFC 6901).
std::string escape_pointer(std::string_view name);

// The line, from 1, at which each value of a document begins, by JSON pointer ("/pools/0/modes/1").
using JsonLines = std::map<std::string, unsigned>;
// Returns the lines of a text; empty if it cannot be parsed.
JsonLines json_lines(std::string_view text);

// Reads a descriptor to its end. limit: largest size in bytes; a longer text is an error with EFBIG. timeout_ms:
// longest time in milliseconds for all reads together, -1: no limit. what: the text's name in messages. is_whole:
// called after each read; returns true if the text needs no further one. nullptr: only the end of the file ends the
// text.
Result<std::string> read_text_fd(int fd, std::size_t limit, int timeout_ms, std::string_view what,
                                 bool (*is_whole)(std::string_view text) = nullptr);
// Reads a regular file from its begin to its end, usually with one read(2). status: of fstat(2). Errors: those
// of read_text_fd().
Result<std::string> read_text_of(int fd, const struct stat& status, std::size_t limit, std::string_view what);
// Reads a file of at most limits.bytes. Errors name the path.
Result<std::string> read_text_file(const std::string& path, const JsonLimits& limits = {});

// The next functions read members of a document that a program wrote, not a person. A member that is missing or has
// another type therefore means that the document is damaged.
//
// Returns a member, nullptr if `object` is no object or lacks the member.
const Json* member(const Json& object, const char* name);
// Returns a member; adds it as null if it is missing. object: an object, or null, which becomes one. Json::operator[]
// does the same, but if the object must grow, it copies all members with the values below them.
Json& add_member(Json& object, const char* name);
// Returns the error "`NAME` is missing or wrong".
Error wrong_member(const char* name);
Result<std::string> text_at(const Json& object, const char* name);
Result<std::uint64_t> number_at(const Json& object, const char* name, std::uint64_t most);
// Returns the error "unknown member `NAME`". An unknown member is an error, because a misspelt one would otherwise
// count as missing.
Error unknown_member(const std::string& name);

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace base
