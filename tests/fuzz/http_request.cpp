// Any bytes as a client's request to `rdma-hook metrics --listen`.
#include "hook/admin/metrics/http_server.hpp"

#include <algorithm>
#include <array>

#include "require.hpp"

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  const auto whole = hook::read_http_request(text);
  if (!whole) {
    fuzz::require(text.size() < hook::kLongestHttpHead, "a head that does not end is refused");
    return;
  }
  constexpr std::array kKnown = {200, 400, 404, 405, 431, 505};
  fuzz::require(std::find(kKnown.begin(), kKnown.end(), whole->status) != kKnown.end(), "a status that is known");
  fuzz::require(whole->status != 200 || text.starts_with("GET /"), "only GET is served");
  // Bytes after the head do not change the answer.
  const std::size_t end = text.find("\r\n\r\n");
  if (whole->status != 431) {
    fuzz::require(end != std::string_view::npos, "a head ends with an empty line");
    const auto head = hook::read_http_request(text.substr(0, end + 4));
    fuzz::require(head && head->status == whole->status && head->target == whole->target, "the head alone decides");
    fuzz::require(!hook::read_http_request(text.substr(0, end + 3)), "nothing is decided before the head has ended");
  }
  fuzz::require(hook::http_head(whole->status, 1).ends_with("\r\nConnection: close\r\n\r\n"), "an answer's head ends");
}
