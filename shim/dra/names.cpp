#include "shim/dra/names.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace shim {

bool is_dns_label(std::string_view text) {
  return is_uid(text) && text.front() != '-' && text.back() != '-';
}

bool is_dns_subdomain(std::string_view text) {
  if (text.size() > kLongestSubdomain) return false;
  return std::ranges::all_of(base::split(text, '.'), is_dns_label);
}

}  // namespace shim
