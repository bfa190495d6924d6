#include "shim/ttrpc/frames.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <vector>

#include "shim/ttrpc/rpc.hpp"
#include "shim/ttrpc/wire_fields.hpp"

namespace shim {
namespace {

using namespace std::string_literals;

// ttrpc messages as bytes: u32 length, u32 stream, u8 type, u8 flags, big-endian, data.

const std::string kRequest = "\0\0\0\3\0\0\0\5\1\0"s + "abc";
const std::string kEmptyResponse = "\0\0\0\0\0\0\1\1\2\0"s;
const std::string kTooLong = "\0\0\0\11\0\0\0\7\1\0"s + "123456789";  // for a buffer of 8 bytes

// A message that owns its data.
struct Seen {
  std::uint32_t stream;
  MessageType type;
  int flags;
  std::uint32_t length;
  std::string data;
  bool too_long;
  bool operator==(const Seen&) const = default;
};

class MessageTest : public testing::Test {
 protected:
  void read(std::string_view input) {
    for (;;) {
      const auto message = decoder_.next(input);
      if (!message) error_ = message.error().message;
      if (!message || !*message) return;
      const Message& m = **message;
      seen_.push_back({m.stream, m.type, m.flags, m.length, std::string(m.data), m.too_long});
    }
  }

  std::vector<char> buffer_ = std::vector<char>(8);
  MessageDecoder decoder_{buffer_};
  std::vector<Seen> seen_;
  std::string error_;
};

const std::vector<Seen> kAll = {{5, MessageType::kRequest, 0, 3, "abc", false},
                                {257, MessageType::kResponse, 0, 0, "", false},
                                {7, MessageType::kRequest, 0, 9, "", true},
                                {5, MessageType::kRequest, 0, 3, "abc", false}};

TEST_F(MessageTest, DecodesEverySplitOfStream) {
  const std::string bytes = kRequest + kEmptyResponse + kTooLong + kRequest;
  const std::string_view all = bytes;
  for (std::size_t i = 0; i <= all.size(); ++i) {
    for (std::size_t j = i; j <= all.size(); ++j) {
      seen_.clear();
      read(all.substr(0, i));
      read(all.substr(i, j - i));
      read(all.substr(j));
      EXPECT_EQ(seen_, kAll) << i << " " << j;
      EXPECT_TRUE(decoder_.between_messages());
    }
  }
  EXPECT_EQ(error_, "");
  seen_.clear();
  for (const char byte : bytes)
    read(std::string_view(&byte, 1));
  EXPECT_EQ(seen_, kAll);
}

TEST_F(MessageTest, DetectsEndOfMessage) {
  for (std::size_t i = 0; i < kRequest.size(); ++i) {
    EXPECT_EQ(decoder_.between_messages(), i == 0);
    read(kRequest.substr(i, 1));
  }
  EXPECT_TRUE(decoder_.between_messages());
}

TEST_F(MessageTest, AcceptsMessageOfBufferSize) {
  const std::string bytes = "\0\0\0\10\0\0\0\1\1\4"s + "12345678";
  read(bytes.substr(0, 12));
  EXPECT_EQ(decoder_.buffer_used(), 2U);
  std::string_view rest = std::string_view(bytes).substr(12);
  EXPECT_EQ(decoder_.next(rest).value().value().data, "12345678");
  EXPECT_EQ(decoder_.buffer_used(), 8U);
}

TEST_F(MessageTest, AllocatesNothingAndCopiesNoWholeMessage) {
  std::string_view input = kRequest;
  EXPECT_EQ(decoder_.next(input).value().value().data.data(), kRequest.data() + kMessageHeaderSize);
  EXPECT_EQ(decoder_.buffer_used(), 0U);
  read("\xff\xff\xff\xff\0\0\0\1\1\0"s + std::string(1000, 'x'));
  EXPECT_TRUE(seen_.empty());
  EXPECT_EQ(decoder_.buffer_used(), 0U);
  EXPECT_FALSE(decoder_.between_messages());
}

TEST_F(MessageTest, RefusesUnknownTypes) {
  for (const int type : {0, 4, 255}) {
    MessageDecoder decoder(buffer_);
    const std::string bytes = "\0\0\0\0\0\0\0\1"s + static_cast<char>(type) + "\0"s;
    std::string_view input = bytes;
    const std::string error =
        "the runtime sent a ttrpc message of type " + std::to_string(type) + ": there are types 1 to 3 only";
    EXPECT_EQ(decoder.next(input).error().message, error);
    input = kRequest;
    EXPECT_EQ(decoder.next(input).error().message, error);
  }
}

// Returns the payloads of the frames of a sent message.
std::vector<std::string> frames_of(std::size_t data_size) {
  const std::string data(data_size, 'd');
  std::string out;
  append_frames(out, kPluginConnection, {.stream = 9, .type = MessageType::kResponse, .data = data});
  std::vector<std::string> frames;
  MuxDecoder decoder;
  std::string_view input = out;
  while (!input.empty()) {
    const auto piece = decoder.next(input).value().value();
    EXPECT_EQ(piece.connection, kPluginConnection);
    frames.emplace_back(piece.bytes);
  }
  return frames;
}

TEST(MessageWriter, WritesShortMessageAsOneFrame) {
  std::string header;
  append_message_header(header, {.stream = 0x01020304, .type = MessageType::kData, .flags = 5, .length = 0x0a0b0c0d});
  EXPECT_EQ(header, "\x0a\x0b\x0c\x0d\1\2\3\4\3\5"s);
  std::string out;
  append_frames(out, kRuntimeConnection, {.stream = 1, .type = MessageType::kRequest, .data = "ab"});
  EXPECT_EQ(out, "\0\0\0\2\0\0\0\14"s + "\0\0\0\2\0\0\0\1\1\0"s + "ab");
}

// Go's reader offers 4096 bytes until it has read the header.
TEST(MessageWriter, WritesNoFrameLongerThanGoReads) {
  EXPECT_EQ(frames_of(0), std::vector<std::string>{"\0\0\0\0\0\0\0\11\2\0"s});
  EXPECT_EQ(frames_of(4086).size(), 1U);
  for (const std::size_t size : {4087UL, 4096UL, 10000UL, 3UL << 20, 4UL << 20}) {
    const auto frames = frames_of(size);
    ASSERT_EQ(frames.size(), 2U) << size;
    EXPECT_EQ(frames[0].size(), kMessageHeaderSize);
    EXPECT_EQ(frames[1], std::string(size, 'd'));
  }
}

// Multiplexer frames as bytes: u32 connection, u32 length, big-endian, payload.

const std::string kFirst = "\0\0\0\1\0\0\0\3"s + "abc";
const std::string kSecond = "\0\0\0\2\0\0\0\1"s + "x";
const std::string kEmpty = "\0\0\0\2\0\0\0\0"s;

// Returns the bytes of each logical connection, and the text of a failure under connection 0.
std::map<std::uint32_t, std::string> decode(MuxDecoder& decoder, const std::vector<std::string_view>& reads) {
  std::map<std::uint32_t, std::string> streams;
  for (std::string_view input : reads) {
    for (;;) {
      const auto piece = decoder.next(input);
      if (!piece) {
        streams[0] = piece.error().message;
        return streams;
      }
      if (!*piece) break;
      streams[(*piece)->connection] += (*piece)->bytes;
    }
  }
  return streams;
}

TEST(Mux, DecodesEverySplitOfStream) {
  const std::string bytes = kFirst + kEmpty + kSecond + kFirst;
  const std::map<std::uint32_t, std::string> both{{1, "abcabc"}, {2, "x"}};
  const std::string_view all = bytes;
  for (std::size_t i = 0; i <= all.size(); ++i) {
    for (std::size_t j = i; j <= all.size(); ++j) {
      MuxDecoder decoder;
      EXPECT_EQ(decode(decoder, {all.substr(0, i), all.substr(i, j - i), all.substr(j)}), both) << i << " " << j;
      EXPECT_TRUE(decoder.between_frames());
    }
  }
}

TEST(Mux, DetectsEndOfFrame) {
  for (std::size_t cut = 0; cut <= kFirst.size(); ++cut) {
    MuxDecoder decoder;
    decode(decoder, {std::string_view(kFirst).substr(0, cut)});
    EXPECT_EQ(decoder.between_frames(), cut == 0 || cut == kFirst.size()) << cut;
  }
  MuxDecoder decoder;
  EXPECT_TRUE(decode(decoder, {kEmpty}).empty());
  EXPECT_TRUE(decoder.between_frames());
}

TEST(Mux, FailsPermanentlyAfterInvalidFrame) {
  const std::tuple<const char*, std::string, const char*> cases[] = {
      {"reserved", "\0\0\0\0\0\0\0\1x"s, "for connection 0: NRI has connections 1 and 2 only"},
      {"unknown", "\0\0\0\3\0\0\0\1x"s, "for connection 3: NRI has connections 1 and 2 only"},
      {"swapped bytes", "\1\0\0\0\1\0\0\0"s, "for connection 16777216: NRI has connections 1 and 2 only"},
      {"a byte too long", "\0\0\0\1\1\0\0\1"s, "of 16777217 bytes on connection 1: the limit is 16777216"},
      {"longest", "\0\0\0\2\xff\xff\xff\xff"s, "of 4294967295 bytes on connection 2: the limit is 16777216"}};
  for (const auto& [name, wrong, error] : cases) {
    SCOPED_TRACE(name);
    MuxDecoder decoder;
    for (const std::string& bytes : {wrong, kFirst})
      EXPECT_EQ(decode(decoder, {bytes})[0], std::string("the runtime sent a frame ") + error);
    EXPECT_FALSE(decoder.between_frames());
  }
}

TEST(Mux, AcceptsLongestFrameOfAnyRuntime) {
  MuxDecoder decoder;
  decode(decoder, {"\0\0\0\1\1\0\0\0"s});
  const std::string megabyte(std::size_t{1} << 20, 'm');
  for (int i = 0; i < 16; ++i) {
    EXPECT_FALSE(decoder.between_frames());
    EXPECT_EQ(decode(decoder, {megabyte})[1].size(), megabyte.size());
  }
  EXPECT_TRUE(decoder.between_frames());
}

TEST(Mux, WritesHeader) {
  std::string out = "x";
  append_mux_header(out, kRuntimeConnection, 0x01020304);
  EXPECT_EQ(out, "x\0\0\0\2\1\2\3\4"s);
}

// Protobuf fields, and ttrpc's requests and responses, as bytes.

std::string error_of(std::string_view bytes) {
  WireReader reader(bytes);
  for (;;) {
    const auto field = reader.next();
    if (!field) return field.error().message;
    if (!*field) return "";
  }
}

TEST(Fields, ReadsEveryType) {
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
  EXPECT_FALSE(reader.next_valid());
}

TEST(Fields, WritesVarintsAndBytes) {
  std::string out;
  append_varint_field(out, 1, 150);
  append_bytes_field(out, 2, "abc");
  append_varint_field(out, 536870911, ~std::uint64_t{0});
  EXPECT_EQ(out, "\x08\x96\x01"s + "\x12\3abc" + "\xf8\xff\xff\xff\x0f" + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  EXPECT_EQ(error_of(out), "");
}

TEST(Fields, RefusesInvalidFields) {
  const std::tuple<const char*, std::string, const char*> cases[] = {
      {"number zero", "\0\1"s, "invalid field number 0"},
      {"number too high", "\x80\x80\x80\x80\x10\1"s, "invalid field number 536870912"},
      {"tag cut off", "\x80"s, "cut off or overlong field number"},
      {"varint cut off", "\x08\x96"s, "field 1 is cut off or overlong"},
      {"varint of 65 bits", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "field 1 is cut off or overlong"},
      {"varint of eleven bytes", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "field 1 is cut off or overlong"},
      {"bytes cut off", "\x12\4abc", "field 2 has 4 bytes, 3 are left"},
      {"bytes of all memory", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
       "field 2 has 18446744073709551615 bytes, 1 are left"},
      {"fixed64 cut off", "\x19\1\2\3\4\5\6\7", "field 3 is cut off or overlong"},
      {"fixed32 cut off", "\x25\1\2\3", "field 4 is cut off or overlong"},
      {"group", "\x0b\x0c", "field 1 has type 3, which proto3 does not have"},
      {"type 7", "\x0f", "field 1 has type 7, which proto3 does not have"}};
  for (const auto& [name, bytes, error] : cases) {
    EXPECT_EQ(error_of(bytes), std::string("protobuf message: ") + error) << name;
    EXPECT_FALSE(WireReader(bytes).next_valid()) << name;
  }
}

TEST(Request, ReadsAndWrites) {
  // 4: timeout 1999 ms; 5: metadata; 9: unknown.
  const std::string bytes = "\x0a\1S\x12\1M\x1a\2pp\x20\xc0\xa3\x99\xb9\x07"s + "\x2a\6\x0a\1k\x12\1v" + "\x48\1";
  const auto request = parse_request(bytes);
  ASSERT_TRUE(request);
  EXPECT_EQ(*request, (Request{"S", "M", "pp", 1999000000}));
  EXPECT_EQ(parse_request("").value(), Request{}) << "all fields are optional";
  EXPECT_EQ(parse_request("\x08\1").value(), Request{}) << "a field of another type is unknown";
  std::string out;
  append_request(out, {"S", "M", "pp", 300});
  EXPECT_EQ(out, "\x0a\1S\x12\1M\x1a\2pp\x20\xac\2");
}

TEST(Response, ReadsAndWritesPayloadOrStatus) {
  const std::tuple<Response, std::string, Response> cases[] = {
      {Response(), "", Response()},
      {{StatusCode::kOk, "ignored", "pp"}, "\x12\2pp", {StatusCode::kOk, "", "pp"}},
      {{StatusCode::kUnimplemented, "no", ""}, "\x0a\6\x08\x0c\x12\2no", {StatusCode::kUnimplemented, "no", ""}}};
  for (const auto& [written, bytes, read] : cases) {
    std::string out;
    append_response(out, written);
    EXPECT_EQ(out, bytes);
    EXPECT_EQ(parse_response(out).value(), read);
  }
  // A negative code, and details (3).
  const std::string bytes = "\x0a\x0e\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\1x";
  EXPECT_EQ(parse_response(bytes).value().code, static_cast<StatusCode>(-1));
  EXPECT_FALSE(parse_response("\x0a\2\x08\x80"));
}

TEST(Status, ConvertsErrno) {
  for (const int code : {EINVAL, ETIMEDOUT, EMSGSIZE, EAGAIN, ENOSYS})
    EXPECT_EQ(errno_of_status(status_of_errno(code)), code);
  EXPECT_EQ(status_of_errno(ENOSYS), StatusCode::kUnimplemented);
  EXPECT_EQ(status_of_errno(EPERM), StatusCode::kUnknown);
  EXPECT_EQ(errno_of_status(static_cast<StatusCode>(77)), 0);
}

TEST(Status, WritesMessageAsOneValidLine) {
  EXPECT_EQ(status_message({"pool is empty", 0, "add HCAs"}), "pool is empty (add HCAs)");
  EXPECT_EQ(status_message({"a\nb\xff", 0, ""}), "a?b?");
  EXPECT_EQ(status_message({std::string(3999, 'x') + "\xc3\xa4", 0, ""}), std::string(3999, 'x') + "?...");
}

}  // namespace
}  // namespace shim
