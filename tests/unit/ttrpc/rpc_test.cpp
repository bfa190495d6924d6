// Protobuf fields and ttrpc's requests and responses, as bytes.
#include "shim/ttrpc/rpc.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "shim/ttrpc/wire_fields.hpp"

namespace shim {
namespace {

using namespace std::string_literals;

std::string error_of(std::string_view bytes) {
  WireReader reader(bytes);
  for (;;) {
    const auto field = reader.next();
    if (!field) return field.error().message;
    if (!*field) return "";
  }
}

TEST(Fields, OfEveryType) {
  const std::string bytes = "\x08\x96\x01"s + "\x12\3abc" + "\x19\1\2\3\4\5\6\7\x88"s + "\x25\1\0\0\x80"s + "\x2a\0"s;
  WireReader reader(bytes);
  EXPECT_EQ(reader.next().value(), (WireField{.number = 1, .type = WireType::kVarint, .value = 150, .bytes = {}}));
  EXPECT_EQ(reader.next().value(), (WireField{.number = 2, .type = WireType::kBytes, .value = 0, .bytes = "abc"}));
  EXPECT_EQ(reader.next().value(),
            (WireField{.number = 3, .type = WireType::kFixed64, .value = 0x8807060504030201, .bytes = {}}));
  EXPECT_EQ(reader.next().value(),
            (WireField{.number = 4, .type = WireType::kFixed32, .value = 0x80000001, .bytes = {}}));
  EXPECT_EQ(reader.next().value(), (WireField{.number = 5, .type = WireType::kBytes, .value = 0, .bytes = ""}));
  EXPECT_FALSE(reader.next().value());
  EXPECT_FALSE(reader.next().value());
}

TEST(Fields, Writes) {
  std::string out;
  append_varint_field(out, 1, 150);
  append_bytes_field(out, 2, "abc");
  append_varint_field(out, 536870911, ~std::uint64_t{0});
  EXPECT_EQ(out, "\x08\x96\x01"s + "\x12\3abc" + "\xf8\xff\xff\xff\x0f" + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  EXPECT_EQ(error_of(out), "");
}

struct Bad {
  const char* name;
  std::string bytes;
  const char* error;
};

class BadFields : public testing::TestWithParam<Bad> {};

TEST_P(BadFields, AreRefused) {
  EXPECT_EQ(error_of(GetParam().bytes), GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    , BadFields,
    testing::Values(Bad{"number_zero", "\0\1"s, "protobuf message: invalid field number 0"},
                    Bad{"number_too_high", "\x80\x80\x80\x80\x10\1"s,
                        "protobuf message: invalid field number 536870912"},
                    Bad{"tag_cut_off", "\x80"s, "protobuf message: cut off or overlong field number"},
                    Bad{"varint_cut_off", "\x08\x96"s, "protobuf message: field 1 is cut off or overlong"},
                    Bad{"varint_of_65_bits", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
                        "protobuf message: field 1 is cut off or overlong"},
                    Bad{"varint_of_eleven_bytes", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
                        "protobuf message: field 1 is cut off or overlong"},
                    Bad{"bytes_cut_off", "\x12\4abc", "protobuf message: field 2 has 4 bytes, 3 are left"},
                    Bad{"bytes_of_all_memory", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
                        "protobuf message: field 2 has 18446744073709551615 bytes, 1 are left"},
                    Bad{"fixed64_cut_off", "\x19\1\2\3\4\5\6\7", "protobuf message: field 3 is cut off or overlong"},
                    Bad{"fixed32_cut_off", "\x25\1\2\3", "protobuf message: field 4 is cut off or overlong"},
                    Bad{"group", "\x0b\x0c", "protobuf message: field 1 has type 3, which proto3 does not have"},
                    Bad{"type_7", "\x0f", "protobuf message: field 1 has type 7, which proto3 does not have"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Request, Reads) {
  // 4: timeout 1999 ms; 5: metadata; 9: unknown.
  const std::string bytes = "\x0a\1S\x12\1M\x1a\2pp\x20\xc0\xa3\x99\xb9\x07"s + "\x2a\6\x0a\1k\x12\1v" + "\x48\1";
  const auto request = parse_request(bytes);
  ASSERT_TRUE(request);
  EXPECT_EQ(*request, (Request{"S", "M", "pp", 1999000000}));
}

TEST(Request, MayLackEverything) {
  EXPECT_EQ(parse_request("").value(), Request{});
}

TEST(Request, AFieldOfAnotherTypeIsUnknown) {
  EXPECT_EQ(parse_request("\x08\1").value(), Request{});
}

TEST(Request, Writes) {
  std::string out;
  append_request(out, {"S", "M", "pp", 300});
  EXPECT_EQ(out, "\x0a\1S\x12\1M\x1a\2pp\x20\xac\2");
}

TEST(Response, ASuccessWithoutPayloadIsEmpty) {
  std::string out;
  append_response(out, {});
  EXPECT_EQ(out, "");
  EXPECT_EQ(parse_response("").value(), Response{});
}

TEST(Response, Payload) {
  std::string out;
  append_response(out, {StatusCode::kOk, "ignored", "pp"});
  EXPECT_EQ(out, "\x12\2pp");
  EXPECT_EQ(parse_response(out).value(), (Response{StatusCode::kOk, "", "pp"}));
}

TEST(Response, Status) {
  std::string out;
  append_response(out, {StatusCode::kUnimplemented, "no", ""});
  EXPECT_EQ(out, "\x0a\6\x08\x0c\x12\2no");
  EXPECT_EQ(parse_response(out).value(), (Response{StatusCode::kUnimplemented, "no", ""}));
}

TEST(Response, StatusOfAnyNumber) {
  // A negative code, and details (3).
  const std::string bytes = "\x0a\x0e\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\1x";
  EXPECT_EQ(parse_response(bytes).value().code, static_cast<StatusCode>(-1));
  EXPECT_FALSE(parse_response("\x0a\2\x08\x80"));
}

TEST(Status, OfErrno) {
  for (const int code : {EINVAL, ETIMEDOUT, EMSGSIZE, EAGAIN, ENOSYS})
    EXPECT_EQ(errno_of_status(status_of_errno(code)), code);
  EXPECT_EQ(status_of_errno(ENOSYS), StatusCode::kUnimplemented);
  EXPECT_EQ(status_of_errno(EPERM), StatusCode::kUnknown);
  EXPECT_EQ(errno_of_status(static_cast<StatusCode>(77)), 0);
}

TEST(Status, MessageIsOneValidLine) {
  EXPECT_EQ(status_message({"pool is empty", 0, "add HCAs"}), "pool is empty (add HCAs)");
  EXPECT_EQ(status_message({"a\nb\xff", 0, ""}), "a?b?");
  const std::string cut = status_message({std::string(3999, 'x') + "\xc3\xa4", 0, ""});
  EXPECT_EQ(cut, std::string(3999, 'x') + "?...");
}

}  // namespace
}  // namespace shim
