#include "hook/rails/address/node_ranges.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "base/file.hpp"
#include "base/process/owner_remedy.hpp"
#include "base/process/sandbox.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "fabric/read_network.hpp"
#include "hook/config/node_index.hpp"
#include "hook/config/node_slice.hpp"

namespace hook {
namespace {

using fabric::Address;

constexpr const char* kWriteIt = "write only the number into it, counted from 0";

Result<std::uint64_t> index_in_file(const std::string& path) {
  constexpr std::size_t kLongest = 64;
  const base::UniqueFd fd = base::open_to_read(AT_FDCWD, path.c_str());
  struct stat seen {};
  if (!fd.ok() || ::fstat(fd.get(), &seen) != 0) {
    Error error = sys_error(errno, "cannot read this node's index in `{}`", path);
    error.hint = kWriteIt;
    return error;
  }
  // A user other than root must not change the file: a wrong index would allocate the addresses of another node.
  if (!S_ISREG(seen.st_mode))
    return Error{fmt::format("cannot read this node's index in `{}`: it is not a regular file", path), EINVAL,
                 "name a file that contains only the number"};
  if (seen.st_uid != 0 || (seen.st_mode & 022) != 0)
    return Error{fmt::format("cannot read this node's index in `{}`: users other than root can write it", path), EPERM,
                 owner_remedy(path, seen)};
  const auto read = base::read_all(fd.get(), kLongest);
  const auto* text = std::get_if<std::string>(&read);
  const auto number = text ? base::parse_number<std::uint64_t>(base::trim(*text)) : std::nullopt;
  if (number) return *number;
  return Error{fmt::format("cannot read this node's index in `{}`: it has no number", path), EINVAL, kWriteIt};
}

Result<std::uint64_t> index_in_name(const NodeIndex& by) {
  const char* name = std::getenv(kNodeName);
  constexpr const char* kContext = "cannot read this node's index in NODE_NAME";
  if (!name || *name == '\0')
    return Error{fmt::format("{}: the variable is not set", kContext), EINVAL,
                 "set NODE_NAME to the name of the node, for the program (for a hook: `env` of its entry)"};
  auto index = index_of_name(by, name);
  if (index) return index;
  return base::wrap(std::move(index).error(), kContext);
}

// Returns the number of the slice that contains one of the node's own addresses on the rail. All nodes can then have
// the same config.json, because each node finds its slice by its addresses.
Result<std::uint64_t> index_by_address(const AddressRange& range, unsigned rail, const std::vector<Address>& own) {
  for (const Address& address : own)
    if (const auto index = slice_with(range, address)) return *index;
  return Error{fmt::format("cannot find this node's slice of {}/{}: the node has no address of this subnet on rail {}",
                           to_string(range.subnet), range.prefix, rail),
               EADDRNOTAVAIL, "add the address to the rail's netdev, or write `node_index` as an object of node names"};
}

Result<std::uint64_t> index_for(const NodeIndex& by, const AddressRange& range, unsigned rail,
                                const std::vector<Address>& own) {
  switch (by.by) {
    case NodeIndex::By::kFile:
      return index_in_file(by.file);
    case NodeIndex::By::kAddress:
      return index_by_address(range, rail, own);
    case NodeIndex::By::kName:
    case NodeIndex::By::kNames:
      return index_in_name(by);
    default:
      return by.number;
  }
}

constexpr unsigned kVfPrefix = 64;
constexpr std::size_t kKindByte = 7;  // the last byte of the prefix
constexpr std::size_t kFirstByte = 8;

// Converts a MAC address or GUID to an IPv6 address, fd00:0:0:1::MAC or fd00:0:0:2::GUID, because AddressPool books
// only IP addresses. The two prefixes differ, so that a MAC address and a GUID with the same number can both be booked.
Address booked_address_of(VfRange::Kind kind, std::uint64_t value) {
  Address address;
  address.bytes[0] = 0xfd;
  address.bytes[kKindByte] = kind == VfRange::Kind::kMac ? 1 : 2;
  for (std::size_t i = address.bytes.size(); i > kFirstByte; --i, value >>= 8)
    address.bytes[i - 1] = static_cast<std::uint8_t>(value);
  return address;
}

std::uint64_t value_of_booked(const Address& address) {
  std::uint64_t value = 0;
  for (std::size_t i = kFirstByte; i < address.bytes.size(); ++i)
    value = value << 8 | address.bytes[i];
  return value;
}

// Returns the MAC addresses and GUIDs that config.json sets as single values, for all networks. A range must not
// allocate these values to another function.
std::vector<Address> named_values(const Config& config) {
  using Kind = VfRange::Kind;
  std::vector<Address> named;
  for (const auto& entry : config.networks) {
    const VfAttributes& vf = entry.second.vf;
    if (vf.mac) named.push_back(booked_address_of(Kind::kMac, to_number(*vf.mac)));
    for (const auto& guid : {vf.node_guid, vf.port_guid})
      if (guid) named.push_back(booked_address_of(Kind::kGuid, *guid));
  }
  return named;
}

Error used_up(const VfRange& range, const Network& network, const Rail& rail) {
  return Error{fmt::format("network `{}`: cannot allocate a {} of {} for `{}`: no value of the range is free",
                           network.name, range.kind == VfRange::Kind::kMac ? "MAC address" : "GUID", to_string(range),
                           base::printable(rail.hca)),
               EADDRNOTAVAIL, "run `rdma-hook recover`, or widen the range in config.json"};
}

Result<std::uint64_t> take_one(const Config& config, const Network& network, VfRange range, const TakeVfValue& take,
                               const Rail& rail) {
  if (range.per_node) {
    auto slice = slice_of(range, TRY(node_number(config)));
    if (!slice) return base::wrap(std::move(slice).error(), fmt::format("network `{}`", network.name));
    range = *slice;
  }
  AddressRange booked;
  booked.subnet = fabric::masked(booked_address_of(range.kind, 0), kVfPrefix);
  booked.prefix = kVfPrefix;
  booked.from = booked_address_of(range.kind, range.from);
  booked.to = booked_address_of(range.kind, range.to);
  booked.own = named_values(config);  // take() never allocates these values
  const auto taken = take({booked});
  if (!taken && taken.error().code == EADDRNOTAVAIL) return used_up(range, network, rail);
  if (!taken) return taken.error();
  return value_of_booked(taken->at(0).address);
}

}  // namespace

Result<std::vector<AddressRange>> node_ranges(const Config& config, const Network& network, unsigned rail,
                                              const ReadOwnAddresses& own) {
  std::vector<AddressRange> ranges;
  for (const AddressRange& range : network.ranges) {
    if (!range.is_for(rail)) continue;
    if (!range.per_node) {
      ranges.push_back(range);
      continue;
    }
    const auto addresses = TRY(own());
    const std::uint64_t index = TRY(index_for(config.node_index.value_or(NodeIndex()), range, rail, addresses));
    auto slice = slice_of(range, index);
    if (!slice) return base::wrap(std::move(slice).error(), fmt::format("network `{}`", network.name));
    slice->own = addresses;
    ranges.push_back(*std::move(slice));
  }
  return ranges;
}

Result<std::uint64_t> node_number(const Config& config) {
  return index_for(config.node_index.value_or(NodeIndex()), AddressRange{}, 0, {});
}

std::vector<Address> addresses_on(const std::vector<fabric::Netdev>& netdevs, const std::string& name) {
  std::vector<Address> addresses;
  for (const fabric::Netdev& netdev : netdevs) {
    if (netdev.name != name) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses)
      addresses.push_back(own.address);
  }
  return addresses;
}

Result<void> take_vf_values(const Config& config, const Network& network, const TakeVfValue& take, Rail& rail) {
  // A child has no VF of its own, so it gets no MAC address or GUID of a VF.
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
