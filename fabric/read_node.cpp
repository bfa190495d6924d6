#include "fabric/read_node.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fabric/netlink.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/rdma_sysfs.hpp"
#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace fabric {
namespace {

// The ports' own netdevs, by what sysfs says of them: asking netlink would list every netdev of the node.
void read_port_netdevs(const std::string& sys, bool details, Inventory& inventory) {
  for (Hca& hca : inventory.hcas) {
    for (Port& port : hca.ports) {
      if (!port.netdev || find_netdev(inventory, *port.netdev)) continue;
      const auto dir = sysfs::Directory::open(sys + "/class/net/" + *port.netdev);
      if (!dir) {
        port.netdev.reset();  // moved to another network namespace
        continue;
      }
      Netdev netdev;
      netdev.name = *port.netdev;
      if (details) {
        netdev.mac = dir->read_text("address");
        netdev.operstate = dir->read_text("operstate");
        netdev.mtu = dir->read_int("mtu");
        netdev.type = dir->read_int("type");
      }
      netdev.pci = hca.pci;
      netdev.master = dir->read_link_name("master");
      netdev.in_this_netns = true;
      inventory.netdevs.push_back(std::move(netdev));
    }
  }
}

// "Device Minor: 3" of /proc/driver/nvidia/gpus/ADDRESS/information is the N of /dev/nvidiaN (driver 550's README,
// "The /proc Filesystem Interface"). DRM devices are named below the PCI function.
void read_gpu_nodes(const std::string& root, Gpu& gpu) {
  constexpr std::string_view kMinor = "Device Minor:";
  constexpr std::size_t kLimit = 4096;
  const auto information = sysfs::read_file(root + "/proc/driver/nvidia/gpus/" + gpu.pci + "/information", kLimit);
  if (const auto* text = std::get_if<std::string>(&information)) {
    for (const std::string_view line : split(*text, '\n')) {
      if (line.starts_with(kMinor)) gpu.nodes.push_back("nvidia" + std::string(trim(line.substr(kMinor.size()))));
    }
  }
  if (const auto drm = sysfs::Directory::open(root + "/sys/bus/pci/devices/" + gpu.pci + "/drm")) {
    for (const std::string& name : drm->list())
      gpu.nodes.push_back("dri/" + name);
  }
}

// rdma_cm is a misc device, whose minor is dynamic. A file tree may have no more than the node.
std::optional<std::string> read_rdma_cm_dev(const std::string& root) {
  if (const auto misc = sysfs::Directory::open(root + "/sys/class/misc/rdma_cm")) return misc->read_text("dev");
  struct stat status {};
  const std::string node = root + "/dev/infiniband/rdma_cm";
  if (::stat(node.c_str(), &status) != 0 || !S_ISCHR(status.st_mode)) return std::nullopt;
  return fmt::format("{}:{}", major(status.st_rdev), minor(status.st_rdev));
}

}  // namespace

Inventory read_node(const NodeReadOptions& options) {
  Inventory inventory;
  rdma_sysfs::Classes classes(options.root + "/sys");
  classes.open_nodes(true);
  if (classes.error != 0) inventory.rdma_error = classes.error;
  const rdma_sysfs::Scan scan{.classes = classes,
                              .root = options.root,
                              .whole_tables = true,
                              .netdevs = &inventory.netdevs,
                              .hand_out = true,
                              .details = options.details,
                              .selectors = options.selectors,
                              .gids = options.gids,
                              .mad_nodes = options.mad_nodes};
  inventory.hcas = rdma_sysfs::read_hcas(scan, options.hcas ? *options.hcas : classes.names());
  read_port_netdevs(options.root + "/sys", options.details, inventory);

  const auto add_class = [&](const char* name, const std::optional<sysfs::Directory>& directory) {
    if (directory) inventory.class_directories.push_back({name, directory->read_text("abi_version")});
  };
  add_class("infiniband", classes.infiniband);
  add_class("infiniband_verbs", classes.verbs);
  add_class("infiniband_mad", classes.mad);
  inventory.rdma_cm_dev = read_rdma_cm_dev(options.root);
  inventory.rdma_cm = inventory.rdma_cm_dev.has_value();
  if (options.root.empty() && !inventory.hcas.empty()) inventory.netns_mode = netlink::read_netns_mode();
  if (!options.gpus) return inventory;
  inventory.gpus = pci::read_gpus(options.root);
  for (Gpu& gpu : *inventory.gpus)
    read_gpu_nodes(options.root, gpu);
  return inventory;
}

Inventory read_hcas_elsewhere(const std::string& root, const std::string& sys, const std::vector<std::string>& names) {
  Inventory inventory;
  rdma_sysfs::Classes classes(sys);
  classes.open_nodes(false);
  const rdma_sysfs::Scan scan{
      .classes = classes, .root = root, .netdevs = &inventory.netdevs, .hand_out = true, .gids = false};
  inventory.hcas = rdma_sysfs::read_hcas(scan, names);
  read_port_netdevs(sys, true, inventory);
  return inventory;
}

std::optional<std::string> hca_of_uverbs(const std::string& root, unsigned number) {
  const auto node = sysfs::Directory::open(fmt::format("{}/sys/class/infiniband_verbs/uverbs{}", root, number));
  return node ? node->read_text("ibdev") : std::nullopt;
}

}  // namespace fabric
