#include "support/tree.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/read_inventory.hpp"

namespace test_support {
namespace {

using namespace fabric;

// From uverbs32 on, nodes have a dynamic major number (drivers/infiniband/core/uverbs_main.c, 6.12).
constexpr unsigned kDynamicMajor = 509;

class Tree {
 public:
  explicit Tree(std::string root) : root_(std::move(root)) {}

  void make_dir(const std::string& path) {
    if (!made_.insert(path).second) return;
    std::error_code error;
    std::filesystem::create_directories(root_ + "/" + path, error);
    if (error) end_test(path);
  }

  // Writes one line, or an empty file.
  void write(const std::string& path, std::string_view text, mode_t mode = 0444) {
    make_dir(std::filesystem::path(path).parent_path());
    const std::string line = text.empty() ? std::string() : fmt::format("{}\n", text);
    const base::UniqueFd fd(::open((root_ + "/" + path).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.ok() || ::write(fd.get(), line.data(), line.size()) < 0 || ::fchmod(fd.get(), mode) != 0) end_test(path);
  }

  void write_readable(const std::string& path, const Attr<std::string>& value) {
    if (const auto* text = std::get_if<std::string>(&value)) write(path, *text);
  }

  void write_known(const std::string& path, const std::optional<std::string>& value) {
    if (value) write(path, *value);
  }

  // Makes all empty slots hard links of one file, because a node has thousands of them.
  void write_empty_slot(const std::string& path) {
    if (!empty_slot_.empty() && ::link((root_ + "/" + empty_slot_).c_str(), (root_ + "/" + path).c_str()) == 0) return;
    write(path, to_gid_string(fabric::Address{}));
    empty_slot_ = path;  // the first slot, or the next one after the file system's limit of links
  }

  // Makes a link. The target is relative to the root; the link stores it relative to itself, as in sysfs.
  void link(const std::string& path, const std::string& target) {
    namespace fs = std::filesystem;
    make_dir(std::filesystem::path(path).parent_path());
    const fs::path relative = fs::path(target).lexically_relative(fs::path(path).parent_path());
    if (::symlink(relative.c_str(), (root_ + "/" + path).c_str()) != 0 && errno != EEXIST) end_test(path);
  }

 private:
  [[noreturn]] void end_test(const std::string& path) const {
    std::fprintf(stderr, "test set-up: cannot make `%s/%s`\n", root_.c_str(), path.c_str());
    std::abort();
  }

  std::string root_;
  std::string empty_slot_;
  std::set<std::string> made_;
};

// Returns the directory of a function: below its upstream ports, or below an invented root port if they are not known.
std::string pci_directory(const std::string& pci, const std::optional<std::vector<std::string>>& path) {
  const std::size_t colon = pci.find(':');
  const std::string domain = pci.substr(0, colon);
  if (path && !path->empty()) {
    const std::string& port = path->front();
    return fmt::format("sys/devices/pci{}/{}/{}", port.substr(0, port.rfind(':')), base::join(*path, "/"), pci);
  }
  const unsigned bus = base::parse_number<unsigned>(std::string_view(pci).substr(colon + 1, 2), 16).value_or(0);
  return fmt::format("sys/devices/pci{0}:00/{0}:00:{1:02x}.{2}/{3}", domain, bus % 32, bus / 32 % 8, pci);
}

struct PciFunction {
  std::string address;
  std::optional<std::vector<std::string>> path;
  int numa_node = -1;
  std::string vendor = "0x15b3";
  std::string device_id = "0x1021";
  std::string pci_class = "0x020000";
  std::string driver = "mlx5_core";
};

std::string add_pci_function(Tree& tree, std::set<std::string>& known, const PciFunction& function) {
  const std::string dir = pci_directory(function.address, function.path);
  if (!known.insert(function.address).second) return dir;
  tree.write(dir + "/numa_node", std::to_string(function.numa_node));
  tree.write(dir + "/vendor", function.vendor);
  tree.write(dir + "/device", function.device_id);
  tree.write(dir + "/class", function.pci_class);
  tree.make_dir("sys/bus/pci/drivers/" + function.driver);
  tree.link(dir + "/driver", "sys/bus/pci/drivers/" + function.driver);
  tree.link("sys/bus/pci/devices/" + function.address, dir);
  return dir;
}

bool is_function(const std::optional<std::string>& pci) {
  return pci && fabric::pci::is_address(*pci);
}

void add_gids(Tree& tree, const std::string& dir, const Port& port, bool full) {
  for (const char* table : {"/gids", "/gid_attrs/types", "/gid_attrs/ndevs"})
    tree.make_dir(dir + table);
  std::set<unsigned> filled;
  for (const fabric::GidEntry& entry : port.gids) {
    filled.insert(entry.index);
    const std::string slot = "/" + std::to_string(entry.index);
    tree.write(dir + "/gids" + slot, to_gid_string(entry.gid));
    if (entry.type) tree.write_readable(dir + "/gid_attrs/types" + slot, *entry.type);
    if (entry.ndev) tree.write_readable(dir + "/gid_attrs/ndevs" + slot, *entry.ndev);
  }
  // Old versions of NCCL fail with an index beyond the table of an InfiniBand port, so that its length must be right.
  if (!full && !port.is_infiniband()) return;
  for (unsigned index = 0; index < port.gid_tbl_len.value_or(256); ++index)
    if (!filled.contains(index)) tree.write_empty_slot(fmt::format("{}/gids/{}", dir, index));
}

void add_port(Tree& tree, const std::string& dir, const Port& port, bool full) {
  tree.write_readable(dir + "/state", port.state);
  tree.write_readable(dir + "/phys_state", port.phys_state);
  tree.write_readable(dir + "/link_layer", port.link_layer);
  tree.write_readable(dir + "/rate", port.rate);
  tree.write(dir + "/lid", port.lid.value_or("0x0"));
  tree.write(dir + "/sm_lid", port.sm_lid.value_or("0x0"));
  for (std::size_t index = 0; port.pkeys && index < port.pkeys->size(); ++index)
    tree.write(fmt::format("{}/pkeys/{}", dir, index), (*port.pkeys)[index]);
  add_gids(tree, dir, port, full);
}

// Returns the netdev below an rxe, which its GIDs name.
std::optional<std::string> parent_of(const Hca& hca) {
  for (const Port& port : hca.ports) {
    if (port.netdev) return port.netdev;
    for (const fabric::GidEntry& entry : port.gids) {
      const auto* ndev = entry.ndev ? std::get_if<std::string>(&*entry.ndev) : nullptr;
      if (ndev) return *ndev;
    }
  }
  return std::nullopt;
}

void add_verbs_node(Tree& tree, const Hca& hca, const std::string& device_dir) {
  const unsigned number = *hca.uverbs;
  const std::string node = "uverbs" + std::to_string(number);
  const std::string dir = fmt::format("{}/infiniband_verbs/{}", device_dir, node);
  const std::string numbers = number < fabric::kUverbsFixed
                                  ? fmt::format("{}:{}", fabric::kUverbsMajor, fabric::kUverbsFirstMinor + number)
                                  : fmt::format("{}:{}", kDynamicMajor, number - fabric::kUverbsFixed);
  tree.write(dir + "/ibdev", hca.name);
  tree.write(dir + "/dev", hca.uverbs_dev.value_or(numbers));
  tree.write(dir + "/abi_version", std::to_string(hca.abi_version.value_or(1)));
  if (is_function(hca.pci)) tree.link(dir + "/device", device_dir);
  tree.link("sys/class/infiniband_verbs/" + node, dir);
  if (hca.is_accessible()) tree.write("dev/infiniband/" + node, "", 0666);
}

void add_hca(Tree& tree, std::set<std::string>& known, const Hca& hca, bool full) {
  std::string device_dir = "sys/devices/virtual";
  if (is_function(hca.pci)) {
    device_dir = add_pci_function(
        tree, known,
        {*hca.pci, hca.pci_path, hca.numa_node.value_or(-1), hca.vendor.value_or("0x15b3"),
         hca.device_id.value_or("0x1021"), hca.pci_class.value_or("0x020000"), hca.driver.value_or("mlx5_core")});
    if (is_function(hca.physfn)) {
      const std::string parent = pci_directory(*hca.physfn, hca.pci_path);
      tree.make_dir(parent);
      tree.link(device_dir + "/physfn", parent);
    }
  }
  const std::string dir = fmt::format("{}/infiniband/{}", device_dir, hca.name);
  tree.write(dir + "/node_guid", hca.node_guid);
  tree.write(dir + "/sys_image_guid", hca.node_guid);
  tree.write(dir + "/node_type", hca.node_type);
  tree.write(dir + "/node_desc", hca.name, 0644);
  tree.write_known(dir + "/fw_ver", hca.fw_ver);
  if (is_function(hca.pci)) tree.link(dir + "/device", device_dir);
  if (hca.driver == "rdma_rxe") tree.write_known(dir + "/parent", parent_of(hca));
  tree.link(dir + "/subsystem", "sys/class/infiniband");
  tree.link("sys/class/infiniband/" + hca.name, dir);
  tree.make_dir(dir + "/ports");
  for (const Port& port : hca.ports)
    add_port(tree, fmt::format("{}/ports/{}", dir, port.number), port, full);
  if (hca.uverbs) add_verbs_node(tree, hca, device_dir);
}

void add_netdev(Tree& tree, std::set<std::string>& known, const Inventory& inventory, const Netdev& netdev,
                std::size_t ifindex) {
  std::string device_dir;
  if (is_function(netdev.pci)) {
    const auto owner = std::find_if(inventory.hcas.begin(), inventory.hcas.end(),
                                    [&](const Hca& hca) { return hca.pci == netdev.pci; });
    PciFunction function{*netdev.pci, std::nullopt};
    if (owner != inventory.hcas.end()) function.path = owner->pci_path;
    device_dir = add_pci_function(tree, known, function);
  }
  const std::string dir =
      fmt::format("{}/net/{}", device_dir.empty() ? "sys/devices/virtual" : device_dir, netdev.name);
  const int* carrier = std::get_if<int>(&netdev.carrier);
  tree.write(dir + "/carrier", carrier ? std::to_string(*carrier) : "", 0644);
  if (!netdev.dev_id_null) tree.write(dir + "/dev_id", netdev.dev_id.value_or("0x0"));
  tree.write(dir + "/dev_port", std::to_string(netdev.dev_port.value_or(0)));
  tree.write(dir + "/operstate", netdev.operstate.value_or("up"));
  tree.write(dir + "/mtu", std::to_string(netdev.mtu.value_or(1500)), 0644);
  tree.write(dir + "/address", netdev.mac.value_or(fmt::format("02:00:00:00:00:{:02x}", ifindex)));
  tree.write(dir + "/type", std::to_string(netdev.type.value_or(1)));
  tree.write(dir + "/ifindex", std::to_string(ifindex));
  tree.write(dir + "/flags", carrier ? "0x1003" : "0x1002", 0644);
  if (netdev.slaves) tree.write(dir + "/bonding/slaves", base::join(*netdev.slaves, " "));
  if (netdev.master && fabric::find_netdev(inventory, *netdev.master))
    tree.link(dir + "/master", "sys/class/net/" + *netdev.master);
  if (!device_dir.empty()) tree.link(dir + "/device", device_dir);
  tree.link(dir + "/subsystem", "sys/class/net");
  tree.link("sys/class/net/" + netdev.name, dir);
}

void add_gpu(Tree& tree, std::set<std::string>& known, const Gpu& gpu) {
  if (!is_function(gpu.pci)) return;
  add_pci_function(tree, known,
                   {gpu.pci, gpu.pci_path, gpu.numa_node.value_or(-1), "0x10de", "0x2330", "0x030200", "nvidia"});
  if (!gpu.uuid) return;
  // The format of nv_procfs_read_gpu_info() of driver 550 (kernel-open/nvidia/nv-procfs.c).
  tree.write("proc/driver/nvidia/gpus/" + gpu.pci + "/information",
             fmt::format("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t {}\n"
                         "Video BIOS: \t 96.00.89.00.01\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"
                         "DMA Mask: \t 0xfffffffffffff\nBus Location: \t {}\nGPU Excluded:\t No\n",
                         *gpu.uuid, gpu.pci));
}

// Returns a line of /proc/net/if_inet6 (net/ipv6/addrconf.c, if6_seq_show()).
std::string inet6_line(const Netdev& netdev, std::size_t ifindex, const fabric::InterfaceAddress& own) {
  std::string digits = to_gid_string(own.address);
  std::erase(digits, ':');
  const unsigned scope = own.address.is_link_local() ? 0x20 : own.address.is_loopback() ? 0x10 : 0;
  return fmt::format("{} {:02x} {:02x} {:02x} 80 {:>8}\n", digits, ifindex, own.prefix.value_or(64), scope,
                     netdev.name);
}

void add_addresses(Tree& tree, const Inventory& inventory) {
  std::string addresses;
  std::string inet6;
  std::size_t ifindex = 2;
  for (const Netdev& netdev : inventory.netdevs) {
    for (const fabric::InterfaceAddress& own : netdev.addresses) {
      if (!netdev.is_here()) continue;
      addresses += fmt::format("{} {} {}\n", netdev.name, own.address.is_ipv4() ? "inet" : "inet6", own.text);
      if (!own.address.is_ipv4()) inet6 += inet6_line(netdev, ifindex, own);
    }
    ++ifindex;
  }
  tree.write("addrs.txt", addresses);
  tree.write("proc/net/if_inet6", inet6);
}

}  // namespace

void lay_out(const Inventory& inventory, const std::string& directory, const TreeOptions& options) {
  Tree tree(directory);
  for (const char* dir : {"sys/class/infiniband", "sys/class/infiniband_verbs", "sys/class/net", "sys/bus/pci/devices"})
    tree.make_dir(dir);
  tree.write("sys/class/infiniband_verbs/abi_version", "6");
  std::set<std::string> known;
  for (const Hca& hca : inventory.hcas)
    add_hca(tree, known, hca, options.full);
  std::size_t ifindex = 2;
  for (const Netdev& netdev : inventory.netdevs) {
    if (netdev.is_here()) add_netdev(tree, known, inventory, netdev, ifindex);
    ++ifindex;
  }
  for (const Gpu& gpu : inventory.gpus.value_or(std::vector<Gpu>()))
    add_gpu(tree, known, gpu);
  add_addresses(tree, inventory);
  for (const auto& [path, text] : inventory.conf.value_or(std::map<std::string, std::string>()))
    tree.write(path.substr(path.find_first_not_of('/')), text);
  const bool any =
      std::any_of(inventory.hcas.begin(), inventory.hcas.end(), [](const Hca& hca) { return hca.is_accessible(); });
  if (inventory.rdma_cm.value_or(any)) tree.write("dev/infiniband/rdma_cm", "", 0666);
}

fabric::Inventory read_tree(const std::string& directory, bool full) {
  fabric::ReadOptions options;
  options.root = directory;
  options.full = full;
  return fabric::read_inventory(options);
}

}  // namespace test_support
