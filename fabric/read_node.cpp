#include "fabric/read_node.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <map>

#include "base/file.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"
#include "fabric/find_netdevs.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/port_use.hpp"
#include "fabric/read_inventory.hpp"
#include "fabric/read_network.hpp"

namespace fabric {
namespace {

using Part = Unread::Part;

bool is_roce(const Port& port) {
  return port.is_active() && port.is_ethernet();
}

bool has_roce(const Inventory& inventory) {
  return std::ranges::any_of(inventory.hcas, [](const Hca& hca) { return std::ranges::any_of(hca.ports, is_roce); });
}

std::vector<Netdev> read_netdevs(const std::string& root, Inventory& inventory) {
  auto netdevs = root.empty() ? netlink::read_netdevs() : Result<std::vector<Netdev>>(read_tree_netdevs(root));
  if (netdevs) return *std::move(netdevs);
  inventory.net_error = netdevs.error().message;
  return {};
}

// Reads the netdevs of the ports and their masters, with addresses. Returns false if the caller must read them in
// another way.
bool find_port_netdevs(const std::string& root, Inventory& inventory) {
  if (!root.empty()) return false;
  netlink::FindNetdevs wanted;
  for (const Hca& hca : inventory.hcas) {
    for (const Port& port : hca.ports)
      if (port.netdev) wanted.names.push_back(*port.netdev);
  }
  auto netdevs = netlink::find_netdevs(wanted);
  if (!netdevs) return false;
  inventory.netdevs = *std::move(netdevs);
  return true;
}

// Adds the netdevs of the ports that are not in the inventory yet. Reads them from sysfs, because a dump of netlink
// would list every netdev of the node, thousands with VFs and pods.
void read_port_netdevs(const std::string& sys, Inventory& inventory) {
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < inventory.netdevs.size(); ++i)
    known.emplace(inventory.netdevs[i].name, i);
  for (Hca& hca : inventory.hcas) {
    for (Port& port : hca.ports) {
      if (!port.netdev) continue;
      if (const auto found = known.find(*port.netdev); found != known.end()) {
        auto& pci = inventory.netdevs[found->second].pci;
        if (!pci) pci = hca.pci;
        continue;
      }
      const std::string path = sys + "/class/net/" + *port.netdev;
      const auto note = [&](const std::string& what, int code) {
        rdma_sysfs::note_unread(&inventory.unread, {Part::kPool, what, code, hca.name});
      };
      const auto dir = base::Directory::open(path);
      if (const int code = errno; !dir) {
        note(path, code);
        port.netdev.reset();  // the netdev moved to another network namespace meanwhile
        continue;
      }
      Netdev netdev;
      netdev.name = *port.netdev;
      netdev.pci = hca.pci;
      netdev.master = dir->read_link_name("master");
      if (const int code = errno; !netdev.master) note(path + "/master", code);
      netdev.in_this_netns = true;
      known.emplace(netdev.name, inventory.netdevs.size());
      inventory.netdevs.push_back(std::move(netdev));
    }
  }
}

// Adds addresses to the netdevs of the inventory. Also adds their masters (bonds and bridges), with addresses.
void read_addresses(const std::string& root, Inventory& inventory) {
  // Search only the netdevs before `count` for masters: the netdevs that the loop appends are masters themselves.
  const std::size_t count = inventory.netdevs.size();
  for (Netdev& netdev : read_netdevs(root, inventory)) {
    bool is_master = false;
    Netdev* known = nullptr;
    for (std::size_t i = 0; i < count; ++i) {
      is_master |= inventory.netdevs[i].master == netdev.name;
      if (inventory.netdevs[i].name == netdev.name) known = &inventory.netdevs[i];
    }
    if (known) known->addresses = std::move(netdev.addresses);
    if (!known && is_master) inventory.netdevs.push_back(std::move(netdev));
  }
}

// Returns the active RoCE ports of the HCAs that the scan reads with all its facts, each with the name of its HCA.
std::vector<std::pair<const std::string*, Port*>> wanted_roce(const rdma_sysfs::Scan& scan, Inventory& inventory) {
  std::vector<std::pair<const std::string*, Port*>> ports;
  for (Hca& hca : inventory.hcas) {
    if (scan.wanted && std::ranges::find(*scan.wanted, hca.name) == scan.wanted->end()) continue;
    for (Port& port : hca.ports)
      if (is_roce(port)) ports.emplace_back(&hca.name, &port);
  }
  return ports;
}

// Reads the GIDs that decide whether each RoCE port is usable.
void read_some_gids(rdma_sysfs::Scan scan, Inventory& inventory) {
  scan.whole_tables = false;
  for (const auto& [hca, port] : wanted_roce(scan, inventory)) {
    port->gids.clear();
    port->gids_error.reset();
    rdma_sysfs::read_some_gids(scan, *hca, *port);
  }
}

// Reads all netdevs, and the GIDs again, if a RoCE port has no GID of its own netdev or of that netdev's masters. A
// VLAN or another netdev may own its GIDs. A port that is usable needs no further netdevs: they would only add GIDs.
void complete_netdevs(const std::string& root, const rdma_sysfs::Scan& scan, Inventory& inventory) {
  const OwnAddresses own(inventory);
  const auto is_usable = [&](const auto& port) { return own.use_of(*port.second).usable(); };
  if (std::ranges::all_of(wanted_roce(scan, inventory), is_usable)) return;
  inventory.netdevs = read_netdevs(root, inventory);
  read_port_netdevs(root + "/sys", inventory);
  if (!scan.facts.gids) read_some_gids(scan, inventory);
}

// Reads the rates of usable ports if their link layers differ. With HcaFacts::use, the rates only decide between
// InfiniBand and Ethernet (LinkLayers); each rate costs three system calls.
void read_rates_if_mixed(const std::string& sys, Inventory& inventory) {
  std::vector<std::pair<const Hca*, Port*>> usable;
  std::vector<const Port*> ports;
  for (Hca& hca : inventory.hcas) {
    for (Port& port : hca.ports) {
      if (port.obstacle() != PortObstacle::kNone) continue;
      usable.emplace_back(&hca, &port);
      ports.push_back(&port);
    }
  }
  if (!link_layers_of(ports).mixed) return;
  for (const auto& [hca, port] : usable) {
    const std::string path = fmt::format("{}/class/infiniband/{}/ports/{}/rate", sys, hca->name, port->number);
    port->rate = base::read_attribute(path);
    rdma_sysfs::note_unread(&inventory.unread, {Part::kDetail, path, error_of(port->rate), hca->name});
  }
}

// Reads the UUID and the device nodes of a GPU: the node of the NVIDIA driver, and the nodes of DRM devices, which are
// directories below the PCI function.
void read_gpu_nodes(const std::string& root, Gpu& gpu, std::vector<Unread>& unread) {
  rdma_sysfs::note_unread(&unread, pci::read_driver_facts(root, gpu));
  if (const auto drm = base::Directory::open(root + "/sys/bus/pci/devices/" + gpu.pci + "/drm")) {
    for (const std::string& name : drm->list())
      gpu.nodes.push_back("dri/" + name);
  }
}

void read_gpus(const std::string& root, Inventory& inventory) {
  inventory.gpus = pci::read_gpus(root);
  for (Gpu& gpu : *inventory.gpus)
    read_gpu_nodes(root, gpu, inventory.unread);
}

// Reads the upstream ports of each HCA, and its NUMA node. The kernel gives all functions of a PCI bus the NUMA node of
// that bus (pci_device_add(), drivers/pci/probe.c, Linux 6.12), and VFs have the upstream ports of their PF. So one
// read for each list of upstream ports is enough.
void read_places(const std::string& root, Inventory& inventory) {
  std::map<std::vector<std::string>, std::optional<int>> numa_nodes;
  for (Hca& hca : inventory.hcas) {
    if (!hca.pci) continue;
    auto path = pci::addresses_in_path(hca.class_link.value_or(""));
    if (!path.empty()) path.pop_back();
    hca.pci_path = path.empty() ? pci::read_path(root, *hca.pci) : std::optional(std::move(path));
    const auto read = [&] {
      const std::string file = fmt::format("{}/sys/class/infiniband/{}/device/numa_node", root, hca.name);
      return parse_number<int>(value_or(base::read_attribute(file), std::string()));
    };
    if (!hca.pci_path || hca.pci_path->empty()) {
      hca.numa_node = read();
      continue;
    }
    const auto known = numa_nodes.find(*hca.pci_path);
    hca.numa_node = known == numa_nodes.end() ? numa_nodes.emplace(*hca.pci_path, read()).first->second : known->second;
  }
}

// Returns the device number of /dev/infiniband/rdma_cm, a misc device with a dynamic minor. A file tree may lack the
// attribute in sysfs; the number then comes from the device node.
std::optional<std::string> read_rdma_cm_dev(const std::string& root, std::vector<Unread>& unread) {
  const auto unknown = [&](const std::string& path, int code) {
    rdma_sysfs::note_unread(&unread, {Part::kRdmaCm, path, code});
    return std::nullopt;
  };
  const std::string attribute = root + "/sys/class/misc/rdma_cm/dev";
  const auto dev = base::read_attribute(attribute);
  if (const auto* text = std::get_if<std::string>(&dev)) return text->empty() ? std::nullopt : std::optional(*text);
  if (const int code = error_of(dev); code != ENOENT) return unknown(attribute, code);
  struct stat status {};
  const std::string node = root + "/dev/infiniband/rdma_cm";
  if (::stat(node.c_str(), &status) != 0) return unknown(node, errno);
  if (!S_ISCHR(status.st_mode)) return std::nullopt;
  return fmt::format("{}:{}", major(status.st_rdev), minor(status.st_rdev));
}

// Returns true if the name still leads to the same device, and the uverbs node has the number that was read.
bool is_same(const rdma_sysfs::Classes& classes, const std::string& root, const Hca& hca) {
  if (!hca.class_link && !hca.uverbs_dev) return true;  // only the name of this HCA was read
  if (!hca.uverbs || classes.infiniband->read_link(hca.name.c_str()) != hca.class_link) return false;
  struct stat status {};
  const std::string node = fmt::format("{}/dev/infiniband/uverbs{}", root, *hca.uverbs);
  return ::stat(node.c_str(), &status) == 0 && S_ISCHR(status.st_mode) &&
         hca.uverbs_dev == fmt::format("{}:{}", major(status.st_rdev), minor(status.st_rdev));
}

// Returns true if the state of the port is the one that was read. Drops the rate that read_rates_if_mixed() may have
// read.
bool keeps_state(const NodeReadOptions& options, OpenNode& open, const Hca& hca, Port& port) {
  if (!options.facts.rate) port.rate = Attr<std::string>();
  const std::string path = fmt::format("{}/ports/{}/state", hca.name, port.number);
  return open.attributes.read(*open.classes->infiniband, path) == port.state;
}

// Returns true if the scan of the port ended at a GID that makes it usable, and this GID is still in its slot: another
// scan would give the same answer.
bool keeps_last_gid(const rdma_sysfs::Scan& scan, OpenNode& open, const std::string& hca, const Port& port) {
  if (port.gids.empty() || !port.gids.back().is_v2()) return false;
  const GidEntry& last = port.gids.back();
  GidSearch search(*scan.netdevs, port.netdev);
  search.found_v2(last.gid);
  if (!scan.first_v2 && !search.any()) return false;
  const auto read = [&](const char* table) {
    const std::string slot = fmt::format("{}/ports/{}/{}/{}", hca, port.number, table, last.index);
    return open.attributes.read(*scan.classes.infiniband, slot);
  };
  return parse_address(value_or(read("gids"), std::string())) == last.gid && read("gid_attrs/types") == last.type;
}

// Reads the class directories of RDMA that the node has, because a view gets the same ones. A class directory exists
// only if its kernel module is loaded.
void read_class_directories(const rdma_sysfs::Classes& classes, Inventory& inventory) {
  const std::pair<const char*, const std::optional<base::Directory>&> directories[] = {
      {"infiniband", classes.infiniband}, {"infiniband_verbs", classes.verbs}, {"infiniband_mad", classes.mad}};
  for (const auto& [name, directory] : directories) {
    if (!directory) continue;
    auto& added = inventory.class_directories.emplace_back(ClassDirectory{name});
    const auto version = directory->read("abi_version");
    const std::string path = fmt::format("{}/class/{}/abi_version", classes.sys, name);
    rdma_sysfs::note_unread(&inventory.unread, {Part::kView, path, error_of(version)});
    if (auto text = value_or(version, std::string()); !text.empty()) added.abi_version = std::move(text);
  }
}

}  // namespace

Attr<std::string> OpenAttributes::read(const base::Directory& directory, const std::string& path) {
  // Most descriptors of one inventory. A node with hundreds of VFs would need thousands.
  constexpr std::size_t kMost = 96;
  constexpr std::size_t kLongest = 256;  // an attribute that is kept open has at most this many bytes
  char buffer[kLongest];
  auto known = open_.find(path);
  if (known == open_.end()) {
    if (open_.size() == kMost) return directory.read(path.c_str());
    UniqueFd fd = base::open_to_read(directory.fd(), path.c_str());
    if (!fd.ok()) return base::Unreadable{errno};
    known = open_.emplace(path, std::move(fd)).first;
  }
  // The kernel formats the attribute anew for each read of its begin (kernfs_fop_read_iter() of fs/kernfs/file.c).
  const ssize_t count = TEMP_FAILURE_RETRY(::pread(known->second.get(), buffer, sizeof buffer, 0));
  if (count >= 0) return std::string(base::trim(std::string_view(buffer, static_cast<std::size_t>(count))));
  // ENODEV: the device was removed. Another one may have its name by now.
  open_.erase(known);
  return directory.read(path.c_str());
}

Inventory read_node(const NodeReadOptions& options) {
  const base::LateClose late;
  Inventory inventory;
  rdma_sysfs::Classes classes(options.root + "/sys");
  std::vector<Unread>& unread = inventory.unread;
  classes.open_nodes(options.mad_nodes ? Part::kNodes : Part::kView, &unread);
  if (classes.error != 0) inventory.rdma_error = classes.error;
  const rdma_sysfs::Scan scan{.classes = classes,
                              .root = options.root,
                              .whole_tables = true,
                              .first_v2 = !options.facts.own_gids,
                              .netdevs = &inventory.netdevs,
                              .facts = options.facts,
                              .hand_out = true,
                              .wanted = options.hcas ? &*options.hcas : nullptr,
                              .other_facts = options.others.value_or(HcaFacts{}),
                              .mad_nodes = options.mad_nodes,
                              .unread = &unread};
  // With `hcas` and without `others`, no directory is listed: the cost depends on the named HCAs only.
  const bool named = options.hcas && !options.others;
  inventory.hcas = rdma_sysfs::read_hcas(scan, named ? *options.hcas : classes.names(&unread));
  const bool own_gids = options.facts.use && options.facts.own_gids && has_roce(inventory);
  const bool addresses = options.facts.addresses && !own_gids && has_roce(inventory);
  const bool found = (own_gids || addresses) && find_port_netdevs(options.root, inventory);
  if (own_gids && !found) inventory.netdevs = read_netdevs(options.root, inventory);
  read_port_netdevs(options.root + "/sys", inventory);
  if (addresses && !found) read_addresses(options.root, inventory);
  const bool some_gids = own_gids || (options.facts.use && options.facts.gid_types);
  if (some_gids && !options.facts.gids) read_some_gids(scan, inventory);
  if (own_gids && found) complete_netdevs(options.root, scan, inventory);
  if (options.facts.use) read_rates_if_mixed(options.root + "/sys", inventory);

  read_class_directories(classes, inventory);
  inventory.rdma_cm_dev = read_rdma_cm_dev(options.root, unread);
  inventory.rdma_cm = inventory.rdma_cm_dev.has_value();
  // Without HCAs, no decision needs the RDMA network namespace mode, so the netlink request is saved.
  if (options.root.empty() && !inventory.hcas.empty()) inventory.netns_mode = netlink::read_netns_mode();
  if (options.gpus) read_gpus(options.root, inventory);
  return inventory;
}

bool refresh_node(const NodeReadOptions& options, Inventory& inventory, OpenNode& open) {
  if (!open.classes) open.classes.emplace(options.root + "/sys");
  const rdma_sysfs::Classes& classes = *open.classes;
  if (!classes.infiniband) return false;
  const auto has_name = [](const Hca& hca, const std::string& name) { return hca.name == name; };
  const bool named = options.hcas && !options.others;
  if (!named && !std::ranges::equal(inventory.hcas, classes.names(&inventory.unread), has_name)) return false;
  for (Hca& hca : inventory.hcas) {
    if (!is_same(classes, options.root, hca)) return false;
    for (Port& port : hca.ports)
      if (!keeps_state(options, open, hca, port)) return false;
  }
  const rdma_sysfs::Scan scan{.classes = classes,
                              .root = options.root,
                              .first_v2 = !options.facts.own_gids,
                              .netdevs = &inventory.netdevs,
                              .wanted = options.hcas ? &*options.hcas : nullptr};
  const auto keeps_gid = [&](const auto& port) { return keeps_last_gid(scan, open, *port.first, *port.second); };
  const bool some_gids = options.facts.use && (options.facts.own_gids || options.facts.gid_types);
  if (some_gids && !std::ranges::all_of(wanted_roce(scan, inventory), keeps_gid)) return false;
  if (options.facts.use) read_rates_if_mixed(options.root + "/sys", inventory);
  if (options.root.empty() && !inventory.hcas.empty()) inventory.netns_mode = netlink::read_netns_mode();
  return inventory.unread.empty();
}

Inventory read_hcas_elsewhere(const std::string& root, const std::string& sys, const std::vector<std::string>& names) {
  Inventory inventory;
  rdma_sysfs::Classes classes(sys);
  classes.open_nodes(std::nullopt, &inventory.unread);
  const rdma_sysfs::Scan scan{.classes = classes,
                              .root = root,
                              .netdevs = &inventory.netdevs,
                              .hand_out = true,
                              .wanted = &names,
                              .unread = &inventory.unread};
  inventory.hcas = rdma_sysfs::read_hcas(scan, names);
  read_port_netdevs(sys, inventory);
  return inventory;
}

Inventory read_identities(const std::string& root, const std::vector<std::string>& names) {
  const base::LateClose late;
  Inventory inventory;
  const rdma_sysfs::Classes classes(root + "/sys");
  const rdma_sysfs::Scan scan{.classes = classes,
                              .root = root,
                              .netdevs = &inventory.netdevs,
                              .facts = {.node = false, .identity = true},
                              .hand_out = true,
                              .wanted = &names,
                              .unread = &inventory.unread};
  inventory.hcas = rdma_sysfs::read_hcas(scan, names);
  return inventory;
}

Inventory survey_node(const std::string& root, const HcaFacts& facts, bool gpus, rdma_sysfs::KnownLinks* links) {
  const base::LateClose late;
  Inventory inventory;
  const rdma_sysfs::Classes classes(root + "/sys");
  const std::vector<std::string> none;
  HcaFacts read = facts;
  read.place = false;
  const rdma_sysfs::Scan scan{.classes = classes,
                              .root = root,
                              .netdevs = &inventory.netdevs,
                              .hand_out = true,
                              .wanted = &none,
                              .other_facts = read,
                              .unread = &inventory.unread,
                              .links = links};
  if (classes.error != 0) inventory.rdma_error = classes.error;
  inventory.hcas = rdma_sysfs::read_hcas(scan, classes.names(&inventory.unread, links));
  if (facts.netdevs) read_port_netdevs(root + "/sys", inventory);
  if (facts.place) read_places(root, inventory);
  if (gpus) read_gpus(root, inventory);
  return inventory;
}

PortStates::PortStates(const std::string& root) : infiniband_(base::Directory::open(root + "/sys/class/infiniband")) {}

bool PortStates::has_active(const std::string& hca) const {
  // The kernel numbers the ports of an HCA from 1 without gaps (rdma_for_each_port(), include/rdma/ib_verbs.h, Linux
  // 6.12), so the first missing number ends the search without a list of the directory.
  for (unsigned number = 1; infiniband_; ++number) {
    Port port;
    port.state = infiniband_->read(fmt::format("{}/ports/{}/state", hca, number).c_str());
    if (port.is_active()) return true;
    if (error_of(port.state) != 0) return false;
  }
  return false;
}

std::optional<std::string> hca_of_uverbs(const std::string& root, unsigned number) {
  const auto node = base::Directory::open(fmt::format("{}/sys/class/infiniband_verbs/uverbs{}", root, number));
  return node ? node->read_text("ibdev") : std::nullopt;
}

Result<std::string> device_of_uverbs(const std::string& root, unsigned number) {
  const std::string path = fmt::format("{}/sys/class/infiniband_verbs/uverbs{}", root, number);
  char target[PATH_MAX];
  const ssize_t length = ::readlinkat(AT_FDCWD, path.c_str(), target, sizeof target);
  if (length < 0) return sys_error(errno, "cannot read the link `{}`", path);
  return std::string(device_in_link({target, static_cast<std::size_t>(length)}));
}

Result<std::optional<unsigned>> uverbs_of_dynamic_number(const std::string& root, std::int64_t major,
                                                         std::int64_t minor) {
  // Dynamic majors are 234 (CHRDEV_MAJOR_DYN_END) to 254, and 384 (CHRDEV_MAJOR_DYN_EXT_END) to 511
  // (CHRDEV_MAJOR_DYN_EXT_START; include/linux/fs.h, Linux 6.12).
  const bool is_dynamic = (major >= 234 && major <= 254) || (major >= 384 && major <= 511);
  if (!is_dynamic) return std::optional<unsigned>();
  const std::string path = fmt::format("{}/sys/dev/char/{}:{}", root, major, minor);
  char target[PATH_MAX];
  const ssize_t length = ::readlinkat(AT_FDCWD, path.c_str(), target, sizeof target);
  if (length < 0) {
    // The number belongs to no device.
    if (base::is_absent(errno)) return std::optional<unsigned>();
    return sys_error(errno, "read the link `{}`", path);
  }
  // ".../infiniband_verbs/uverbs32"
  const std::string_view device(target, static_cast<std::size_t>(length));
  const std::size_t slash = device.rfind('/');
  if (slash == std::string_view::npos || !device.substr(0, slash).ends_with("/infiniband_verbs"))
    return std::optional<unsigned>();
  return uverbs_number(device.substr(slash + 1));
}

}  // namespace fabric
