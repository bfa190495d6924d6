// Proof of the token of the job: HMAC-SHA-256 over each message. Pure.
//
// A rank opens with a Hello, rank 0 answers with a Challenge, and each of the two frames has a nonce. From the token
// and both frames each side derives two keys: one for the messages of the rank, and one for those of rank 0. Each
// further message ends with a code over its number and its bytes. So the token never crosses the network, and a message
// proves that its sender knows the token. A message of another connection, from the other direction, or out of order
// has a wrong code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace init::ping {

inline constexpr std::size_t kNonce = 32;  // bytes
inline constexpr std::size_t kCode = 32;   // bytes of HMAC-SHA-256

using Code = std::array<std::uint8_t, kCode>;

// One direction of a connection.
class Seal {
 public:
  explicit Seal(const Code& key) : key_(key) {}
  // Returns the code of the next message. bytes: its frame without the code.
  Code next(std::string_view bytes);
  // Returns true if `code` is that of the next message, and then counts the message. Takes the same time for each wrong
  // code.
  bool accept(std::string_view bytes, std::string_view code);
  // Returns true until the first message.
  bool is_new() const { return number_ == 0; }

 private:
  Code code_of(std::string_view bytes) const;
  Code key_;
  std::uint64_t number_ = 0;  // number of the next message
};

struct Seals {
  Seal rank;   // seal of the rank's messages
  Seal rank0;  // seal of rank 0's messages
};

// Returns a number that all ranks of the job know: the same for the same token.
std::uint32_t seed_of(std::string_view token);

// token: at most kLongestToken bytes. hello, challenge: the frames of both messages.
Seals make_seals(std::string_view token, std::string_view hello, std::string_view challenge);

}  // namespace init::ping
