// The addresses that config.json lets this program give.
#pragma once

#include <optional>
#include <vector>

#include "fabric/address.hpp"

namespace hook {

// One range of a rail: addresses from..to of one family, both included, within subnet/prefix.
struct AddressRange {
  std::optional<unsigned> rail;  // nullopt: of every rail; they then share the range, no address is given twice
  fabric::Address subnet;
  unsigned prefix = 24;  // bits of its own family
  fabric::Address from;  // the first that may be given; default: the first of the subnet that is not the gateway
  fabric::Address to;
  std::optional<fabric::Address> gateway;
  // Prefix of the part that one node gives addresses of, in bits of its own family; `from` and `to` are then the whole
  // subnet's until slice_of() (node_slice.hpp) makes them the node's. nullopt: all of it is this node's.
  std::optional<unsigned> per_node = {};
  std::vector<fabric::Address> own = {};  // the node's own, never given
  bool is_for(unsigned which) const { return !rail || *rail == which; }
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

}  // namespace hook
