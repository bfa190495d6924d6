#include "fabric/address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"

namespace fabric {
namespace {

constexpr std::array<std::uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr unsigned kIpv4PrefixBits = 96;

// Returns the text of an address. A buffer of INET6_ADDRSTRLEN fits both families, so inet_ntop() cannot fail.
std::string text_of(int family, const std::uint8_t* bytes) {
  char buffer[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, bytes, buffer, sizeof buffer);
  return buffer;
}

// Returns the address with all bits cleared except the first `count` of the 16-byte form.
Address first_bits(Address address, unsigned count) {
  for (unsigned bit = count; bit < 128; ++bit)
    address.bytes[bit / 8] &= static_cast<std::uint8_t>(~(0x80U >> (bit % 8)));
  return address;
}

}  // namespace

bool Address::is_zero() const {
  return *this == Address{};
}

bool Address::is_ipv4() const {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin());
}

bool Address::is_link_local() const {
  return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

bool Address::is_ipv4_link_local() const {
  return is_ipv4() && bytes[12] == 169 && bytes[13] == 254;
}

bool Address::is_loopback() const {
  constexpr Address kOne{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return is_ipv4() ? bytes[12] == 127 : *this == kOne;
}

std::optional<Address> parse_address(std::string_view text) {
  char buffer[INET6_ADDRSTRLEN];
  // inet_pton() reads to the first zero byte: it would accept "10.0.0.1" followed by a zero byte and any text.
  if (text.empty() || text.size() >= sizeof buffer || text.find('\0') != std::string_view::npos) return std::nullopt;
  text.copy(buffer, text.size());
  buffer[text.size()] = '\0';
  Address address;
  if (inet_pton(AF_INET6, buffer, address.bytes.data()) == 1) return address;
  // The call above refuses an IPv4 address in dotted decimal. The call below parses it.
  if (inet_pton(AF_INET, buffer, address.bytes.data() + kIpv4Prefix.size()) != 1) return std::nullopt;
  std::ranges::copy(kIpv4Prefix, address.bytes.begin());
  return address;
}

std::string to_string(const Address& address) {
  return address.is_ipv4() ? text_of(AF_INET, address.bytes.data() + kIpv4Prefix.size())
                           : text_of(AF_INET6, address.bytes.data());
}

std::string to_gid_string(const Address& address) {
  std::array<unsigned, 8> groups;
  for (std::size_t i = 0; i < groups.size(); ++i)
    groups[i] = address.bytes[2 * i] * 256U + address.bytes[2 * i + 1];
  return fmt::format("{:04x}", fmt::join(groups, ":"));
}

Address masked(Address address, unsigned prefix) {
  return first_bits(address, prefix + (address.is_ipv4() ? kIpv4PrefixBits : 0));
}

bool Cidr::contains(const Address& address) const {
  return first_bits(base, prefix) == first_bits(address, prefix);
}

std::optional<Cidr> parse_cidr(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto base = parse_address(text.substr(0, slash));
  if (!base) return std::nullopt;
  // "::ffff:10.0.0.0/104" has IPv6 form, therefore its prefix counts all 128 bits.
  const bool dotted = base->is_ipv4() && text.substr(0, slash).find(':') == std::string_view::npos;
  const unsigned offset = dotted ? kIpv4PrefixBits : 0;
  if (slash == std::string_view::npos) return Cidr{*base, 128};
  const auto prefix = parse_number<unsigned>(text.substr(slash + 1));
  if (!prefix || *prefix > 128 - offset) return std::nullopt;
  return Cidr{*base, *prefix + offset};
}

std::string to_string(const Cidr& cidr) {
  // A prefix shorter than 96 bits has no IPv4 form: it also covers IPv6 addresses.
  if (cidr.base.is_ipv4() && cidr.prefix < kIpv4PrefixBits)
    return fmt::format("{}/{}", text_of(AF_INET6, cidr.base.bytes.data()), cidr.prefix);
  const unsigned offset = cidr.base.is_ipv4() ? kIpv4PrefixBits : 0;
  return fmt::format("{}/{}", to_string(cidr.base), cidr.prefix - offset);
}

std::optional<Cidr> common_prefix(const std::vector<Address>& addresses) {
  if (addresses.empty()) return std::nullopt;
  Cidr cidr{addresses.front(), 128};
  for (const Address& address : addresses) {
    if (address.family() != cidr.base.family()) return std::nullopt;
    // Over all addresses together, this loop takes at most 128 steps, because the prefix only shrinks.
    while (!cidr.contains(address))
      --cidr.prefix;
  }
  cidr.base = first_bits(cidr.base, cidr.prefix);
  return cidr;
}

}  // namespace fabric
