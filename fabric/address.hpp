// Addresses, GIDs and CIDRs. A RoCE v2 GID *is* the address of a netdev in IPv6 form (IPv4 as ::ffff:a.b.c.d), so one
// type serves both, and "is this GID ours" is one comparison.
// Source: InfiniBand spec 1.5 annex A17 (RoCE v2); kernel drivers/infiniband/core/roce_gid_mgmt.c (6.12).
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
  bool is_ipv4() const;        // ::ffff:0:0/96
  bool is_link_local() const;  // fe80::/10; 169.254/16 is not: NCCL and the kernel treat it as any other IPv4 address
  bool is_loopback() const;    // ::1, 127.0.0.0/8
  Family family() const { return is_ipv4() ? Family::kIpv4 : Family::kIpv6; }

  friend bool operator==(const Address&, const Address&) = default;
  friend auto operator<=>(const Address&, const Address&) = default;
};

// "10.0.0.2", "fe80::1" or sysfs' "fe80:0000:...:0001". nullopt when it is none of them.
std::optional<Address> parse_address(std::string_view text);
// Dotted for IPv4-mapped, RFC 5952 otherwise.
std::string to_string(const Address& address);
// As /sys/class/infiniband/*/ports/*/gids/* prints it: eight groups of four digits.
std::string to_gid_string(const Address& address);

// The address with its host bits cleared. prefix: in bits of the address's own family.
Address masked(Address address, unsigned prefix);

struct Cidr {
  Address base;
  unsigned prefix = 0;  // bits of the 16-byte form: an IPv4 /24 is 120 here

  bool contains(const Address& address) const;
  friend bool operator==(const Cidr&, const Cidr&) = default;
};

// "10.0.0.0/8", "fd00::/8", or a bare address for itself alone. Host bits may be set, as NCCL allows.
std::optional<Cidr> parse_cidr(std::string_view text);
std::string to_string(const Cidr& cidr);
// The longest prefix that holds every address; nullopt for an empty list or mixed families.
std::optional<Cidr> common_prefix(const std::vector<Address>& addresses);

}  // namespace fabric
