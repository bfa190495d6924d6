#include "fabric/address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fabric/text.hpp"

namespace fabric {
namespace {

constexpr std::array<std::uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr unsigned kIpv4PrefixBits = 96;

}  // namespace

bool Address::is_zero() const {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool Address::is_ipv4() const {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin());
}

bool Address::is_link_local() const {
  return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

bool Address::is_loopback() const {
  if (is_ipv4()) return bytes[12] == 127;
  Address one;
  one.bytes[15] = 1;
  return *this == one;
}

std::optional<Address> parse_address(std::string_view text) {
  char buffer[INET6_ADDRSTRLEN];
  if (text.empty() || text.size() >= sizeof buffer || text.find('\0') != std::string_view::npos) return std::nullopt;
  text.copy(buffer, text.size());
  buffer[text.size()] = '\0';
  Address address;
  if (inet_pton(AF_INET6, buffer, address.bytes.data()) == 1) return address;
  if (inet_pton(AF_INET, buffer, address.bytes.data() + kIpv4Prefix.size()) != 1) return std::nullopt;
  std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), address.bytes.begin());
  return address;
}

std::string to_string(const Address& address) {
  char buffer[INET6_ADDRSTRLEN] = "";
  if (address.is_ipv4()) {
    inet_ntop(AF_INET, address.bytes.data() + kIpv4Prefix.size(), buffer, sizeof buffer);
  } else {
    inet_ntop(AF_INET6, address.bytes.data(), buffer, sizeof buffer);
  }
  return buffer;
}

std::string to_gid_string(const Address& address) {
  std::string text;
  text.reserve(39);
  for (std::size_t i = 0; i < address.bytes.size(); i += 2) {
    fmt::format_to(std::back_inserter(text), "{}{:02x}{:02x}", i == 0 ? "" : ":", address.bytes[i],
                   address.bytes[i + 1]);
  }
  return text;
}

Address masked(Address address, unsigned prefix) {
  for (unsigned bit = prefix + (address.is_ipv4() ? kIpv4PrefixBits : 0); bit < 128; ++bit)
    address.bytes[bit / 8] &= static_cast<std::uint8_t>(~(0x80U >> (bit % 8)));
  return address;
}

bool Cidr::contains(const Address& address) const {
  const std::size_t whole = prefix / 8;
  if (std::memcmp(base.bytes.data(), address.bytes.data(), whole) != 0) return false;
  const unsigned rest = prefix % 8;
  if (rest == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xff00U >> rest);
  return (base.bytes[whole] & mask) == (address.bytes[whole] & mask);
}

std::optional<Cidr> parse_cidr(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto base = parse_address(text.substr(0, slash));
  if (!base) return std::nullopt;
  // "::ffff:10.0.0.0/104" is written in IPv6 form, so its prefix counts 128 bits.
  const bool dotted = base->is_ipv4() && text.substr(0, slash).find(':') == std::string_view::npos;
  const unsigned offset = dotted ? kIpv4PrefixBits : 0;
  if (slash == std::string_view::npos) return Cidr{*base, 128};
  const auto prefix = parse_number<unsigned>(text.substr(slash + 1));
  if (!prefix || *prefix > 128 - offset) return std::nullopt;
  return Cidr{*base, *prefix + offset};
}

std::string to_string(const Cidr& cidr) {
  if (cidr.base.is_ipv4() && cidr.prefix < kIpv4PrefixBits) {
    // Shorter than the IPv4 part: only the IPv6 form says so.
    char buffer[INET6_ADDRSTRLEN] = "";
    inet_ntop(AF_INET6, cidr.base.bytes.data(), buffer, sizeof buffer);
    return fmt::format("{}/{}", buffer, cidr.prefix);
  }
  const unsigned offset = cidr.base.is_ipv4() ? kIpv4PrefixBits : 0;
  return fmt::format("{}/{}", to_string(cidr.base), cidr.prefix - offset);
}

std::optional<Cidr> common_prefix(const std::vector<Address>& addresses) {
  if (addresses.empty()) return std::nullopt;
  Cidr cidr{addresses.front(), 128};
  for (const Address& address : addresses) {
    if (address.family() != cidr.base.family()) return std::nullopt;
    while (!cidr.contains(address))
      --cidr.prefix;
  }
  cidr.base = masked(cidr.base, cidr.prefix - (cidr.base.is_ipv4() ? kIpv4PrefixBits : 0));
  return cidr;
}

}  // namespace fabric
