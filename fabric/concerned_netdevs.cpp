#include "fabric/concerned_netdevs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "fabric/find_netdevs.hpp"
#include "fabric/read_network.hpp"

namespace fabric {
namespace {

// Returns the names of the netdevs that are stacked directly on a netdev, from the links upper_NAME of its directory in
// sysfs (netdev_adjacent_sysfs_add(), net/core/dev.c, Linux 6.12). Returns nullopt if the directory cannot be read, or
// may be of another network namespace than this one. The directory below the PCI function of a port's HCA has the
// port's netdev, and a netdev is in one namespace only. Elsewhere, the ifindex is compared.
std::optional<std::vector<std::string>> read_uppers(const Inventory& inventory, const Netdev& lower) {
  std::optional<base::Directory> directory;
  for (const Hca& hca : inventory.hcas) {
    const auto is_own = [&](const Port& port) { return port.netdev == lower.name; };
    if (hca.pci && !directory && std::ranges::any_of(hca.ports, is_own))
      directory = base::Directory::open(fmt::format("/sys/class/infiniband/{}/device/net/{}", hca.name, lower.name));
  }
  if (!directory) {
    directory = base::Directory::open("/sys/class/net/" + lower.name);
    if (!directory || directory->read_int("ifindex") != lower.ifindex) return std::nullopt;
  }
  constexpr std::string_view kPrefix = "upper_";
  std::vector<std::string> uppers;
  const bool whole = base::next_names(directory->fd(), [&](std::string_view name) {
    if (name.starts_with(kPrefix)) uppers.emplace_back(name.substr(kPrefix.size()));
    return true;
  });
  return whole ? std::optional(std::move(uppers)) : std::nullopt;
}

// Returns the netdevs that concern the ports and the routes. Returns nullopt if this is not known: a request or a read
// failed, or the netdev of a port is in another network namespace, so that any netdev here may be stacked on it.
std::optional<std::vector<Netdev>> find_concerned(const Inventory& inventory,
                                                  const std::vector<netlink::FoundRoute>& routes) {
  netlink::FindNetdevs wanted;
  for (const Hca& hca : inventory.hcas) {
    for (const Port& port : hca.ports) {
      if (port.netdev) wanted.names.push_back(*port.netdev);
      if (!port.netdev && is_open_roce(hca, port)) return std::nullopt;
    }
  }
  for (const netlink::FoundRoute& found : routes)
    wanted.ifindexes.push_back(found.ifindex);
  wanted.uppers_of = [&](const Netdev& lower) { return read_uppers(inventory, lower); };
  auto netdevs = netlink::find_netdevs(wanted);
  const auto is_missing = [&](const Hca& hca) {
    return std::ranges::any_of(hca.ports, [&](const Port& port) {
      return is_open_roce(hca, port) && std::ranges::find(*netdevs, *port.netdev, &Netdev::name) == netdevs->end();
    });
  };
  if (netdevs && std::ranges::any_of(inventory.hcas, is_missing)) return std::nullopt;
  return netdevs;
}

// If a namespace has at most this number of netdevs and two more for each HCA, one dump is cheaper than requests for
// the netdev of each port and the netdevs above it. A node with containers has more.
constexpr std::size_t kFewNetdevs = 24;

}  // namespace

bool is_open_roce(const Hca& hca, const Port& port) {
  return hca.is_accessible() && port.is_active() && port.is_ethernet();
}

Result<std::optional<std::vector<Netdev>>> read_few_netdevs(bool all, std::size_t hcas) {
  return netlink::read_netdevs(all ? SIZE_MAX : kFewNetdevs + 2 * hcas);
}

Result<bool> read_concerned_network(std::optional<std::vector<Netdev>> few, Inventory& inventory) {
  auto routes = TRY(netlink::read_default_routes());
  const bool many = !few;
  auto netdevs = many ? find_concerned(inventory, routes) : std::move(few);
  const bool part = many && netdevs;
  inventory.netdevs = netdevs ? *std::move(netdevs) : TRY(netlink::read_netdevs());
  inventory.routes = netlink::name_routes(std::move(routes), inventory.netdevs);
  return part;
}

}  // namespace fabric
