#include "init/ping/seal.hpp"

#include <nettle/hmac.h>
#include <nettle/memops.h>

#include <initializer_list>

namespace init::ping {
namespace {

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

std::string_view text_of(const Code& code) {
  return {reinterpret_cast<const char*>(code.data()), code.size()};
}

Code hmac(std::string_view key, std::initializer_list<std::string_view> parts) {
  hmac_sha256_ctx context;
  hmac_sha256_set_key(&context, key.size(), bytes_of(key));
  for (const std::string_view part : parts)
    hmac_sha256_update(&context, part.size(), bytes_of(part));
  Code code{};
  hmac_sha256_digest(&context, code.size(), code.data());
  return code;
}

}  // namespace

// The number has a fixed length, so that no two messages have the same input.
Code Seal::code_of(std::string_view bytes) const {
  std::array<char, sizeof number_> number{};
  for (std::size_t byte = 0; byte < number.size(); ++byte)
    number[byte] = static_cast<char>(number_ >> (8 * byte) & 0xFF);
  return hmac(text_of(key_), {{number.data(), number.size()}, bytes});
}

Code Seal::next(std::string_view bytes) {
  const Code code = code_of(bytes);
  ++number_;
  return code;
}

bool Seal::accept(std::string_view bytes, std::string_view code) {
  if (code.size() != kCode || memeql_sec(code_of(bytes).data(), code.data(), kCode) == 0) return false;
  ++number_;
  return true;
}

std::uint32_t seed_of(std::string_view token) {
  const Code code = hmac(token, {"rdma-ping schedule"});
  std::uint32_t seed = 0;
  for (std::size_t byte = 0; byte < sizeof seed; ++byte)
    seed = seed << 8 | code[byte];
  return seed;
}

// Each frame begins with its length, so the joined text shows where the second frame begins.
Seals make_seals(std::string_view token, std::string_view hello, std::string_view challenge) {
  const Code session = hmac(token, {"rdma-ping", hello, challenge});
  return {Seal(hmac(text_of(session), {"rank"})), Seal(hmac(text_of(session), {"rank 0"}))};
}

}  // namespace init::ping
