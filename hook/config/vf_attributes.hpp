// What an SR-IOV virtual function is to have: MAC address, VLAN, rates, InfiniBand GUIDs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hook {

using MacAddress = std::array<std::uint8_t, 6>;
// "02:00:00:00:00:01"; nullopt: six hex bytes are not there.
std::optional<MacAddress> parse_mac(std::string_view text);
std::string to_string(const MacAddress& mac);
// "00:11:22:33:44:55:66:77", as `ip link set vf` takes an InfiniBand GUID; host byte order. nullopt: eight hex bytes
// are not there.
std::optional<std::uint64_t> parse_guid(std::string_view text);

// Attributes of an SR-IOV virtual function, set through its physical function (IFLA_VF_*, Linux 6.12
// include/uapi/linux/if_link.h). nullopt: left as it is.
struct VfAttributes {
  std::optional<MacAddress> mac;
  std::optional<unsigned> vlan;  // 0: none
  std::optional<unsigned> qos;
  std::optional<std::uint16_t> vlan_protocol;  // 0x8100, 0x88a8; host byte order
  std::optional<bool> trust;
  std::optional<bool> spoofchk;
  std::optional<unsigned> link_state;   // IFLA_VF_LINK_STATE_AUTO, _ENABLE, _DISABLE
  std::optional<unsigned> min_tx_rate;  // Mb/s; 0: none
  std::optional<unsigned> max_tx_rate;
  std::optional<std::uint64_t> node_guid;  // InfiniBand; host byte order
  std::optional<std::uint64_t> port_guid;
  bool empty() const { return *this == VfAttributes{}; }
  friend bool operator==(const VfAttributes&, const VfAttributes&) = default;
};

}  // namespace hook
