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

// "macs" and "guids": values from..to, both included, of which each function gets its own. As numbers: a MAC address in
// the low 48 bits.
struct VfRange {
  enum class Kind { kMac, kGuid };
  Kind kind = Kind::kMac;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::optional<unsigned> per_node =
      {};  // so many from `from` on are node 0's, the next node 1's; nullopt: all this node's
  friend bool operator==(const VfRange&, const VfRange&) = default;
};
// "02:00:00:00:00:01", "00:11:22:33:44:55:66:77".
std::string to_string(VfRange::Kind kind, std::uint64_t value);
std::string to_string(const VfRange& range);  // "FROM-TO"
std::uint64_t to_number(const MacAddress& mac);
MacAddress to_mac(std::uint64_t value);

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
