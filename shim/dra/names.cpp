#include "shim/dra/names.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace shim {
namespace {

bool is_small_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_uid(std::string_view text) {
  return !text.empty() && text.size() <= kLongestLabel &&
         std::ranges::all_of(text, [](char c) { return is_small_or_digit(c) || c == '-'; });
}

bool is_dns_label(std::string_view text) {
  return is_uid(text) && text.front() != '-' && text.back() != '-';
}

bool is_dns_subdomain(std::string_view text) {
  if (text.size() > kLongestSubdomain) return false;
  return std::ranges::all_of(base::split(text, '.'), is_dns_label);
}

}  // namespace shim
