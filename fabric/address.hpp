// Addresses, GIDs and CIDR prefixes. A RoCE v2 GID is the address of a netdev in IPv6 form (IPv4 as ::ffff:a.b.c.d).
// Address serves addresses and GIDs, so one comparison decides whether a GID belongs to this network namespace.
// Source: InfiniBand specification 1.5, annex A17 (RoCE v2); kernel drivers/infiniband/core/roce_gid_mgmt.c, Linux
// 6.12.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fabric {

enum class Family { kIpv4, kIpv6 };

struct Address {
  std::array<std::uint8_t, 16> bytes{};  // network byte order

  bool is_zero() const;
  bool is_ipv4() const;        // an IPv4 address has the form ::ffff:A.B.C.D
  bool is_link_local() const;  // fe80::/10; not 169.254/16, because NCCL and the kernel use it as any IPv4 address
  // Returns true for 169.254.0.0/16 (RFC 3927), which usually belongs to a service of the node.
  bool is_ipv4_link_local() const;
  bool is_loopback() const;  // loopback addresses are ::1 and 127.0.0.0/8
  Family family() const { return is_ipv4() ? Family::kIpv4 : Family::kIpv6; }

  friend bool operator==(const Address&, const Address&) = default;
  friend auto operator<=>(const Address&, const Address&) = default;
};

// Parses "10.0.0.2", "fe80::1" or the form of sysfs, "fe80:0000:...:0001". Returns nullopt for any other text.
std::optional<Address> parse_address(std::string_view text);
// Returns dotted decimal for an IPv4-mapped address, and RFC 5952 text for IPv6.
std::string to_string(const Address& address);
// Returns the form of /sys/class/infiniband/*/ports/*/gids/*: eight groups of four hexadecimal digits.
std::string to_gid_string(const Address& address);

// Returns the address with its host bits cleared. prefix: length in bits of the address's own family.
Address masked(Address address, unsigned prefix);

struct Cidr {
  Address base;
  unsigned prefix = 0;  // bits of the 16-byte form: an IPv4 /24 is 120

  bool contains(const Address& address) const;
  friend bool operator==(const Cidr&, const Cidr&) = default;
};

// Parses "10.0.0.0/8", "fd00::/8" or an address without a prefix, which matches that address only. Host bits may be
// set, as NCCL allows. Returns nullopt for any other text.
std::optional<Cidr> parse_cidr(std::string_view text);
std::string to_string(const Cidr& cidr);
// Returns the longest prefix that contains every address. Returns nullopt for an empty list or mixed families.
std::optional<Cidr> common_prefix(const std::vector<Address>& addresses);

}  // namespace fabric
