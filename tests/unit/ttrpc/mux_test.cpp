// Multiplexer frames, as bytes: u32 connection, u32 length, big-endian, payload.
#include "shim/ttrpc/frames.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace shim {
namespace {

using namespace std::string_literals;

const std::string kFirst = "\0\0\0\1\0\0\0\3"s + "abc";
const std::string kSecond = "\0\0\0\2\0\0\0\1"s + "x";
const std::string kEmpty = "\0\0\0\2\0\0\0\0"s;

// What each logical connection carries; a failure's text under connection 0.
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

TEST(Mux, Frames) {
  const std::map<std::uint32_t, std::string> both{{1, "abcabc"}, {2, "x"}};
  MuxDecoder decoder;
  EXPECT_EQ(decode(decoder, {kFirst + kSecond + kFirst}), both);
  EXPECT_TRUE(decoder.between_frames());
}

TEST(Mux, EverySplitOfTheStreamIsTheSame) {
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

TEST(Mux, KnowsWhereAFrameEnds) {
  for (std::size_t cut = 0; cut <= kFirst.size(); ++cut) {
    MuxDecoder decoder;
    decode(decoder, {std::string_view(kFirst).substr(0, cut)});
    EXPECT_EQ(decoder.between_frames(), cut == 0 || cut == kFirst.size()) << cut;
  }
}

TEST(Mux, AnEmptyFrameCarriesNothing) {
  MuxDecoder decoder;
  EXPECT_TRUE(decode(decoder, {kEmpty}).empty());
  EXPECT_TRUE(decoder.between_frames());
}

struct Refused {
  const char* name;
  std::string bytes;
  const char* error;
};

class MuxRefuses : public testing::TestWithParam<Refused> {};

TEST_P(MuxRefuses, AndStaysRefused) {
  MuxDecoder decoder;
  EXPECT_EQ(decode(decoder, {GetParam().bytes})[0], GetParam().error);
  EXPECT_EQ(decode(decoder, {kFirst})[0], GetParam().error);
  EXPECT_FALSE(decoder.between_frames());
}

INSTANTIATE_TEST_SUITE_P(
    , MuxRefuses,
    testing::Values(Refused{"reserved", "\0\0\0\0\0\0\0\1x"s,
                            "multiplexer frame for connection 0: NRI has connections 1 and 2 only"},
                    Refused{"unknown", "\0\0\0\3\0\0\0\1x"s,
                            "multiplexer frame for connection 3: NRI has connections 1 and 2 only"},
                    Refused{"swapped_bytes", "\1\0\0\0\1\0\0\0"s,
                            "multiplexer frame for connection 16777216: NRI has connections 1 and 2 only"},
                    Refused{"one_byte_too_long", "\0\0\0\1\1\0\0\1"s,
                            "multiplexer frame of 16777217 bytes on connection 1: the limit is 16777216"},
                    Refused{"longest", "\0\0\0\2\xff\xff\xff\xff"s,
                            "multiplexer frame of 4294967295 bytes on connection 2: the limit is 16777216"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Mux, TakesTheLongestFrameOfAnyRuntime) {
  MuxDecoder decoder;
  decode(decoder, {"\0\0\0\1\1\0\0\0"s});
  const std::string megabyte(std::size_t{1} << 20, 'm');
  for (int i = 0; i < 16; ++i) {
    EXPECT_FALSE(decoder.between_frames());
    EXPECT_EQ(decode(decoder, {megabyte})[1].size(), megabyte.size());
  }
  EXPECT_TRUE(decoder.between_frames());
}

TEST(Mux, Writes) {
  std::string out = "x";
  append_mux_header(out, kRuntimeConnection, 0x01020304);
  EXPECT_EQ(out, "x\0\0\0\2\1\2\3\4"s);
}

}  // namespace
}  // namespace shim
