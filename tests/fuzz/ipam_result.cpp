// Any text as the output of a CNI IPAM plugin. Users of the cluster may determine a part of that output.
#include <cstdint>
#include <string>

#include "fabric/address.hpp"
#include "hook/rails/address/ipam.hpp"
#include "require.hpp"

namespace {

using fuzz::require;

unsigned bits_of(const fabric::Address& address) {
  return address.is_ipv4() ? 32 : 128;
}

bool has_host_bits(const fabric::Address& address, unsigned prefix) {
  for (unsigned bit = prefix + 128 - bits_of(address); bit < 128; ++bit)
    if ((address.bytes[bit / 8] >> (7 - bit % 8) & 1) != 0) return true;
  return false;
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  const auto result = hook::parse_ipam_result(text);
  if (!result) return fuzz::require_refusal(result.error(), "the refusal of a plugin's result");
  require(!result->addresses.empty(), "a result has an address");
  for (const hook::RailAddress& address : result->addresses) {
    require(address.prefix <= bits_of(address.address), "a prefix is of its family");
    require(!address.gateway || address.gateway->is_ipv4() == address.address.is_ipv4(),
            "a gateway is of its address's family");
  }
  for (const auto& route : result->routes) {
    require(route.prefix <= bits_of(route.destination), "a route's prefix is of its family");
    require(!has_host_bits(route.destination, route.prefix), "a route's destination has no host bits");
    require(!route.gateway || route.gateway->is_ipv4() == route.destination.is_ipv4(),
            "a route's gateway is of its family");
  }
}
