#include "init/ping/seal.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "init/ping/messages.hpp"
#include "support/results.hpp"

namespace {

using namespace init::ping;
using namespace test_support;

std::string hex(const Code& code) {
  std::string text;
  for (const std::uint8_t byte : code)
    text += fmt::format("{:02x}", byte);
  return text;
}

struct Peers {
  Seals own = make_seals("token", "hello", "challenge");
  Inbox at_rank0;
  Inbox at_rank;

  Peers() {
    at_rank0.require(own.rank);
    at_rank.require(own.rank0);
  }
};

// Returns the error of the last frame; empty: all are accepted.
int code_of(Inbox& inbox, std::string_view bytes) {
  inbox.add(bytes.data(), bytes.size());
  for (;;) {
    const auto message = inbox.next();
    if (!message) return message.error().code;
    if (!*message) return 0;
  }
}

// Returns the frames of a fresh sender. seal: its own.
std::string sealed(Seal seal, const std::vector<Message>& messages) {
  std::string frames;
  for (const Message& message : messages)
    frames += encode(message, &seal);
  return frames;
}

// Computed with Python's hmac: session = HMAC(token, "rdma-ping" + hello + challenge), key = HMAC(session, role), and
// the code of message 0 and 1.
TEST(Seal, IsHmacSha256OfNumberAndBytes) {
  Seals seals = make_seals("token", "hello", "challenge");
  EXPECT_EQ(hex(seals.rank.next("bytes")), "d8ab3d4d7cf22bb2a9277f3c893a048bcd694cb826a9bc50a5656fc546c7a673");
  EXPECT_EQ(hex(seals.rank.next("bytes")), "c5ad84af1e8dd2551add7e38f8788cf7a87f4c4e100f4597b00665dd19e3ca21");
  EXPECT_EQ(hex(seals.rank0.next("bytes")), "ff22f4587825433b6bce6d9c20785965d11631fc8d41ffd85c6998fa9d77782d");
}

TEST(Seal, AcceptsMessagesInOrder) {
  Peers peers;
  EXPECT_EQ(code_of(peers.at_rank0, sealed(peers.own.rank, {Proof{}, Go{1, {1}}, Go{1, {1}}})), 0);
}

TEST(Seal, RefusesMessageThatIsForgedOrFromElsewhere) {
  const ping::Verdict good{0, "good", ""};
  const Seals own = make_seals("token", "hello", "challenge");
  const std::string first = sealed(own.rank0, {good});
  const struct {
    const char* name;
    std::string bytes;
  } rows[] = {{"without a code", encode(good)},
              {"another token", sealed(make_seals("other", "hello", "challenge").rank0, {good})},
              {"another nonce of the rank", sealed(make_seals("token", "hellp", "challenge").rank0, {good})},
              {"another nonce of rank 0", sealed(make_seals("token", "hello", "challengf").rank0, {good})},
              {"reflected", sealed(own.rank, {good})},
              {"replayed", first + first},
              {"one left out", sealed(own.rank0, {Prepare{1}, good}).substr(sealed(own.rank0, {Prepare{1}}).size())},
              {"a Refusal after the first message", first + encode(Refusal{"why"})}};
  for (const auto& row : rows) {
    Peers peers;
    EXPECT_EQ(code_of(peers.at_rank, row.bytes), EBADMSG) << row.name;
  }
  Peers peers;
  EXPECT_EQ(code_of(peers.at_rank, first), 0);
}

TEST(Seal, RefusesEachChangedByte) {
  const std::string frame = sealed(Peers().own.rank0, {ping::Verdict{1, "bad", "read"}});
  for (std::size_t at = 4; at < frame.size(); ++at) {
    std::string changed = frame;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    Peers peers;
    EXPECT_EQ(code_of(peers.at_rank, changed), EBADMSG) << at;
  }
}

TEST(Seal, ReadsRefusalBeforeTheFirstMessage) {
  Peers peers;
  EXPECT_EQ(code_of(peers.at_rank, encode(Refusal{"why"})), 0);
}

TEST(Seal, SeedIsTheSameForTheSameToken) {
  EXPECT_EQ(seed_of("job 7"), seed_of("job 7"));
  EXPECT_NE(seed_of("job 7"), seed_of("job 8"));
}

}  // namespace
