#include "base/text_digest.hpp"

#include <endian.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace base {
namespace {

constexpr std::size_t kBlock = 64;
constexpr std::size_t kDigestWords = 4;
using HashState = std::array<std::uint32_t, 8>;

constexpr std::array<std::uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t read_word(const char* bytes) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return be32toh(word);
}

// One round of FIPS 180-4. It changes only `d` and `h`; the caller passes the variables rotated by one place in each
// round, so that none is copied. Always inlined, because the call would take longer than the round.
[[gnu::always_inline]] inline void do_round(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t& d,
                                            std::uint32_t e, std::uint32_t f, std::uint32_t g, std::uint32_t& h,
                                            std::uint32_t word) {
  const std::uint32_t choice = g ^ (e & (f ^ g));
  const std::uint32_t majority = (a & b) | (c & (a | b));
  h += (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + word;
  d += h;
  h += (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
}

void compress(HashState& state, const char* block) {
  std::array<std::uint32_t, 64> w;
  for (std::size_t i = 0; i < 16; ++i)
    w[i] = read_word(block + 4 * i);
  for (std::size_t i = 16; i < w.size(); ++i) {
    const std::uint32_t a = w[i - 15];
    const std::uint32_t b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < w.size(); i += 8) {
    do_round(a, b, c, d, e, f, g, h, kRounds[i] + w[i]);
    do_round(h, a, b, c, d, e, f, g, kRounds[i + 1] + w[i + 1]);
    do_round(g, h, a, b, c, d, e, f, kRounds[i + 2] + w[i + 2]);
    do_round(f, g, h, a, b, c, d, e, kRounds[i + 3] + w[i + 3]);
    do_round(e, f, g, h, a, b, c, d, kRounds[i + 4] + w[i + 4]);
    do_round(d, e, f, g, h, a, b, c, kRounds[i + 5] + w[i + 5]);
    do_round(c, d, e, f, g, h, a, b, kRounds[i + 6] + w[i + 6]);
    do_round(b, c, d, e, f, g, h, a, kRounds[i + 7] + w[i + 7]);
  }
  const HashState done = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < done.size(); ++i)
    state[i] += done[i];
}

}  // namespace

// The digest is the first half of SHA-256 (FIPS 180-4). The key of a grant has a digest of the container id, so two
// containers with the same digest would share a grant. A user who chooses container ids must not be able to find such a
// pair.
std::string text_digest(std::string text) {
  const std::uint64_t bits = htobe64(std::uint64_t{text.size()} * 8);
  text.push_back('\x80');
  const std::size_t whole = (text.size() + sizeof bits + kBlock - 1) / kBlock * kBlock;
  text.resize(whole - sizeof bits, '\0');
  text.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  HashState state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (std::size_t at = 0; at < text.size(); at += kBlock)
    compress(state, text.data() + at);
  constexpr std::size_t kDigits = 8;  // a word in hexadecimal
  std::string digest(kDigestWords * kDigits, '0');
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = "0123456789abcdef"[state[i / kDigits] >> (28 - 4 * (i % kDigits)) & 0xf];
  return digest;
}

}  // namespace base
