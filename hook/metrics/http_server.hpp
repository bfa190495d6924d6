// Serves one text to HTTP clients, in a process that may do nothing else.
#pragma once

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"

namespace hook {

// A client has 5 s for its request, 30 s pass at most until the text is there, and it has 10 s to take it. Which of
// them gives way when there are too many is in client_room.hpp; that one is told 503.
//
// Asks for the text by one byte on the channel, which answers with TextHead and the text; one that is younger than
// kTextLives serves further clients too. Returns when the channel's other end is closed. Errors: it cannot wait.
struct TextHead {
  std::uint64_t size = 0;
  std::uint64_t ok = 1;  // 0: it could not be read, and nothing follows: 503
};
inline constexpr std::uint64_t kLargestText = 64 << 20;
fabric::Result<void> serve_http(const fabric::UniqueFd& listener, const fabric::UniqueFd& channel);

}  // namespace hook
