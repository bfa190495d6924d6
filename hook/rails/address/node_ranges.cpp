#include "hook/rails/address/node_ranges.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

#include "fabric/netlink.hpp"
#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/process/sandbox.hpp"
#include "hook/config/node_slice.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::Error;
using fabric::Result;

constexpr const char* kWriteIt = "write the number alone into it, from 0";

Result<std::uint64_t> index_in_file(const std::string& path) {
  constexpr std::size_t kLongest = 64;
  const fabric::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat seen {};
  if (!fd.ok() || ::fstat(fd.get(), &seen) != 0) {
    Error error = fabric::sys_error(errno, "cannot read this node's index in `{}`", path);
    error.hint = kWriteIt;
    return error;
  }
  if (!S_ISREG(seen.st_mode) || seen.st_uid != 0 || (seen.st_mode & 022) != 0) {
    return Error{fmt::format("`{}`, which has this node's index, can be written by others than root", path), EPERM,
                 fmt::format("chown root:root {0} && chmod 644 {0}", path)};
  }
  const auto read = fabric::sysfs::read_all(fd.get(), kLongest);
  const auto* text = std::get_if<std::string>(&read);
  const auto number = text ? fabric::parse_number<std::uint64_t>(fabric::trim(*text)) : std::nullopt;
  if (number) return *number;
  return Error{fmt::format("`{}` has no number in it, which is to be this node's index", path), EINVAL, kWriteIt};
}

Result<std::uint64_t> index_in_name() {
  const char* name = std::getenv(kNodeName);
  const auto number = name ? trailing_number(name) : std::nullopt;
  if (number) return *number;
  return Error{
      name ? fmt::format("NODE_NAME is `{}`, which ends with no number: this node's index is not known",
                         fabric::printable(name))
           : std::string("the variable NODE_NAME, which ends with this node's index, is not set here"),
      EINVAL,
      "set `node_index` to a number or a file, or the variable where the program is started (`env` of a hook's entry)"};
}

Result<std::uint64_t> index_by_address(const AddressRange& range, unsigned rail, const std::vector<Address>& own) {
  for (const Address& address : own)
    if (const auto index = slice_with(range, address)) return *index;
  return Error{fmt::format("the node has no address of {}/{} on rail {}, which would tell its slice",
                           to_string(range.subnet), range.prefix, rail),
               EADDRNOTAVAIL, "give the rail's netdev its address, or set `node_index` to a number or a file"};
}

Result<std::uint64_t> index_for(const NodeIndex& by, const AddressRange& range, unsigned rail,
                                const std::vector<Address>& own) {
  switch (by.by) {
    case NodeIndex::By::kFile:
      return index_in_file(by.file);
    case NodeIndex::By::kAddress:
      return index_by_address(range, rail, own);
    case NodeIndex::By::kName:
      return index_in_name();
    default:
      return by.number;
  }
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
    if (!slice) return fabric::wrap(std::move(slice).error(), fmt::format("network `{}`", network.name));
    slice->own = addresses;
    ranges.push_back(*std::move(slice));
  }
  return ranges;
}

Result<std::uint64_t> node_number(const Config& config) {
  return index_for(config.node_index.value_or(NodeIndex()), AddressRange{}, 0, {});
}

Result<std::vector<Address>> addresses_of_netdev(const std::string& name) {
  std::vector<Address> addresses;
  for (const fabric::Netdev& netdev : TRY(fabric::netlink::read_netdevs())) {
    if (netdev.name != name) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses)
      addresses.push_back(own.address);
  }
  return addresses;
}

}  // namespace hook
