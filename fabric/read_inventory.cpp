#include "fabric/read_inventory.hpp"

#include "fabric/netlink.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/rdma_sysfs.hpp"
#include "fabric/sysfs.hpp"
#include "fabric/tree_net.hpp"

namespace fabric {
namespace {

void read_live_network(const ReadOptions& options, Inventory& inventory) {
  auto network = netlink::read_network(options.full);
  if (!network) {
    inventory.net_error = network.error().message;
    return;
  }
  inventory.netdevs = std::move(network->netdevs);
  inventory.routes = std::move(network->routes);
  if (options.full) tree::add_sysfs_details(options.root, inventory.netdevs);
}

}  // namespace

Inventory read_inventory(const ReadOptions& options) {
  Inventory inventory;
  rdma_sysfs::Classes classes(options.root + "/sys");
  const auto names = classes.names();
  if (classes.error != 0) inventory.rdma_error = classes.error;
  const bool live = options.root.empty();
  // Without an HCA nothing of the network matters to the choice, and a start without RDMA costs one failed open.
  if (names.empty() && !options.full) return inventory;

  if (live) {
    read_live_network(options, inventory);
  } else {
    inventory.netdevs = tree::read_netdevs(options.root);
  }
  const auto answer = live && !names.empty() ? netlink::read_rdma(options.full) : std::nullopt;
  classes.open_nodes(false);
  const rdma_sysfs::Scan scan{.classes = classes,
                              .root = options.root,
                              .full = options.full,
                              .whole_tables = options.full || options.whole_tables,
                              .netdevs = &inventory.netdevs,
                              .port_netdevs = answer ? &answer->port_netdevs : nullptr};
  inventory.hcas = rdma_sysfs::read_hcas(scan, names);
  if (!options.full) return inventory;

  if (answer) inventory.netns_mode = answer->netns_mode;
  if (const auto dev = sysfs::Directory::open(options.root + "/dev/infiniband")) {
    inventory.rdma_cm = dev->contains("rdma_cm");
  } else {
    inventory.rdma_cm = false;
  }
  inventory.gpus = pci::read_gpus(options.root);
  return inventory;
}

}  // namespace fabric
