// A rail of a container as planned, before any change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.hpp"
#include "fabric/address.hpp"
#include "hook/config/config.hpp"

namespace hook {

// The kind of netdev in the container: the node's own netdev, which moves, or a child of it.
enum class RailKind { kMove, kMacvlan, kIpvlan, kIpoib };

inline constexpr Word<RailKind> kRailKinds[] = {{"move", RailKind::kMove},
                                                {"macvlan", RailKind::kMacvlan},
                                                {"ipvlan", RailKind::kIpvlan},
                                                {"ipoib", RailKind::kIpoib}};
inline std::string_view to_string(RailKind kind) {
  return to_word(kRailKinds, kind);
}

struct RailAddress {
  fabric::Address address;
  unsigned prefix = 32;                    // length in bits of the address's family
  std::optional<fabric::Address> gateway;  // has the family of the address
  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};

// Calls use(name, member) for each attribute of a VF except the MAC address.
void each_vf_attribute(auto use) {
  use("vlan", &VfAttributes::vlan);
  use("qos", &VfAttributes::qos);
  use("vlan_protocol", &VfAttributes::vlan_protocol);
  use("trust", &VfAttributes::trust);
  use("spoofchk", &VfAttributes::spoofchk);
  use("link_state", &VfAttributes::link_state);
  use("min_tx_rate", &VfAttributes::min_tx_rate);
  use("max_tx_rate", &VfAttributes::max_tx_rate);
  use("node_guid", &VfAttributes::node_guid);
  use("port_guid", &VfAttributes::port_guid);
}

struct Rail {
  unsigned rail = 0;
  std::string hca;
  std::string host;  // the netdev on the node that moves or gets the child
  std::string name;  // name of the netdev in the container
  RailKind kind = RailKind::kMacvlan;
  bool macvlan_private = false;        // false: bridge mode, in which children of one parent reach each other
  std::optional<std::uint16_t> pkey;   // partition key, only of kind kIpoib
  std::optional<unsigned> mtu;         // bytes; nullopt: a child gets its parent's MTU, a moved netdev keeps its MTU
  std::vector<RailAddress> addresses;  // empty: a moved netdev keeps its addresses
  std::optional<unsigned> table;       // routing table of the rail; nullopt: the rail has no policy routing
  VfAttributes vf;                     // attributes that are set if a VF moves
  bool move_rdma = false;              // true: the RDMA device moves too, because the RDMA subsystem is exclusive
  // "rxe", "siw": type of a software device, which cannot move and is therefore made again in the container.
  std::optional<std::string> recreate;
  friend bool operator==(const Rail&, const Rail&) = default;
};

}  // namespace hook
