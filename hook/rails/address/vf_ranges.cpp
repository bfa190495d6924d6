#include "hook/rails/address/vf_ranges.hpp"

#include <cerrno>
#include <cstddef>

#include "fabric/text.hpp"
#include "hook/config/node_slice.hpp"
#include "hook/rails/address/node_ranges.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::Error;
using fabric::Result;

constexpr unsigned kStockPrefix = 64;
constexpr std::size_t kKindByte = 7;  // the last of the prefix
constexpr std::size_t kFirstByte = 8;

Address to_stock(VfRange::Kind kind, std::uint64_t value) {
  Address address;
  address.bytes[0] = 0xfd;
  address.bytes[kKindByte] = kind == VfRange::Kind::kMac ? 1 : 2;
  for (std::size_t i = address.bytes.size(); i > kFirstByte; --i, value >>= 8)
    address.bytes[i - 1] = static_cast<std::uint8_t>(value);
  return address;
}

std::uint64_t from_stock(const Address& address) {
  std::uint64_t value = 0;
  for (std::size_t i = kFirstByte; i < address.bytes.size(); ++i)
    value = value << 8 | address.bytes[i];
  return value;
}

// What is somebody's already, of all networks.
std::vector<Address> named_values(const Config& config) {
  using Kind = VfRange::Kind;
  std::vector<Address> named;
  for (const auto& entry : config.networks) {
    const VfAttributes& vf = entry.second.vf;
    if (vf.mac) named.push_back(to_stock(Kind::kMac, to_number(*vf.mac)));
    for (const auto& guid : {vf.node_guid, vf.port_guid})
      if (guid) named.push_back(to_stock(Kind::kGuid, *guid));
  }
  return named;
}

Error used_up(const VfRange& range, const Network& network, const Rail& rail) {
  return Error{fmt::format("network `{}`: cannot give `{}` a {} of {}: all that may be given are in use", network.name,
                           fabric::printable(rail.hca), range.kind == VfRange::Kind::kMac ? "MAC address" : "GUID",
                           to_string(range)),
               EADDRNOTAVAIL,
               "`rdma-hook recover` returns those of containers that are gone; else widen the range in config.json"};
}

Result<std::uint64_t> take_one(const Config& config, const Network& network, VfRange range, const TakeOfStock& take,
                               const Rail& rail) {
  if (range.per_node) {
    auto slice = slice_of(range, TRY(node_number(config)));
    if (!slice) return fabric::wrap(std::move(slice).error(), fmt::format("network `{}`", network.name));
    range = *slice;
  }
  AddressRange stock;
  stock.subnet = fabric::masked(to_stock(range.kind, 0), kStockPrefix);
  stock.prefix = kStockPrefix;
  stock.from = to_stock(range.kind, range.from);
  stock.to = to_stock(range.kind, range.to);
  stock.own = named_values(config);
  const auto taken = take({stock});
  if (!taken && taken.error().code == EADDRNOTAVAIL) return used_up(range, network, rail);
  if (!taken) return taken.error();
  return from_stock(taken->at(0).address);
}

}  // namespace

Result<void> take_vf_values(const Config& config, const Network& network, const TakeOfStock& take, Rail& rail) {
  if (rail.kind != RailKind::kMove) return {};
  if (network.vf_macs && !rail.vf.mac)
    rail.vf.mac = to_mac(TRY(take_one(config, network, *network.vf_macs, take, rail)));
  if (network.vf_guids && !rail.vf.node_guid) {
    const std::uint64_t guid = TRY(take_one(config, network, *network.vf_guids, take, rail));
    rail.vf.node_guid = rail.vf.port_guid = guid;
  }
  return {};
}

}  // namespace hook
