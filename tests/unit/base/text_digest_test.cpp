#include "base/text_digest.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>

namespace {

// The first 16 bytes of `sha256sum` of GNU coreutils 9.1. The lengths are those around the ends of one and two blocks.
TEST(TextDigest, IsFirstHalfOfSha256) {
  const std::pair<std::size_t, const char*> digests[] = {
      {0, "e3b0c44298fc1c149afbf4c8996fb924"},   {1, "2d711642b726b04401627ca9fbac32f5"},
      {55, "d5e285683cd4efc02d021a5c62014694"},  {56, "04c26261370ee7541549d16dee320c72"},
      {63, "75220b47218278e656f2013bb8f0c455"},  {64, "7ce100971f64e7001e8fe5a51973ecdf"},
      {65, "9537c5fdf120482f7d58d25e9ed583f5"},  {119, "000b48d4edf0fa7bee3c6236ecd2785b"},
      {120, "13f05a0b594787f5ecd315edc96141bd"}, {1000, "44f8354494a5ba03ba1792a8d3e9c534"},
  };
  for (const auto& [length, digest] : digests)
    EXPECT_EQ(base::text_digest(std::string(length, 'x')), digest) << length;
}

}  // namespace
