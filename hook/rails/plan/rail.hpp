// The rails of a container: what its netdevs are to be, decided before anything is touched.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/address.hpp"

namespace hook {

// What the netdev inside is: the node's own one, moved; or a child of it.
enum class RailKind { kMove, kMacvlan, kIpvlan, kIpoib };

// "move", "macvlan", "ipvlan", "ipoib".
std::string_view to_string(RailKind kind);
std::optional<RailKind> parse_rail_kind(std::string_view text);

using MacAddress = std::array<std::uint8_t, 6>;
// "02:00:00:00:00:01"; nullopt: six hex bytes are not there.
std::optional<MacAddress> parse_mac(std::string_view text);
std::string to_string(const MacAddress& mac);
// "00:11:22:33:44:55:66:77", as `ip link set vf` takes an InfiniBand GUID; host byte order. nullopt: eight hex bytes
// are not there.
std::optional<std::uint64_t> parse_guid(std::string_view text);

struct RailAddress {
  fabric::Address address;
  unsigned prefix = 32;                    // bits of the address's own family
  std::optional<fabric::Address> gateway;  // of the same family
  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};

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

struct Rail {
  unsigned rail = 0;
  std::string hca;
  std::string host;  // the netdev on the node that moves or gets the child
  std::string name;  // inside
  RailKind kind = RailKind::kMacvlan;
  bool macvlan_private = false;         // else bridge: children of one parent reach each other
  std::optional<std::uint16_t> pkey;    // kIpoib
  std::optional<unsigned> mtu;          // bytes; nullopt: the parent's, or what it was
  std::vector<RailAddress> addresses;   // kMove and empty: its own are carried over
  std::optional<unsigned> table;        // of its own routes; nullopt: no policy routing
  VfAttributes vf;                      // kMove of a VF
  bool move_rdma = false;               // the RDMA subsystem is exclusive: the RDMA device moves as well
  std::optional<std::string> recreate;  // "rxe", "siw": a software device, which cannot move, is made anew inside
  friend bool operator==(const Rail&, const Rail&) = default;
};

}  // namespace hook
