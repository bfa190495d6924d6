#include "fabric/read_inventory.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "fabric/concerned_netdevs.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/port_use.hpp"
#include "fabric/rdma_sysfs.hpp"
#include "fabric/read_network.hpp"

namespace fabric {
namespace {

constexpr std::size_t kMaxAddressFile = 4 << 20;

Attr<int> read_carrier(const base::Directory& netdev) {
  const auto text = netdev.read("carrier");
  if (const auto* failed = std::get_if<Unreadable>(&text)) return *failed;
  const auto value = parse_number<int>(std::get<std::string>(text));
  // For a down netdev, sysfs returns EINVAL. A file of a file tree cannot return EINVAL; an empty file stands for it
  // there.
  if (!value) return Unreadable{EINVAL};
  return *value;
}

void read_details(const base::Directory& dir, Netdev& netdev) {
  netdev.dev_id = dir.read_text("dev_id");
  netdev.dev_port = dir.read_int("dev_port");
  if (const auto device = dir.read_link_name("device"); device && pci::is_address(*device)) netdev.pci = device;
}

// Reads a netdev of a file tree from its directory in /sys/class/net.
Netdev read_netdev(const base::Directory& dir, const std::string& name) {
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

// Adds the addresses of the text of addrs.txt. Malformed lines and unknown netdevs are ignored.
void add_addresses(const std::string& text, std::vector<Netdev>& netdevs) {
  for (const std::string_view line : split(text, '\n')) {
    const auto fields = split(trim(line), ' ');
    if (fields.size() != 3) continue;
    const auto address = parse_interface_address(fields[2]);
    const auto netdev = std::ranges::find(netdevs, fields[0], &Netdev::name);
    if (address && netdev != netdevs.end()) netdev->addresses.push_back(*address);
  }
}

// Adds the facts that netlink does not report: PCI address, dev_id, dev_port.
void add_sysfs_details(const std::string& root, std::vector<Netdev>& netdevs) {
  const auto net = base::Directory::open(root + "/sys/class/net");
  if (!net) return;
  for (Netdev& netdev : netdevs)
    if (const auto dir = net->open_at(netdev.name.c_str())) read_details(*dir, netdev);
}

void read_live_network(Inventory& inventory) {
  auto network = netlink::read_network(true);
  if (!network) {
    // A failure is no error of the call: without netlink (gVisor, seccomp), the HCAs must still be reported.
    inventory.net_error = network.error().message;
    return;
  }
  inventory.netdevs = std::move(network->netdevs);
  inventory.routes = std::move(network->routes);
  add_sysfs_details("", inventory.netdevs);
}

// Removes the GPUs that this container cannot open. sysfs has all GPUs of the node, but CUDA numbers only those with a
// node below /dev. If none has one here, all GPUs stay, because the driver's files may be hidden.
void keep_visible_gpus(const std::string& root, std::vector<Gpu>& gpus) {
  const auto dev = base::Directory::open(root + "/dev");
  const auto is_hidden = [&](const Gpu& gpu) {
    return !dev ||
           std::ranges::none_of(gpu.nodes, [&](const std::string& node) { return dev->contains(node.c_str()); });
  };
  if (!std::ranges::all_of(gpus, is_hidden)) std::erase_if(gpus, is_hidden);
}

bool is_live(const ReadOptions& options) {
  return options.live || options.root.empty();
}

// Reads the facts of the snapshot format that belong to no HCA.
void read_beside_hcas(const std::string& root, Inventory& inventory) {
  const auto dev = base::Directory::open(root + "/dev/infiniband");
  inventory.rdma_cm = dev && dev->contains("rdma_cm");
  inventory.gpus = pci::read_gpus(root);
  for (Gpu& gpu : *inventory.gpus)
    pci::read_driver_facts(root, gpu);
  keep_visible_gpus(root, *inventory.gpus);
}

// In exclusive RDMA mode, a sysfs of another network namespace shows HCAs that this one does not have.
void mark_elsewhere(const netlink::RdmaAnswer& answer, std::vector<Hca>& hcas) {
  for (Hca& hca : hcas)
    hca.is_elsewhere = hca.access_error == EPERM && !answer.port_netdevs.hcas.contains(hca.name);
}

using FewNetdevs = Result<std::optional<std::vector<Netdev>>>;

// Finds the netdevs of a device by the links of the class directory: one system call for each netdev, where the
// directory of each device costs four.
class NetdevsOfDevices {
 public:
  NetdevsOfDevices(const std::string& sys, const std::vector<Netdev>& netdevs) : sys_(sys), netdevs_(netdevs) {}

  // Returns the netdevs of the device, nullopt if they are not known: a link cannot be read, or has another form than
  // the kernel's. device: the result of device_directory().
  std::optional<std::vector<std::string>> of(std::string_view device) {
    if (!std::exchange(was_read_, true)) directories_ = read_directories();
    if (!directories_) return std::nullopt;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < directories_->size(); ++i)
      if ((*directories_)[i] == device) names.push_back(netdevs_[i].name);
    return names;
  }

 private:
  std::optional<std::vector<std::string>> read_directories() const {
    std::vector<std::string> directories;
    for (const Netdev& netdev : netdevs_) {
      const auto link = base::read_link(AT_FDCWD, (sys_ + "/class/net/" + netdev.name).c_str());
      // ENOENT: the netdev ended, or this sysfs is of another network namespace.
      if (!link && errno != ENOENT) return std::nullopt;
      directories.emplace_back(link ? device_directory(*link, "net") : "");
      if (link && directories.back().empty() && device_in_link(*link) != kNoDevice) return std::nullopt;
    }
    return directories;
  }

  const std::string& sys_;
  const std::vector<Netdev>& netdevs_;
  bool was_read_ = false;
  // The result of device_directory() for each netdev. nullopt: not read yet, or not known.
  std::optional<std::vector<std::string>> directories_;
};

// Reads what the choice of ports needs of the network and of the GID tables. The netdevs are read before the GIDs,
// because the scan of a GID table stops when the addresses of this namespace are found. few: nullopt without netlink.
void read_for_choice(const ReadOptions& options, const rdma_sysfs::Scan& scan, std::optional<FewNetdevs> few,
                     Inventory& inventory) {
  const auto read_gids = [&] { rdma_sysfs::read_gids_in_use(scan, inventory.hcas); };
  if (!few) {
    inventory.netdevs = read_tree_netdevs(options.root);
    return read_gids();
  }
  const auto part = *few ? read_concerned_network(std::move(few->value()), inventory) : Result<bool>(few->error());
  // A failure is no error of the call: without netlink (gVisor, seccomp), the HCAs must still be reported.
  if (!part.has_value()) inventory.net_error = part.error().message;
  read_gids();
  if (!part.has_value() || !*part) return;
  // A port without a GID of its own netdevs may have one of another netdev, and the message about it may name one.
  const OwnAddresses own(inventory);
  const bool whole = std::ranges::all_of(inventory.hcas, [&](const Hca& hca) {
    return std::ranges::all_of(hca.ports,
                               [&](const Port& port) { return !is_open_roce(hca, port) || own.use_of(port).usable(); });
  });
  if (whole) return;
  auto netdevs = netlink::read_netdevs();
  if (!netdevs) {
    inventory.net_error = netdevs.error().message;
    return;
  }
  inventory.netdevs = *std::move(netdevs);
  read_gids();
}

}  // namespace

std::vector<Netdev> read_tree_netdevs(const std::string& root) {
  std::vector<Netdev> netdevs;
  const auto net = base::Directory::open(root + "/sys/class/net");
  if (!net) return netdevs;
  for (const std::string& name : net->list())
    if (const auto dir = net->open_at(name.c_str())) netdevs.push_back(read_netdev(*dir, name));
  add_addresses(value_or(base::read_file(root + "/addrs.txt", kMaxAddressFile), std::string()), netdevs);
  return netdevs;
}

Inventory read_inventory(const ReadOptions& options) {
  const base::LateClose late;
  Inventory inventory;
  rdma_sysfs::Classes classes(options.root + "/sys");
  const auto names = classes.names();
  if (classes.error != 0) inventory.rdma_error = classes.error;
  const bool live = is_live(options);
  // Without an HCA, no decision needs the network. So on a node without RDMA, a start costs only one failed open().
  if (names.empty() && !options.full) return inventory;

  if (options.full && live) read_live_network(inventory);
  if (options.full && !live) inventory.netdevs = read_tree_netdevs(options.root);
  // An empty class directory can mean exclusive RDMA mode: another network namespace has the HCAs.
  const bool is_loaded = !names.empty() || (options.full && classes.error == 0);
  const auto answer = live && is_loaded ? netlink::read_rdma(options.full) : std::nullopt;
  classes.open_nodes(std::nullopt);
  rdma_sysfs::Scan scan{.classes = classes,
                        .root = options.root,
                        .full = options.full,
                        .whole_tables = options.full || options.tables == GidTables::kWhole,
                        .usual_slots = !options.full && options.tables == GidTables::kUsual,
                        .netdevs = &inventory.netdevs,
                        .port_netdevs = answer ? &answer->port_netdevs : nullptr,
                        .facts = options.full ? kUsualFacts : kChoiceFacts};
  auto few = live && !options.full ? std::optional(read_few_netdevs(options.all_netdevs, names.size())) : std::nullopt;
  std::optional<NetdevsOfDevices> of_devices;
  if (few && *few && few->value()) {
    of_devices.emplace(classes.sys, *few->value());
    scan.netdevs_of_device = [&](std::string_view device) { return of_devices->of(device); };
  }
  inventory.hcas = rdma_sysfs::read_hcas(scan, names);
  if (answer) mark_elsewhere(*answer, inventory.hcas);
  if (!options.full) {
    read_for_choice(options, scan, std::move(few), inventory);
    return inventory;
  }
  if (answer) inventory.netns_mode = answer->netns_mode;
  read_beside_hcas(options.root, inventory);
  return inventory;
}

void read_models(const std::string& root, Inventory& inventory) {
  rdma_sysfs::read_models(rdma_sysfs::Classes(root + "/sys"), inventory.hcas);
}

}  // namespace fabric
