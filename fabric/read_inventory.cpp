#include "fabric/read_inventory.hpp"

#include <cerrno>

#include "fabric/netlink.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/rdma_sysfs.hpp"
#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace fabric {
namespace {

constexpr std::size_t kMaxAddressFile = 4 << 20;

Attr<int> read_carrier(const sysfs::Directory& netdev) {
  const auto text = netdev.read("carrier");
  if (const auto* failed = std::get_if<Unreadable>(&text)) return *failed;
  const auto value = parse_number<int>(std::get<std::string>(text));
  // A file cannot answer EINVAL as the kernel does for a netdev that is down; an empty one stands for it.
  if (!value) return Unreadable{EINVAL};
  return *value;
}

void read_details(const sysfs::Directory& dir, Netdev& netdev) {
  netdev.dev_id = dir.read_text("dev_id");
  netdev.dev_port = dir.read_int("dev_port");
  if (const auto device = dir.read_link_name("device"); device && pci::is_address(*device)) netdev.pci = device;
}

Netdev read_netdev(const sysfs::Directory& dir, const std::string& name) {
  Netdev netdev;
  netdev.name = name;
  netdev.mac = dir.read_text("address");
  netdev.carrier = read_carrier(dir);
  netdev.operstate = dir.read_text("operstate");
  netdev.mtu = dir.read_int("mtu");
  netdev.type = dir.read_int("type");
  netdev.in_this_netns = true;
  netdev.ifindex = dir.read_int("ifindex").value_or(0);
  netdev.master = dir.read_link_name("master");
  if (const auto slaves = dir.read_text("bonding/slaves")) {
    netdev.slaves.emplace();
    for (const std::string_view slave : split(*slaves, ' '))
      netdev.slaves->emplace_back(slave);
  }
  read_details(dir, netdev);
  return netdev;
}

void add_addresses(const std::string& text, std::vector<Netdev>& netdevs) {
  for (const std::string_view line : split(text, '\n')) {
    const auto fields = split(trim(line), ' ');
    if (fields.size() != 3) continue;
    const std::size_t slash = fields[2].find('/');
    const auto address = parse_address(fields[2].substr(0, slash));
    if (!address) continue;
    std::optional<unsigned> prefix;
    if (slash != std::string_view::npos) prefix = parse_number<unsigned>(fields[2].substr(slash + 1));
    for (Netdev& netdev : netdevs) {
      if (netdev.name == fields[0]) netdev.addresses.push_back({*address, prefix, std::string(fields[2])});
    }
  }
}

// What only sysfs knows of netdevs that netlink has listed: PCI address, dev_id, dev_port.
void add_sysfs_details(const std::string& root, std::vector<Netdev>& netdevs) {
  const auto net = sysfs::Directory::open(root + "/sys/class/net");
  if (!net) return;
  for (Netdev& netdev : netdevs) {
    if (const auto dir = net->open_at(netdev.name.c_str())) read_details(*dir, netdev);
  }
}

void read_live_network(const ReadOptions& options, Inventory& inventory) {
  auto network = netlink::read_network(options.full);
  if (!network) {
    inventory.net_error = network.error().message;
    return;
  }
  inventory.netdevs = std::move(network->netdevs);
  inventory.routes = std::move(network->routes);
  if (options.full) add_sysfs_details(options.root, inventory.netdevs);
}

}  // namespace

std::vector<Netdev> read_tree_netdevs(const std::string& root) {
  std::vector<Netdev> netdevs;
  const auto net = sysfs::Directory::open(root + "/sys/class/net");
  if (!net) return netdevs;
  for (const std::string& name : net->list()) {
    if (const auto dir = net->open_at(name.c_str())) netdevs.push_back(read_netdev(*dir, name));
  }
  const auto addresses = sysfs::read_file(root + "/addrs.txt", kMaxAddressFile);
  if (const auto* text = std::get_if<std::string>(&addresses)) add_addresses(*text, netdevs);
  return netdevs;
}

Inventory read_inventory(const ReadOptions& options) {
  Inventory inventory;
  rdma_sysfs::Classes classes(options.root + "/sys");
  const auto names = classes.names();
  if (classes.error != 0) inventory.rdma_error = classes.error;
  const bool live = options.root.empty();
  // Without an HCA nothing of the network matters to the choice, and a start without RDMA costs one failed open.
  if (names.empty() && !options.full) return inventory;

  // The network before the HCAs: the scan of a GID table ends when it has met the addresses of this netns.
  if (live) {
    read_live_network(options, inventory);
  } else {
    inventory.netdevs = read_tree_netdevs(options.root);
  }
  const auto answer = live && !names.empty() ? netlink::read_rdma(options.full) : std::nullopt;
  classes.open_nodes(std::nullopt);
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
  for (Gpu& gpu : *inventory.gpus)
    pci::read_driver_facts(options.root, gpu);
  return inventory;
}

}  // namespace fabric
