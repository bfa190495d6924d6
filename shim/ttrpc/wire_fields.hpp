// Reads and writes the fields of a protobuf message (protobuf.dev/programming-guides/encoding) without a schema and
// without a copy. Used for ttrpc's own messages, and for long messages that are read one field at a time to save
// memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace shim {

enum class WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  std::uint32_t number = 0;
  WireType type = WireType::kVarint;
  std::uint64_t value = 0;      // value of a field of any type except kBytes
  std::string_view bytes = {};  // content of a kBytes field: string, bytes, message or packed numbers
  friend bool operator==(const WireField&, const WireField&) = default;

  bool is_bytes(std::uint32_t wanted) const { return number == wanted && type == WireType::kBytes; }
  bool is_varint(std::uint32_t wanted) const { return number == wanted && type == WireType::kVarint; }
};

class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  // Returns the next field; nullopt at the end. The field's bytes are part of the message. Errors: the message ends
  // within a field; a number of more than 64 bits; a field number of 0 or above 2^29 - 1; a group, which proto3 does
  // not have.
  Result<std::optional<WireField>> next();
  // Returns the next field; nullopt at the end, and at a field that next() refuses. It makes no error text, which costs
  // more than many fields: use it for a count in bytes that may be no message.
  std::optional<WireField> next_valid();

 private:
  struct Fault {
    enum class Kind { kNone, kTag, kNumber, kType, kValue, kLength };
    Kind kind = Kind::kNone;
    std::uint64_t number = 0;  // the number in the tag
    std::uint64_t value = 0;   // its type or its length
  };

  // Returns nullopt at the end, and at a fault.
  std::optional<WireField> take_field(Fault& fault);
  std::optional<std::uint64_t> take_varint();
  std::optional<std::uint64_t> take_fixed(std::size_t size);

  std::string_view rest_;
};

void append_varint_field(std::string& out, std::uint32_t number, std::uint64_t value);
void append_bytes_field(std::string& out, std::uint32_t number, std::string_view bytes);

}  // namespace shim
