#include "fabric/kernel_facts.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/file.hpp"
#include "base/proc.hpp"
#include "base/rooted.hpp"
#include "fabric/read_network.hpp"

namespace fabric {
namespace {

constexpr std::string_view kNvidia = "0x10de";
// Returns whether a path exists; Unreadable if the lookup failed.
Attr<bool> is_path_there(const std::string& path) {
  struct stat seen {};
  if (::stat(path.c_str(), &seen) == 0) return true;
  if (base::is_absent(errno)) return false;
  return Unreadable{errno};
}

struct DriverHalf {
  const char* driver;
  const char* module;
  bool always;  // whether every function of the driver has RDMA
};
// Network drivers, each with the RDMA module that makes HCAs of the driver's PCI functions (drivers/infiniband/hw of
// Linux 6.12).
constexpr DriverHalf kDriverHalves[] = {
    {"mlx5_core", "mlx5_ib", true},    {"mlx4_core", "mlx4_ib", true}, {"bnxt_en", "bnxt_re", false},
    {"ice", "irdma", false},           {"i40e", "irdma", false},       {"idpf", "irdma", false},
    {"hns3", "hns_roce_hw_v2", false}, {"qede", "qedr", false},        {"cxgb4", "iw_cxgb4", false},
    {"mana", "mana_ib", false},        {"ionic", "ionic_rdma", false}};

constexpr std::string_view kMellanox = "0x15b3";

// Reads type, number and mode of a device node. Follows links, because udev rules can make links.
Attr<SeenNode> read_node_facts(const std::string& path) {
  struct stat seen {};
  if (::stat(path.c_str(), &seen) != 0) return Unreadable{errno};
  return SeenNode{S_ISCHR(seen.st_mode), fmt::format("{}:{}", major(seen.st_rdev), minor(seen.st_rdev)),
                  seen.st_mode & 0777U};
}

bool is_hca_of(const Inventory& inventory, const std::string& pci) {
  return std::ranges::any_of(inventory.hcas, [&](const Hca& hca) { return hca.pci == pci; });
}

// Returns the PCI network functions that could have an HCA but have none. If a driver also serves NICs without RDMA,
// its functions are returned only if the node has no HCA at all.
std::vector<HalfDriven> read_half_driven(const std::string& root, const Inventory& inventory) {
  std::vector<HalfDriven> found;
  const auto devices = base::Directory::open(root + "/sys/bus/pci/devices");
  if (!devices) return found;
  for (const std::string& pci : devices->list()) {
    const auto read = [&](const char* name) { return devices->read_text((pci + name).c_str()).value_or(""); };
    if (!read("/class").starts_with("0x02") || is_hca_of(inventory, pci)) continue;
    // A virtual function without an HCA can be reserved for a container or a virtual machine, so it is not reported.
    if (devices->contains((pci + "/physfn").c_str())) continue;
    const auto driver = devices->read_link_name((pci + "/driver").c_str());
    if (!driver) {
      // A Mellanox NIC without a driver is reported, because its driver provides RDMA. A NIC of another vendor may have
      // no RDMA.
      if (errno == ENOENT && read("/vendor") == kMellanox) found.push_back({pci, "", "mlx5_core", false});
      continue;
    }
    for (const DriverHalf& half : kDriverHalves) {
      if (*driver != half.driver || (!half.always && !inventory.hcas.empty())) continue;
      found.push_back({pci, *driver, half.module, half.always, is_path_there(root + "/sys/module/" + half.module)});
    }
  }
  return found;
}

// Configuration space is little-endian on every host.
unsigned little_endian_at(std::string_view bytes, std::size_t at, std::size_t count) {
  unsigned number = 0;
  for (std::size_t i = 0; i < count; ++i)
    number |= static_cast<unsigned>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return number;
}

}  // namespace

KernelFacts read_kernel_facts(const std::string& root, const Inventory& inventory) {
  KernelFacts facts;
  // Each of these directories exists as soon as the module is loaded. /sys/module is not read, because it can lack a
  // module that is built into the kernel.
  facts.uverbs = is_path_there(root + "/sys/class/infiniband_verbs");
  facts.rdma_cm = is_path_there(root + "/sys/class/misc/rdma_cm");
  facts.half_driven = read_half_driven(root, inventory);
  const auto add = [&](const std::string& path, const std::string& number) {
    facts.nodes.push_back({path, number, read_node_facts(root + path)});
  };
  for (const Hca& hca : inventory.hcas) {
    if (!hca.uverbs) continue;
    const std::string name = fmt::format("uverbs{}", *hca.uverbs);
    const auto verbs = base::Directory::open(fmt::format("{}/sys/class/infiniband_verbs/{}", root, name));
    add("/dev/infiniband/" + name, verbs ? verbs->read_text("dev").value_or("") : "");
  }
  if (facts.rdma_cm == Attr<bool>(true)) {
    const auto misc = base::Directory::open(root + "/sys/class/misc/rdma_cm");
    add("/dev/infiniband/rdma_cm", misc ? misc->read_text("dev").value_or("") : "");
  }
  // With a root directory, all facts come from files below it. Netlink would report this machine's setting.
  if (root.empty()) facts.privileged_qkey = netlink::read_privileged_qkey();
  return facts;
}

Attr<unsigned> acs_control(std::string_view space) {
  constexpr std::size_t kExtended = 0x100;
  constexpr std::size_t kMostCapabilities = 960;  // each capability has 4 bytes or more; the limit ends a circular list
  constexpr unsigned kAcs = 0x000D;
  constexpr std::size_t kControl = 6;
  // The kernel returns only the first 64 bytes to callers without CAP_SYS_ADMIN.
  if (space.size() < kExtended + 4) return Unreadable{EMSGSIZE};
  std::size_t at = kExtended;
  for (std::size_t i = 0; i < kMostCapabilities && at >= kExtended && at + kControl + 2 <= space.size(); ++i) {
    const unsigned header = little_endian_at(space, at, 4);
    if ((header & 0xffff) == kAcs) return little_endian_at(space, at + kControl, 2);
    // The header of an extended capability (PCI Express 5.0) has the id in bits 0 to 15 and the offset of the next
    // capability in bits 20 to 31.
    at = header >> 20;
  }
  return 0U;
}

std::vector<std::string> bridges_between(const Inventory& inventory) {
  std::set<std::string> bridges;
  const std::vector<Gpu> none;
  for (const Gpu& gpu : inventory.gpus ? *inventory.gpus : none) {
    for (const Hca& hca : inventory.hcas) {
      if (!gpu.pci_path || !hca.pci_path) continue;
      const auto& left = *gpu.pci_path;
      const auto& right = *hca.pci_path;
      const auto [l, r] = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
      if (l == left.begin()) continue;  // the two devices share only the root complex, no bridge
      bridges.insert(l, left.end());
      bridges.insert(r, right.end());
    }
  }
  return {bridges.begin(), bridges.end()};
}

GpuFacts read_gpu_facts(const std::string& root, const Inventory& inventory) {
  constexpr std::size_t kConfigurationSpace = 4096;
  GpuFacts facts;
  const std::string devices = root + "/sys/bus/pci/devices/";
  const auto text = [](const std::string& path) { return base::value_or(base::read_attribute(path), std::string()); };
  if (inventory.gpus)
    facts.has_nvidia = std::ranges::any_of(
        *inventory.gpus, [&](const Gpu& gpu) { return text(devices + gpu.pci + "/vendor") == kNvidia; });
  facts.nvidia_peermem = is_path_there(root + "/sys/module/nvidia_peermem");
  facts.nv_peer_mem = is_path_there(root + "/sys/module/nv_peer_mem");
  facts.driver_version = text(root + "/proc/driver/nvidia/version");
  facts.kernel = base::value_or(base::read_kernel_release(root), std::string());
  for (const std::string& bridge : bridges_between(inventory)) {
    const auto space = base::read_file(devices + bridge + "/config", kConfigurationSpace);
    const auto* failed = std::get_if<Unreadable>(&space);
    facts.acs.emplace(bridge, failed ? Attr<unsigned>(*failed) : acs_control(std::get<std::string>(space)));
  }
  for (const Hca& hca : inventory.hcas) {
    if (!hca.pci) continue;
    if (const std::string type = text(devices + *hca.pci + "/iommu_group/type"); !type.empty())
      facts.iommu[hca.name] = type;
  }
  return facts;
}

}  // namespace fabric
