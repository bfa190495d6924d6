#include "init/ping/messages.hpp"

#include <gtest/gtest.h>

#include "support/results.hpp"

namespace {

using namespace init::ping;
using namespace test_support;

// Messages with every field set.
std::vector<Message> examples() {
  const Rail rail{"mlx5_0", 1, true, 400'000, "net1", 3, {{1, 2, 3}}, 4096, 0x8001, {Layer::kMemlock, "too low"}};
  const Contact contact{{Layer::kGid, "none"}, 17, 18, 0x0102030405060708, {{9}}, 7, 4096};
  return {Hello{kProtocol, std::string(kNonce, 'n'), 3, "host"},
          Refusal{"why"},
          Prepare{65536},
          Prepared{{Layer::kLibrary, "libibverbs.so.1"}, {rail}},
          Round{1, 65536, 1000, 6000, 2, {{0, 1}, {1, 0}}},
          Contacts{1, {contact, {}}},
          Connected{1, {{}, {Layer::kRoute, "none"}}},
          Go{1, {1, 0}},
          Results{1, {{{Layer::kRetry, "no answer"}, true, 1234}}},
          Verdict{1, "rank 3 does not answer", "read its log"},
          Challenge{std::string(kNonce, 'c')},
          Proof{},
          Join{3, 4, "node", "host", {rail, {}}, {"mlx5_1:1: down"}},
          Welcome{true, "why", 30'000},
          BecomeRelay{},
          RelayAt{"10.0.0.2", 40'001},
          MoveTo{64, "10.0.0.2", 40'001},
          StayDirect{},
          Attach{65},
          Lost{},
          Bundle{{{65, encode(Lost{})}, {66, encode(Go{1, {1}})}}}};
}

std::optional<Message> read_one(std::string_view bytes) {
  auto message = decode(bytes);
  return message ? std::optional(std::move(*message)) : std::nullopt;
}

TEST(Messages, EveryKindSurvivesTheWire) {
  const std::vector<Message> all = examples();
  ASSERT_EQ(all.size(), std::variant_size_v<Message>);
  for (std::size_t kind = 0; kind < all.size(); ++kind) {
    ASSERT_EQ(all[kind].index(), kind);
    const std::string frame = encode(all[kind]);
    const auto read = read_one(frame);
    ASSERT_TRUE(read) << kind;
    EXPECT_EQ(read->index(), kind);
    EXPECT_EQ(encode(*read), frame) << kind;
  }
  const Message join = Join{3, 4, "node", "host", std::get<Prepared>(all[3]).rails, {}};
  const auto read = read_one(encode(join));
  ASSERT_TRUE(read);
  EXPECT_EQ(std::get<Join>(*read).rails, std::get<Join>(join).rails);
}

TEST(Messages, InboxTakesBytesInAnyPieces) {
  std::string stream;
  for (const Message& message : examples())
    stream += encode(message);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{100}, stream.size()}) {
    Inbox inbox;
    std::string again;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      inbox.add(stream.data() + at, std::min(piece, stream.size() - at));
      for (;;) {
        auto message = must(inbox.next());
        if (!message) break;
        again += encode(std::move(*message));
      }
    }
    EXPECT_EQ(again, stream) << piece;
  }
}

TEST(Messages, RefusesBytesThatAreNoMessage) {
  const std::string good = encode(Go{1, {1, 0}});
  std::string longer = good;
  longer[3] = static_cast<char>(longer[3] + 1);
  const struct {
    const char* name;
    std::string bytes;
    std::string error;
  } rows[] = {
      {"empty frame", std::string(4, '\0'), "a frame of 0 bytes is no message"},
      {"HTTP", "GET / HTTP/1.1\r\n", "a frame of 1195725856 bytes is no message"},
      {"unknown kind", std::string("\0\0\0\1\x63", 5), "a message of kind 99 has wrong fields"},
      {"too long for its fields", longer + "x", "a message of kind 7 has wrong fields"},
      {"list longer than the frame", std::string("\0\0\0\6\x07\0\0\0\1\5", 10), "a message of kind 7 has wrong fields"},
      {"list above the limit", std::string("\0\0\0\6\x07\0\0\0\1\xff", 10), "a message of kind 7 has wrong fields"}};
  for (const auto& row : rows) {
    Inbox inbox;
    inbox.add(row.bytes.data(), row.bytes.size());
    EXPECT_EQ(error_message(inbox.next()), row.error) << row.name;
  }
}

// The bytes of a Hello of protocol 1, which has the token, and of the Welcome that refuses it.
TEST(Messages, KeepsFormOfTheMessagesThatNameOtherVersions) {
  std::string old("\0\0\0\x27\0\0\1\0\5job 7\0\0\0\3\0\0\0\4\0\4node\0\4host\0\1\0\4down", 43);
  const auto hello = read_one(old);
  ASSERT_TRUE(hello);
  EXPECT_EQ(std::get<Hello>(*hello).protocol, 1);
  EXPECT_EQ(std::get<Hello>(*hello).nonce, "");
  // One that is longer than the limit, before all of it is here.
  old[2] = '\x40';
  Inbox inbox(kLongestFirstFrame);
  inbox.add(old.data(), 7);
  const auto longer = must(inbox.next());
  ASSERT_TRUE(longer);
  EXPECT_EQ(std::get<Hello>(*longer).protocol, 1);
  EXPECT_EQ(encode(Refusal{"why"}), std::string("\0\0\0\x0b\1\0\0\3why\0\0\0\0", 15));
  const std::string now = encode(Hello{kProtocol, std::string(kNonce, 'n'), 3, "host"});
  EXPECT_EQ(now.substr(0, 9), std::string("\0\0\0\x37\0\0\4\0\x20", 9));
  EXPECT_EQ(now.substr(9 + kNonce), std::string("\0\0\0\3\0\0\0\0\0\0\0\4host\0\0", 18));
  EXPECT_LE(now.size() + kLongestName, kLongestFirstFrame);
}

TEST(Messages, DecodesOneWholeFrame) {
  const std::string frame = encode(Attach{65});
  EXPECT_EQ(std::get<Attach>(must(decode(frame))).rank, 65U);
  EXPECT_EQ(error_message(decode(frame.substr(0, 6))), "6 bytes are no frame");
  EXPECT_EQ(error_message(decode("GET / HTTP/1.1")), "14 bytes are no frame");
  EXPECT_EQ(error_message(decode("")), "0 bytes are no frame");
  EXPECT_EQ(error_message(decode(std::string("\0\0\0\1\x63", 5))), "a message of kind 99 has wrong fields");
}

TEST(Messages, LongestFrameOfStrangerIsShort) {
  const std::string frame = encode(Join{0, 1, std::string(64, 'n'), std::string(64, 'h'), {}, {std::string(200, 'u')}});
  Inbox inbox(kLongestFirstFrame);
  inbox.add(frame.data(), 5);
  EXPECT_EQ(error_message(inbox.next()), "the sender sent 345 bytes that are no message of rdma-ping");
}

TEST(Messages, CutsTextsAndStaysBelowTheLongestFrame) {
  Join join;
  join.rails.resize(kMostRails);
  for (Rail& rail : join.rails) {
    rail.device.assign(1000, 'd');
    rail.netdev.assign(1000, 'n');
    rail.problem.detail.assign(1000, 'p');
  }
  join.unused.assign(kMostRails, std::string(1000, 'u'));
  const std::string frame = encode(join);
  EXPECT_LE(frame.size(), kLongestFrame);
  const auto read = read_one(frame);
  ASSERT_TRUE(read);
  EXPECT_EQ(std::get<Join>(*read).rails[31].device.size(), kLongestName);
  EXPECT_EQ(std::get<Join>(*read).unused[31].size(), kLongestText);
}

}  // namespace
