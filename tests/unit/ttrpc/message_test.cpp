// ttrpc messages, as bytes: u32 length, u32 stream, u8 type, u8 flags, big-endian, data.
#include "shim/ttrpc/frames.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace shim {
namespace {

using namespace std::string_literals;

const std::string kRequest = "\0\0\0\3\0\0\0\5\1\0"s + "abc";
const std::string kEmptyResponse = "\0\0\0\0\0\0\1\1\2\0"s;
const std::string kTooLong = "\0\0\0\11\0\0\0\7\1\0"s + "123456789";  // for a buffer of 8 bytes

// A message with data of its own.
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

TEST_F(MessageTest, EverySplitOfTheStreamIsTheSame) {
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
}

TEST_F(MessageTest, ByteAfterByte) {
  for (const std::string& message : {kRequest, kEmptyResponse, kTooLong, kRequest})
    for (const char byte : message)
      read(std::string_view(&byte, 1));
  EXPECT_EQ(seen_, kAll);
}

TEST_F(MessageTest, KnowsWhereAMessageEnds) {
  for (std::size_t i = 0; i < kRequest.size(); ++i) {
    EXPECT_EQ(decoder_.between_messages(), i == 0);
    read(kRequest.substr(i, 1));
  }
  EXPECT_TRUE(decoder_.between_messages());
}

TEST_F(MessageTest, ExactlyTheBuffer) {
  const std::string bytes = "\0\0\0\10\0\0\0\1\1\4"s + "12345678";
  read(bytes.substr(0, 12));
  EXPECT_EQ(decoder_.buffer_used(), 2U);
  std::string_view rest = std::string_view(bytes).substr(12);
  EXPECT_EQ(decoder_.next(rest).value().value().data, "12345678");
  EXPECT_EQ(decoder_.buffer_used(), 8U);
}

TEST_F(MessageTest, AnAnnouncedLengthCostsNothing) {
  read("\xff\xff\xff\xff\0\0\0\1\1\0"s + std::string(1000, 'x'));
  EXPECT_TRUE(seen_.empty());
  EXPECT_EQ(decoder_.buffer_used(), 0U);
  EXPECT_FALSE(decoder_.between_messages());
}

TEST_F(MessageTest, WhatCameAtOnceIsNotCopied) {
  std::string_view input = kRequest;
  EXPECT_EQ(decoder_.next(input).value().value().data.data(), kRequest.data() + kMessageHeaderSize);
  EXPECT_EQ(decoder_.buffer_used(), 0U);
}

TEST_F(MessageTest, UnknownTypes) {
  for (const int type : {0, 4, 255}) {
    MessageDecoder decoder(buffer_);
    const std::string bytes = "\0\0\0\0\0\0\0\1"s + static_cast<char>(type) + "\0"s;
    std::string_view input = bytes;
    const std::string error = "ttrpc message of type " + std::to_string(type) + ": there are types 1 to 3 only";
    EXPECT_EQ(decoder.next(input).error().message, error);
    input = kRequest;
    EXPECT_EQ(decoder.next(input).error().message, error);
  }
}

TEST(MessageWriter, Header) {
  std::string out;
  append_message_header(out, {.stream = 0x01020304, .type = MessageType::kData, .flags = 5, .length = 0x0a0b0c0d});
  EXPECT_EQ(out, "\x0a\x0b\x0c\x0d\1\2\3\4\3\5"s);
}

// Frames of what is sent: their payloads.
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

TEST(MessageWriter, AShortMessageIsOneFrame) {
  std::string out;
  append_frames(out, kRuntimeConnection, {.stream = 1, .type = MessageType::kRequest, .data = "ab"});
  EXPECT_EQ(out, "\0\0\0\2\0\0\0\14"s + "\0\0\0\2\0\0\0\1\1\0"s + "ab");
}

// Go's reader has room for 4096 bytes until it has seen the header.
TEST(MessageWriter, NoFrameIsLongerThanGoReads) {
  EXPECT_EQ(frames_of(0), std::vector<std::string>{"\0\0\0\0\0\0\0\11\2\0"s});
  EXPECT_EQ(frames_of(4086).size(), 1U);
  for (const std::size_t size : {4087UL, 4096UL, 10000UL, 3UL << 20, 4UL << 20}) {
    const auto frames = frames_of(size);
    ASSERT_EQ(frames.size(), 2U) << size;
    EXPECT_EQ(frames[0].size(), kMessageHeaderSize);
    EXPECT_EQ(frames[1], std::string(size, 'd'));
  }
}

}  // namespace
}  // namespace shim
