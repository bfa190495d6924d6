#include "require.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/text.hpp"

namespace fuzz {

void require(bool holds, std::string_view demand, std::string_view detail) {
  if (holds) return;
  const std::string text = std::string(demand) + (detail.empty() ? "" : ": ") + base::printable(detail);
  std::fprintf(stderr, "demand broken: %s\n", text.c_str());
  std::abort();
}

void require_one_line(std::string_view text, std::string_view what) {
  const bool control =
      std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  require(!control, std::string(what) + " is one line without control characters", text);
}

void require_refusal(const base::Error& error, std::string_view what) {
  require(!error.message.empty(), "a refusal has a message", what);
  require_one_line(error.message, what);
}

}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  fuzz::run({reinterpret_cast<const char*>(bytes), size}, {bytes, size});
  return 0;
}
