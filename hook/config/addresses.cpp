// Reads "addresses" of a network: the ranges for the addresses of its rails.

#include "hook/config/node_slice.hpp"
#include "hook/config/reader.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::Cidr;
using fabric::to_string;

constexpr unsigned kIpv4Offset = 96;  // an IPv4 address is in the last bytes of its 16-byte form
constexpr unsigned kBits = 128;

// Returns the address minus one.
Address previous(Address address) {
  for (auto byte = address.bytes.rbegin(); byte != address.bytes.rend() && (*byte)-- == 0; ++byte) {
  }
  return address;
}

// Returns the first address of a subnet (all host bits 0) or the last one.
Address edge_of(const Cidr& subnet, bool last) {
  Address address = last_of(subnet.base, subnet.prefix);
  for (unsigned bit = subnet.prefix; !last && bit < kBits; ++bit)
    address.bytes[bit / 8] ^= static_cast<std::uint8_t>(0x80U >> (bit % 8));
  return address;
}

// Returns true for a multicast address, which no interface can have.
bool is_multicast(const Address& address) {
  constexpr std::uint8_t kIpv4 = 0xe0;  // first byte of a multicast address, 224.0.0.0/4
  constexpr std::uint8_t kIpv6 = 0xff;  // first byte of a multicast address, ff00::/8
  return address.is_ipv4() ? (address.bytes[12] & 0xf0U) == kIpv4 : address.bytes[0] == kIpv6;
}

// Returns the RFC that reserves the subnet for documentation; nullptr if none does.
const char* documented_by(const Cidr& subnet) {
  const auto& bytes = subnet.base.bytes;
  const auto word_at = [&](std::size_t at) {
    return std::uint32_t{bytes[at]} << 24U | std::uint32_t{bytes[at + 1]} << 16U | std::uint32_t{bytes[at + 2]} << 8U |
           bytes[at + 3];
  };
  if (subnet.base.is_ipv4()) {
    const std::uint32_t network =
        word_at(12) >> 8U;  // documentation uses 192.0.2.0/24, 198.51.100.0/24 and 203.0.113.0/24
    const bool is_known = network == 0xc00002 || network == 0xc63364 || network == 0xcb0071;
    return is_known && subnet.prefix >= kIpv4Offset + 24 ? "RFC 5737" : nullptr;
  }
  if (word_at(0) == 0x20010db8 && subnet.prefix >= 32) return "RFC 3849";      // network 2001:db8::/32
  if (word_at(0) >> 12U == 0x3fff0 && subnet.prefix >= 20) return "RFC 9637";  // network 3fff::/20
  return nullptr;
}

// Returns the first and last address for hosts. Excluded are the first address (the network's; in IPv6 the routers'
// anycast address, RFC 4291 section 2.6.1) and the IPv4 broadcast address, except in subnets of two addresses (RFC
// 3021, RFC 6164) or one.
std::pair<Address, Address> hosts_of(const Cidr& subnet) {
  // Cidr::prefix counts 128 bits for both families.
  const bool small = subnet.prefix + 1 >= kBits;
  const Address first = edge_of(subnet, false);
  const Address last = edge_of(subnet, true);
  return {small ? first : next_address(first), small || !first.is_ipv4() ? last : previous(last)};
}

struct Named {
  Address address;
  ConfigValue place;
};

class RangeReader {
 public:
  RangeReader(ConfigReader& reader, ConfigValue value) : reader_(&reader), value_(std::move(value)) {}

  // Reads one element of "addresses". Notes problems, and returns nullopt if the values are not a valid range. An
  // unknown key is a noted problem, but the range is still returned.
  std::optional<AddressRange> read() {
    const auto into = [&](std::optional<Named>& target) {
      return [&](const ConfigValue& v) { read_address(v, target); };
    };
    reader_->members(value_, {{"rail",
                               [&](const auto& v) {
                                 // An invalid rail must not become "every rail".
                                 reader_->number_into(rail_, 0, kMostRail)(v);
                                 wrong_ |= !rail_;
                               }},
                              {"subnet", [&](const auto& v) { read_subnet(v); }},
                              {"from", into(from_)},
                              {"to", into(to_)},
                              {"gateway", into(gateway_)},
                              {"per_node", [&](const auto& v) { read_per_node(v); }}});
    if (wrong_ || !value_.json().is_object()) return std::nullopt;
    if (!subnet_) {
      refuse(value_, "has no subnet", "add \"subnet\": \"10.1.0.0/16\"");
      return std::nullopt;
    }
    return range();
  }

 private:
  static constexpr std::uint64_t kMostRail = 65535;

  void refuse(const ConfigValue& place, const std::string& message, std::string remedy) {
    wrong_ = true;
    reader_->error(place, message, std::move(remedy));
  }

  void read_address(const ConfigValue& value, std::optional<Named>& target) {
    const auto address = reader_->parsed(value, fabric::parse_address, "is not an address",
                                         "write it as \"10.1.1.10\" or \"fd00:1::10\"");
    wrong_ |= !address;
    if (address) target = {*address, value};
  }

  void read_subnet(const ConfigValue& value) {
    constexpr const char* kRemedy = "write a subnet of your network: \"10.1.0.0/16\" or \"fd00:1::/64\"";
    // A single address without prefix is refused: usually the prefix was forgotten.
    const auto text = reader_->text(value);
    wrong_ |= !text;
    if (!text) return;
    const auto subnet = text->find('/') == std::string::npos ? std::nullopt : fabric::parse_cidr(*text);
    if (!subnet) return refuse(value, fmt::format("`{}` is not a subnet", shown(*text)), kRemedy);
    const Address first = edge_of(*subnet, false);
    if (first != subnet->base)
      return refuse(value, fmt::format("`{}` has host bits set", shown(*text)),
                    fmt::format("write \"{}\"", to_string(Cidr{first, subnet->prefix})));
    // Refuses subnets with prefix length 0 or address 0, and loopback, link-local and multicast subnets.
    const bool any = first.is_zero() || subnet->prefix <= (first.is_ipv4() ? kIpv4Offset : 0);
    if (any || first.is_loopback() || first.is_link_local() || is_multicast(first))
      return refuse(value, fmt::format("`{}` has no addresses for containers", shown(*text)), kRemedy);
    // Ranges for documentation are refused: samples have one where an administrator must write a subnet. Also,
    // rdma-hook fills GID tables with placeholder addresses of 192.0.2.0/24.
    if (const char* rfc = documented_by(*subnet))
      return refuse(value, fmt::format("`{}` is in a range for documentation ({})", shown(*text), rfc), kRemedy);
    subnet_ = subnet;
  }

  void read_per_node(const ConfigValue& value) {
    constexpr std::uint64_t kLongest = 128;
    reader_->number_into(per_node_, 1, kLongest)(value);
    wrong_ |= !per_node_;
    // `from` and `to` are refused with `per_node`: they would be the same on all nodes, so all nodes would allocate the
    // same addresses.
    const auto of_place = reader_->find(value_, "from") ? "from" : reader_->find(value_, "to") ? "to" : nullptr;
    if (of_place)
      refuse(value, fmt::format("`{}` cannot be combined with `per_node`", of_place), "remove `from` and `to`");
  }

  // The first slice loses the subnet's network address and often the gateway, the last slice the broadcast address. A
  // slice of at least four addresses keeps two.
  void check_per_node(AddressRange& range) {
    const unsigned longest = (range.subnet.is_ipv4() ? 32 : 128) - 2;
    if (*per_node_ > range.prefix && *per_node_ <= longest) {
      range.per_node = per_node_;
      return;
    }
    refuse(value_,
           fmt::format("a slice of /{} is too large for {} or has no addresses for containers", *per_node_,
                       to_string(*subnet_)),
           fmt::format("write \"per_node\" from {} to {}", range.prefix + 1, longest));
  }

  bool is_inside(const Address& address) const {
    return address.family() == subnet_->base.family() && subnet_->contains(address);
  }

  void check_inside(const std::optional<Named>& named, const std::pair<Address, Address>& hosts) {
    if (!named) return;
    if (!is_inside(named->address)) {
      refuse(named->place, fmt::format("{} is not in {}", to_string(named->address), to_string(*subnet_)),
             "correct the address or the subnet");
    } else if (named->address < hosts.first || named->address > hosts.second) {
      refuse(named->place, fmt::format("{} is the network address or the broadcast address", to_string(named->address)),
             fmt::format("write an address from {} to {}", to_string(hosts.first), to_string(hosts.second)));
    }
  }

  std::optional<AddressRange> range() {
    const auto hosts = hosts_of(*subnet_);
    // Each wrong address is reported, not only the first.
    for (const auto* named : {&from_, &to_, &gateway_})
      check_inside(*named, hosts);
    if (wrong_) return std::nullopt;
    AddressRange range;
    range.rail = rail_;
    range.subnet = subnet_->base;
    range.prefix = subnet_->prefix - (range.subnet.is_ipv4() ? kIpv4Offset : 0);
    range.from = from_ ? from_->address : hosts.first;
    range.to = to_ ? to_->address : hosts.second;
    if (gateway_) {
      range.gateway = gateway_->address;
      // A gateway at the edge of a default range shortens the range.
      if (!from_ && range.from == *range.gateway) range.from = next_address(range.from);
      if (!to_ && range.to == *range.gateway) range.to = previous(range.to);
    }
    check_order(range);
    if (per_node_) check_per_node(range);
    if (wrong_) return std::nullopt;
    return range;
  }

  // Checks that the range has an address. A gateway between `from` and `to` is skipped at allocation.
  void check_order(const AddressRange& range) {
    const bool only_gateway = range.from == range.to && range.gateway == range.from;
    if (range.from <= range.to && !only_gateway) return;
    // The problem is reported at the member `to`, else at `from`, and without both members at the whole element.
    const ConfigValue& place = to_ ? to_->place : from_ ? from_->place : value_;
    refuse(place, fmt::format("no address for containers from {} to {}", to_string(range.from), to_string(range.to)),
           "write the lower address as \"from\", and include more than the gateway");
  }

  ConfigReader* reader_;
  ConfigValue value_;
  // The members of the element before the checks that combine them.
  std::optional<unsigned> rail_;
  std::optional<Cidr> subnet_;
  std::optional<Named> from_;
  std::optional<Named> to_;
  std::optional<Named> gateway_;
  std::optional<unsigned> per_node_;
  bool wrong_ = false;  // a problem is noted: checks that depend on the value are skipped
};

// Refuses overlapping ranges: two rails of one container could get the same address.
void check_together(ConfigReader& reader, const ConfigValue& place, const AddressRange& range,
                    const std::vector<AddressRange>& before) {
  for (const AddressRange& other : before) {
    if (range.from <= other.to && other.from <= range.to) {
      reader.error(place, fmt::format("overlaps the range from {} to {}", to_string(other.from), to_string(other.to)),
                   "write ranges that do not overlap");
      return;
    }
    // Two such ranges are only a warning: two addresses of one family on a rail are unusual, but valid.
    const bool one_rail = !range.rail || !other.rail || range.rail == other.rail;
    if (one_rail && range.subnet.family() == other.subnet.family()) {
      reader.warning(place, "a rail gets an address from each of these two ranges, so two of this family",
                     "write a different \"rail\" for each range, or merge the ranges");
      return;
    }
  }
}

}  // namespace

void read_addresses(ConfigReader& reader, const ConfigValue& value, std::vector<AddressRange>& ranges) {
  ranges.clear();
  for (const ConfigValue& element : reader.elements(value)) {
    const auto range = RangeReader(reader, element).read();
    if (!range) continue;
    check_together(reader, element, *range, ranges);
    ranges.push_back(*range);
  }
}

}  // namespace hook
