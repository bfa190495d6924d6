// Reads "vf" of a network: the attributes of its SR-IOV virtual functions, with MAC addresses and GUIDs.
#include <fmt/format.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>

#include <tuple>

#include "base/text.hpp"
#include "hook/config/node_slice.hpp"
#include "hook/config/reader.hpp"
#include "hook/config/values.hpp"

namespace hook {
namespace {

// Parses bytes such as "02:00:..." with two hexadecimal digits each. Returns nullopt if there are not `size` bytes.
template <std::size_t size>
std::optional<std::array<std::uint8_t, size>> parse_bytes(std::string_view text) {
  constexpr std::size_t kDigitsPerByte = 2;
  const auto parts = base::split(text, ':');
  if (parts.size() != size) return std::nullopt;
  std::array<std::uint8_t, size> bytes{};
  for (std::size_t i = 0; i < size; ++i) {
    const auto byte = base::parse_number<std::uint8_t>(parts[i], 16);
    if (!byte || parts[i].size() != kDigitsPerByte) return std::nullopt;
    bytes[i] = *byte;
  }
  return bytes;
}

// Returns the number that the bytes form in big-endian order.
template <std::size_t size>
std::uint64_t number_of(const std::array<std::uint8_t, size>& bytes) {
  std::uint64_t number = 0;
  for (const std::uint8_t byte : bytes)
    number = number << 8 | byte;
  return number;
}

template <std::size_t size>
std::array<std::uint8_t, size> bytes_of_number(std::uint64_t number) {
  std::array<std::uint8_t, size> bytes{};
  for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte, number >>= 8)
    *byte = static_cast<std::uint8_t>(number);
  return bytes;
}

constexpr Word<unsigned> kLinkStates[] = {
    {"auto", IFLA_VF_LINK_STATE_AUTO}, {"enable", IFLA_VF_LINK_STATE_ENABLE}, {"disable", IFLA_VF_LINK_STATE_DISABLE}};
constexpr Word<std::uint16_t> kVlanProtocols[] = {{"802.1q", ETH_P_8021Q}, {"802.1ad", ETH_P_8021AD}};

// Reads a MAC address that `ip link set PF vf N mac` accepts and a netdev can use.
void read_mac(ConfigReader& reader, const ConfigValue& value, std::optional<MacAddress>& target) {
  constexpr std::uint8_t kGroup = 1;
  const auto text = reader.text(value);
  if (!text) return;
  const auto mac = parse_mac(*text);
  if (!mac) {
    reader.error(value, fmt::format("`{}` is not a MAC address", shown(*text)), "write it as \"02:00:00:00:00:01\"");
  } else if (((*mac)[0] & kGroup) != 0 || *mac == MacAddress{}) {
    reader.error(value, fmt::format("`{}` is a group address or zero", shown(*text)),
                 "write an even first byte, 02 for local addresses: \"02:00:00:00:00:01\"");
  } else {
    target = mac;
  }
}

// Returns the GUID; nullopt: invalid, or 0, which identifies no node or port.
std::optional<std::uint64_t> some_guid(std::string_view text) {
  const auto guid = parse_guid(text);
  return guid == std::uint64_t{0} ? std::nullopt : guid;
}

std::optional<std::uint64_t> mac_number(std::string_view text) {
  const auto mac = parse_mac(text);
  return mac && to_number(*mac) != 0 ? std::optional(to_number(*mac)) : std::nullopt;
}

// Reads "macs" or "guids". The lowest bit of a MAC address's first byte marks a group address, so both ends of a range
// of MAC addresses must have the same, even first byte.
void read_vf_range(ConfigReader& reader, const ConfigValue& value, VfRange::Kind kind, std::optional<VfRange>& target) {
  constexpr std::uint64_t kGroup = std::uint64_t{1} << 40;
  constexpr unsigned kFirstByte = 40;
  const bool mac = kind == VfRange::Kind::kMac;
  std::optional<std::uint64_t> from;
  std::optional<std::uint64_t> to;
  std::optional<unsigned> per_node;
  const auto into = [&](std::optional<std::uint64_t>& end) {
    return mac ? reader.text_into(end, mac_number, "is not the MAC address of a netdev",
                                  "write six bytes, not all zero: \"02:00:00:00:00:01\"")
               : reader.text_into(end, some_guid, "is not a GUID",
                                  "write eight bytes, not all zero: \"02:11:22:33:44:55:66:77\"");
  };
  reader.members(value,
                 {{"from", into(from)}, {"to", into(to)}, {"per_node", reader.number_into(per_node, 1, UINT32_MAX)}});
  for (const char* end : {"from", "to"}) {
    if (value.json().is_object() && !ConfigReader::find(value, end))
      reader.error(value, fmt::format("has no `{}`", end), "write both ends; the range includes them");
  }
  // An invalid "per_node" must not become "all values belong to this node".
  if (!from || !to || (!per_node && ConfigReader::find(value, "per_node"))) return;
  const VfRange range{kind, *from, *to, per_node};
  if (*from > *to) {
    reader.error(value, fmt::format("the range from {} to {} is empty", to_string(kind, *from), to_string(kind, *to)),
                 "write the lower value as \"from\"");
  } else if (mac && ((*from & kGroup) != 0 || *from >> kFirstByte != *to >> kFirstByte)) {
    reader.error(value, fmt::format("{} contains group addresses", to_string(range)),
                 "write the same even first byte at both ends, 02 for local addresses");
  } else if (per_node && slice_count(range) == 0) {
    reader.error(value, fmt::format("{} is smaller than one slice of {}", to_string(range), *per_node),
                 "write a lower \"per_node\" or a wider range");
  } else {
    target = range;
  }
}

// Checks members that exclude or require each other.
void check_vf(ConfigReader& reader, const ConfigValue& value, const VfAttributes& vf) {
  const auto beside = [&](const char* all, std::initializer_list<const char*> one) {
    for (const char* name : one) {
      const auto place = ConfigReader::find(value, name);
      if (place && ConfigReader::find(value, all))
        reader.error(*place, fmt::format("cannot be combined with \"{}\"", all), "remove one of the two");
    }
  };
  beside("macs", {"mac"});
  beside("guids", {"node_guid", "port_guid"});
  if ((vf.qos || vf.vlan_protocol) && !ConfigReader::find(value, "vlan"))
    reader.error(value, "\"qos\" and \"vlan_protocol\" require \"vlan\"", "add \"vlan\"");
  if (vf.min_tx_rate && vf.max_tx_rate && *vf.max_tx_rate != 0 && *vf.min_tx_rate > *vf.max_tx_rate)
    reader.error(value, fmt::format("min_tx_rate {} is above max_tx_rate {}", *vf.min_tx_rate, *vf.max_tx_rate),
                 "write a lower min_tx_rate, or max_tx_rate 0 for no limit");
}

}  // namespace

std::optional<MacAddress> parse_mac(std::string_view text) {
  return parse_bytes<std::tuple_size_v<MacAddress>>(text);
}

std::string to_string(const MacAddress& mac) {
  return fmt::format("{:02x}", fmt::join(mac, ":"));
}

std::optional<std::uint64_t> parse_guid(std::string_view text) {
  const auto bytes = parse_bytes<sizeof(std::uint64_t)>(text);
  return bytes ? std::optional(number_of(*bytes)) : std::nullopt;
}

std::string to_string(VfRange::Kind kind, std::uint64_t value) {
  if (kind == VfRange::Kind::kMac) return to_string(to_mac(value));
  return fmt::format("{:02x}", fmt::join(bytes_of_number<sizeof value>(value), ":"));
}

std::string to_string(const VfRange& range) {
  return fmt::format("{}-{}", to_string(range.kind, range.from), to_string(range.kind, range.to));
}

std::uint64_t to_number(const MacAddress& mac) {
  return number_of(mac);
}

// Returns the low 48 bits as a MAC address.
MacAddress to_mac(std::uint64_t value) {
  return bytes_of_number<std::tuple_size_v<MacAddress>>(value);
}

void read_vf(ConfigReader& reader, const ConfigValue& value, Network& network) {
  constexpr unsigned kMostVlan = 4094;
  constexpr unsigned kMostQos = 7;
  VfAttributes& vf = network.vf;
  // "vf" of a later file replaces the earlier one as a whole.
  vf = {};
  network.vf_macs.reset();
  network.vf_guids.reset();
  const auto range = [&](VfRange::Kind kind, std::optional<VfRange>& target) {
    return [&reader, kind, &target](const ConfigValue& v) { read_vf_range(reader, v, kind, target); };
  };
  const auto guid = [&](std::optional<std::uint64_t>& target) {
    return reader.text_into(target, some_guid, "is not a GUID",
                            "write eight bytes, not all zero: \"00:11:22:33:44:55:66:77\"");
  };
  reader.members(value, {{"mac", reader.into(vf.mac, read_mac)},
                         {"vlan", reader.number_into(vf.vlan, 0, kMostVlan)},
                         {"qos", reader.number_into(vf.qos, 0, kMostQos)},
                         {"vlan_protocol", reader.word_into(vf.vlan_protocol, kVlanProtocols)},
                         {"trust", reader.flag_into(vf.trust)},
                         {"spoofchk", reader.flag_into(vf.spoofchk)},
                         {"link_state", reader.word_into(vf.link_state, kLinkStates)},
                         {"min_tx_rate", reader.number_into(vf.min_tx_rate, 0, UINT32_MAX)},
                         {"max_tx_rate", reader.number_into(vf.max_tx_rate, 0, UINT32_MAX)},
                         {"node_guid", guid(vf.node_guid)},
                         {"port_guid", guid(vf.port_guid)},
                         {"macs", range(VfRange::Kind::kMac, network.vf_macs)},
                         {"guids", range(VfRange::Kind::kGuid, network.vf_guids)}});
  check_vf(reader, value, vf);
}

}  // namespace hook
