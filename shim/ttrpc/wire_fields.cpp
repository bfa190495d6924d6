#include "shim/ttrpc/wire_fields.hpp"

namespace shim {
namespace {

// In protobuf, the tag of a field has 29 bits of field number and then 3 bits of wire type.
constexpr std::uint64_t kMaxNumber = (1U << 29) - 1;
constexpr int kTypeBits = 3;

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_tag(std::string& out, std::uint32_t number, WireType type) {
  append_varint(out, std::uint64_t{number} << kTypeBits | static_cast<std::uint64_t>(type));
}

}  // namespace

Result<std::optional<WireField>> WireReader::next() {
  Fault fault;
  const auto field = take_field(fault);
  switch (fault.kind) {
    case Fault::Kind::kNone:
      return field;
    case Fault::Kind::kTag:
      return make_error("protobuf message: cut off or overlong field number");
    case Fault::Kind::kNumber:
      return make_error("protobuf message: invalid field number {}", fault.number);
    case Fault::Kind::kType:
      return make_error("protobuf message: field {} has type {}, which proto3 does not have", fault.number,
                        fault.value);
    case Fault::Kind::kValue:
      return make_error("protobuf message: field {} is cut off or overlong", fault.number);
    case Fault::Kind::kLength:
      return make_error("protobuf message: field {} has {} bytes, {} are left", fault.number, fault.value,
                        rest_.size());
  }
  return std::optional<WireField>();
}

std::optional<WireField> WireReader::next_valid() {
  Fault fault;
  return take_field(fault);
}

std::optional<WireField> WireReader::take_field(Fault& fault) {
  if (rest_.empty()) return std::nullopt;
  const auto failed = [&](Fault::Kind kind, std::uint64_t number, std::uint64_t value = 0) {
    fault = {kind, number, value};
    return std::nullopt;
  };
  const auto tag = take_varint();
  if (!tag) return failed(Fault::Kind::kTag, 0);
  const std::uint64_t number = *tag >> kTypeBits;
  const auto type = static_cast<unsigned>(*tag & 7);
  if (number == 0 || number > kMaxNumber) return failed(Fault::Kind::kNumber, number);
  WireField field{
      .number = static_cast<std::uint32_t>(number), .type = static_cast<WireType>(type), .value = 0, .bytes{}};
  std::optional<std::uint64_t> value;
  switch (field.type) {
    case WireType::kVarint:
    case WireType::kBytes:
      value = take_varint();
      break;
    case WireType::kFixed64:
      value = take_fixed(8);
      break;
    case WireType::kFixed32:
      value = take_fixed(4);
      break;
    default:
      return failed(Fault::Kind::kType, number, type);
  }
  if (!value) return failed(Fault::Kind::kValue, number);
  field.value = *value;
  if (field.type != WireType::kBytes) return field;
  // The length comes from the message and may be any number, so it is compared with the bytes that are left.
  if (*value > rest_.size()) return failed(Fault::Kind::kLength, number, *value);
  field.bytes = rest_.substr(0, *value);
  field.value = 0;
  rest_.remove_prefix(*value);
  return field;
}

std::optional<std::uint64_t> WireReader::take_varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return std::nullopt;
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    if (shift == 63 && byte > 1) return std::nullopt;  // more than 64 bits
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> WireReader::take_fixed(std::size_t size) {
  if (rest_.size() < size) return std::nullopt;
  std::uint64_t value = 0;
  // In protobuf the bytes are little-endian on every machine.
  for (std::size_t i = size; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(rest_[i]);
  rest_.remove_prefix(size);
  return value;
}

void append_varint_field(std::string& out, std::uint32_t number, std::uint64_t value) {
  append_tag(out, number, WireType::kVarint);
  append_varint(out, value);
}

void append_bytes_field(std::string& out, std::uint32_t number, std::string_view bytes) {
  append_tag(out, number, WireType::kBytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace shim
