// "vf" of a network: attributes of SR-IOV virtual functions.
#include <linux/if_ether.h>
#include <linux/if_link.h>

#include "hook/config/config_members.hpp"

namespace hook {
namespace {

// What `ip link set PF vf N mac` takes for a netdev that is to work.
void read_mac(ConfigReader& reader, const ConfigValue& value, VfAttributes& vf) {
  constexpr std::uint8_t kGroup = 1;
  const auto text = reader.text(value);
  if (!text) return;
  const auto mac = parse_mac(*text);
  if (!mac) {
    reader.error(value, fmt::format("`{}` is no MAC address", shown(*text)), "write it as \"02:00:00:00:00:01\"");
  } else if (((*mac)[0] & kGroup) != 0 || *mac == MacAddress{}) {
    reader.error(value, fmt::format("`{}` is no address of one netdev", shown(*text)),
                 "the first byte is even, 02 for addresses of one's own: \"02:00:00:00:00:01\"");
  } else {
    vf.mac = mac;
  }
}

void read_guid(ConfigReader& reader, const ConfigValue& value, std::optional<std::uint64_t>& guid) {
  const auto text = reader.text(value);
  if (!text) return;
  const auto parsed = parse_guid(*text);
  if (parsed && *parsed != 0) {
    guid = parsed;
  } else {
    reader.error(value, fmt::format("`{}` is no GUID", shown(*text)),
                 "write eight bytes, not all zero: \"00:11:22:33:44:55:66:77\"");
  }
}

void read_flag(ConfigReader& reader, const ConfigValue& value, std::optional<bool>& target) {
  bool flag = false;
  reader.boolean(value, flag);
  if (value.json().is_boolean()) target = flag;
}

void read_link_state(ConfigReader& reader, const ConfigValue& value, VfAttributes& vf) {
  const auto word = reader.word(value, {"auto", "enable", "disable"});
  if (!word) return;
  vf.link_state = *word == "auto"     ? IFLA_VF_LINK_STATE_AUTO
                  : *word == "enable" ? IFLA_VF_LINK_STATE_ENABLE
                                      : IFLA_VF_LINK_STATE_DISABLE;
}

void read_vlan_protocol(ConfigReader& reader, const ConfigValue& value, VfAttributes& vf) {
  const auto word = reader.word(value, {"802.1q", "802.1ad"});
  if (word) vf.vlan_protocol = static_cast<std::uint16_t>(*word == "802.1q" ? ETH_P_8021Q : ETH_P_8021AD);
}

}  // namespace

void read_vf(ConfigReader& reader, const ConfigValue& value, VfAttributes& vf) {
  constexpr unsigned kMostVlan = 4094;
  constexpr unsigned kMostQos = 7;
  vf = {};
  const auto number = [&](std::uint64_t highest, std::optional<unsigned>& target) {
    return [&, highest](const ConfigValue& v) { read_number(reader, v, 0, highest, target); };
  };
  reader.members(value, {{"mac", [&](const auto& v) { read_mac(reader, v, vf); }},
                         {"vlan", number(kMostVlan, vf.vlan)},
                         {"qos", number(kMostQos, vf.qos)},
                         {"vlan_protocol", [&](const auto& v) { read_vlan_protocol(reader, v, vf); }},
                         {"trust", [&](const auto& v) { read_flag(reader, v, vf.trust); }},
                         {"spoofchk", [&](const auto& v) { read_flag(reader, v, vf.spoofchk); }},
                         {"link_state", [&](const auto& v) { read_link_state(reader, v, vf); }},
                         {"min_tx_rate", number(UINT32_MAX, vf.min_tx_rate)},
                         {"max_tx_rate", number(UINT32_MAX, vf.max_tx_rate)},
                         {"node_guid", [&](const auto& v) { read_guid(reader, v, vf.node_guid); }},
                         {"port_guid", [&](const auto& v) { read_guid(reader, v, vf.port_guid); }}});
  const bool says_vlan = value.json().is_object() && value.json().contains("vlan");
  if ((vf.qos || vf.vlan_protocol) && !says_vlan) {
    reader.error(value, "\"qos\" and \"vlan_protocol\" are of a VLAN, and there is none", "add \"vlan\"");
  }
  if (vf.min_tx_rate && vf.max_tx_rate && *vf.max_tx_rate != 0 && *vf.min_tx_rate > *vf.max_tx_rate) {
    reader.error(value, fmt::format("min_tx_rate {} is above max_tx_rate {}", *vf.min_tx_rate, *vf.max_tx_rate),
                 "write a lower min_tx_rate, or max_tx_rate 0 for none");
  }
}

}  // namespace hook
