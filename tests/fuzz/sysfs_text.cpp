// Any text for the small parsers of sysfs attributes, addresses and names.
#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "fabric/address.hpp"
#include "fabric/pci_sysfs.hpp"
#include "require.hpp"

namespace {

using fuzz::require;

void check_address(const std::string& text) {
  const auto address = fabric::parse_address(text);
  if (!address) return;
  require(fabric::parse_address(to_string(*address)) == address, "an address reads back", text);
  require(fabric::parse_address(to_gid_string(*address)) == address, "a GID reads back", text);
  require(to_gid_string(*address).size() == 39, "a GID is printed as sysfs does", text);
  require(!(address->is_ipv4() && address->is_link_local()), "no IPv4 address is link-local here", text);
}

void check_cidr(const std::string& text, const std::string& other) {
  const auto cidr = fabric::parse_cidr(text);
  if (!cidr) return;
  require(cidr->prefix <= 128, "a prefix has at most 128 bits", text);
  require(cidr->contains(cidr->base), "a CIDR contains its base", text);
  require(fabric::parse_cidr(to_string(*cidr)) == cidr, "a CIDR reads back", text);
  const auto address = fabric::parse_address(other);
  if (!address) return;
  const auto common = fabric::common_prefix({cidr->base, *address});
  require(common.has_value() == (cidr->base.family() == address->family()), "a common prefix is of one family", text);
  if (common) require(common->contains(cidr->base) && common->contains(*address), "a common prefix holds all", text);
}

void check_numbers(const std::string& text) {
  const auto decimal = base::parse_decimal(text);
  if (decimal) require(std::isfinite(*decimal) && *decimal >= 0, "a decimal is a finite number from 0", text);
  const auto number = base::parse_number<int>(text);
  if (number && *number >= 0 && text[0] != '-')
    require(base::parse_decimal(text) == static_cast<double>(*number), "a whole number is a decimal", text);
  const auto code = base::errno_number(text);
  if (code) require(base::errno_number(base::errno_name(*code)) == code, "an errno reads back", text);
}

void check_pci(const std::string& text) {
  for (const std::string& address : fabric::pci::addresses_in_path(text)) {
    require(fabric::pci::is_address(address), "addresses_in_path() finds addresses", address);
    require(text.find(address) != std::string::npos, "addresses_in_path() finds parts of the path", address);
    require(address.starts_with(fabric::pci::slot_of(address)), "an address begins with its slot", address);
  }
}

void check_words(const std::string& text, char separator) {
  const auto parts = base::split(text, separator);
  std::string joined;
  for (const std::string_view part : parts) {
    require(part.find(separator) == std::string_view::npos, "a part has no separator", text);
    joined += (part.data() == parts.front().data() ? "" : std::string(1, separator)) + std::string(part);
  }
  require(joined == text, "split() loses nothing", text);
  const std::string_view trimmed = base::trim(text);
  require(base::trim(trimmed) == trimmed, "trim() trims all", text);
  const std::string shown = base::printable(text);
  fuzz::require_one_line(shown, "printable text");
  require(base::printable(shown) == shown, "printable text stays as it is", text);
}

void check_order(const std::string& a, const std::string& b, const std::string& c) {
  using base::natural_less;
  require(!natural_less(a, a), "natural order is irreflexive", a);
  require(!(natural_less(a, b) && natural_less(b, a)), "natural order is antisymmetric", a + " " + b);
  require(a == b || natural_less(a, b) || natural_less(b, a), "natural order distinguishes different names",
          a + " " + b);
  if (natural_less(a, b) && natural_less(b, c)) require(natural_less(a, c), "natural order is transitive", a + " " + b);
}

// The definition of a glob. It is exponential in the number of stars, so that it is only for short patterns.
bool slow_glob(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*')
    return slow_glob(pattern.substr(1), text) || (!text.empty() && slow_glob(pattern, text.substr(1)));
  return !text.empty() && pattern[0] == text[0] && slow_glob(pattern.substr(1), text.substr(1));
}

void check_glob(const std::string& pattern, const std::string& text) {
  const bool hit = base::glob_match(pattern, text);
  if (std::count(pattern.begin(), pattern.end(), '*') > 3 || pattern.size() > 12 || text.size() > 24) return;
  require(hit == slow_glob(pattern, text), "a glob matches by its definition", pattern + " " + text);
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const char separator = data.PickValueInArray({'/', ',', ' ', '\n', '.'});
  const std::string first = data.ConsumeRandomLengthString(96);
  const std::string second = data.ConsumeRandomLengthString(48);
  const std::string third = data.ConsumeRemainingBytesAsString();
  for (const std::string& text : {first, second}) {
    check_address(text);
    check_numbers(text);
    check_pci(text);
    check_words(text, separator);
  }
  check_cidr(first, second);
  check_order(first, second, third);
  check_glob(first, second);
}
