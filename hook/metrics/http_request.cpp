#include "hook/metrics/http_request.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace hook {
namespace {

constexpr std::string_view kEndOfHead = "\r\n\r\n";

const char* phrase_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Service Unavailable";
  }
}

bool is_visible(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// METHOD TARGET HTTP/1.N
HttpRequest read_request_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return {400};
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (!is_visible(method) || !is_visible(target) || !is_visible(version) || !version.starts_with("HTTP/")) return {400};
  if (!version.starts_with("HTTP/1.")) return {505};
  if (method != "GET") return {405};
  const std::string_view path = target.substr(0, target.find('?'));
  if (path == "/metrics") return {200, HttpTarget::kMetrics};
  if (path == "/") return {200, HttpTarget::kIndex};
  if (path == "/healthz") return {200, HttpTarget::kHealth};
  return {404};
}

}  // namespace

std::optional<HttpRequest> read_http_request(std::string_view bytes) {
  const std::size_t end = bytes.find(kEndOfHead);
  if (end == std::string_view::npos || end + kEndOfHead.size() > kLongestHttpHead)
    return bytes.size() >= kLongestHttpHead ? std::optional(HttpRequest{431}) : std::nullopt;
  return read_request_line(bytes.substr(0, bytes.find("\r\n")));
}

std::string http_head(int status, std::size_t body) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
      "Cache-Control: no-store\r\n{}Connection: close\r\n\r\n",
      status, phrase_of(status), body, status == 405 ? "Allow: GET\r\n" : "");
}

std::string http_body(int status) {
  return fmt::format("{} {}\n", status, phrase_of(status));
}

}  // namespace hook
