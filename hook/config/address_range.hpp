// The addresses that config.json lets this program give.
#pragma once

#include <optional>

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
  bool is_for(unsigned which) const { return !rail || *rail == which; }
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

}  // namespace hook
