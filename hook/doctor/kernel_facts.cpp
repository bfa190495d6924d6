#include "hook/doctor/checks.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/file.hpp"
#include "base/text.hpp"
#include "fabric/read_network.hpp"

namespace hook {
namespace {

using fabric::Inventory;

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
  return std::ranges::any_of(inventory.hcas, [&](const fabric::Hca& hca) { return hca.pci == pci; });
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

// Returns the finding for a file that cannot be read. The usual cause is that doctor runs in a container or not as
// root.
Finding unseen(std::string object, int code) {
  return {Grade::kWarning, std::move(object), fmt::format("cannot be read: {}", std::strerror(code)),
          "call doctor as root on the node itself"};
}

// Adds the finding `missing` if `there` is false. If `there` could not be read, adds the finding of unseen().
void need(const Attr<bool>& there, const std::string& object, const Finding& missing, std::vector<Finding>& findings) {
  if (const auto* failed = std::get_if<Unreadable>(&there)) {
    findings.push_back(unseen(object, failed->code));
  } else if (!std::get<bool>(there)) {
    findings.push_back(missing);
  }
}

// A NIC without a driver may be reserved on purpose, for example for a virtual machine, so the finding is only a
// warning.
Finding without_hca(const HalfDriven& function) {
  if (function.driver.empty()) {
    return {Grade::kWarning, function.pci, "no driver is bound to this Mellanox NIC",
            fmt::format("run `modprobe {}`", function.module)};
  }
  return {Grade::kBroken, function.module,
          fmt::format("not loaded: {} ({}) has no HCA", function.pci, base::printable(function.driver)),
          fmt::format("run `modprobe {0}` and add it to /etc/modules-load.d/rdma.conf", function.module)};
}

Check check_modules(const KernelFacts& facts, const Inventory& inventory, const Config& config) {
  Check check{"modules", {}, {}};
  for (const HalfDriven& function : facts.half_driven) {
    if (const bool* loaded = std::get_if<bool>(&function.loaded); loaded && *loaded) continue;
    // There is one finding per module, because a node can have many functions of one driver.
    const auto same = [&](const Finding& one) { return !function.driver.empty() && one.object == function.module; };
    if (std::ranges::none_of(check.findings, same)) check.findings.push_back(without_hca(function));
  }
  if (inventory.hcas.empty()) {
    if (inventory.rdma_error && *inventory.rdma_error != ENOENT && *inventory.rdma_error != ENODEV) {
      check.findings.push_back(unseen("/sys/class/infiniband", *inventory.rdma_error));
    } else if (check.findings.empty()) {
      check.add(Grade::kBroken, "HCA", "this node has none, or its driver is not loaded",
                "find the NIC with `lspci` and load its RDMA driver; without RDMA hardware run `rdma link "
                "add rxe0 type rxe netdev NETDEV` for a software HCA");
    }
    return check;
  }
  // Without uverbs device nodes no container can open an HCA. A missing rdma_cm is less serious: NCCL does not need it.
  need(facts.uverbs, "ib_uverbs",
       {Grade::kBroken, "ib_uverbs", "not loaded: no HCA has a device node", "run `modprobe ib_uverbs`"},
       check.findings);
  if (config.nodes.rdma_cm)
    need(facts.rdma_cm, "rdma_ucm",
         {Grade::kWarning, "rdma_ucm", "not loaded: programs that use RDMA_CM fail; NCCL does not need it",
          "run `modprobe rdma_ucm`"},
         check.findings);
  check.summary =
      fmt::format("{} HCA{}, ib_uverbs, rdma_ucm", inventory.hcas.size(), inventory.hcas.size() == 1 ? "" : "s");
  return check;
}

// Returns the problem of a device node; nullopt if there is none.
std::optional<Finding> check_node(const ExpectedNode& node) {
  constexpr unsigned kForAll = 0666;
  if (const auto* failed = std::get_if<Unreadable>(&node.seen)) {
    if (failed->code != ENOENT) return unseen(node.path, failed->code);
    return Finding{
        Grade::kBroken, node.path, "missing, although the kernel has the device",
        "check that udev runs, then run `udevadm trigger --subsystem-match=infiniband_verbs --subsystem-match=misc`"};
  }
  const SeenNode& seen = std::get<SeenNode>(node.seen);
  if (!seen.is_device || (!node.number.empty() && seen.number != node.number)) {
    return Finding{Grade::kBroken, node.path,
                   fmt::format("is {}, but the kernel's device is {}", seen.is_device ? seen.number : "no device",
                               base::printable(node.number)),
                   "remove it, then run `udevadm trigger --subsystem-match=infiniband_verbs`"};
  }
  // The udev rules of rdma-core set mode 0666: access is restricted by the device cgroup and the network namespace, not
  // by the mode.
  if ((seen.mode & kForAll) == kForAll) return std::nullopt;
  return Finding{Grade::kWarning, node.path, fmt::format("has mode {:04o}: some users cannot open it", seen.mode),
                 fmt::format("run `chmod 0666 {}` and correct the udev rule (rdma-core sets 0666)", node.path)};
}

// A kernel before 6.7 does not report the setting `privileged-qkey`. The check then reports it as unknown, not as safe.
Check check_qkey(const KernelFacts& facts) {
  Check check{"qkey", "only privileged processes can use controlled QKEYs", {}, facts.privileged_qkey.has_value()};
  if (!check.looked) check.summary = "the kernel does not report `privileged-qkey`, the setting for controlled QKEYs";
  if (!facts.privileged_qkey.value_or(false)) return check;
  check.add(
      Grade::kWarning, "privileged-qkey",
      "is on: every process with an HCA can use controlled QKEYs (0x80000000 and above), which protect management and "
      "other UD queue pairs; NCCL needs no such QKEY; a container with CAP_NET_ADMIN can turn this setting on for the "
      "whole node",
      "run `rdma system set privileged-qkey off`");
  return check;
}

constexpr std::string_view kNvidia = "0x10de";
constexpr unsigned kRedirects = 0x0004 | 0x0008;  // P2P request redirect, completion redirect

// Configuration space is little-endian on every host.
unsigned number_at(std::string_view bytes, std::size_t at, std::size_t count) {
  unsigned number = 0;
  for (std::size_t i = 0; i < count; ++i)
    number |= static_cast<unsigned>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return number;
}

bool is_loaded(const Attr<bool>& module) {
  return base::value_or(module, false);
}

// Checks how NCCL can register GPU memory with an HCA: by nvidia_peermem, or by DMA-BUF of NVIDIA's open kernel module.
// If neither exists, NCCL copies through host memory.
Check check_gpudirect(const GpuFacts& facts, const Inventory& inventory) {
  Check check{"gpudirect", {}, {}};
  if (!facts.has_nvidia) {
    const bool any = inventory.gpus && !inventory.gpus->empty();
    check.looked = !any;
    check.summary = any ? "no NVIDIA GPU; drivers of other vendors are not checked" : "no GPU on this node";
    return check;
  }
  // DMA-BUF needs NVIDIA's open kernel module and Linux 5.12 (ib_umem_dmabuf_get()).
  const bool open_module = facts.driver_version.find("Open Kernel Module") != std::string::npos;
  const auto kernel = base::version_of(facts.kernel);
  const bool dma_buf = open_module && kernel && *kernel >= std::pair(5U, 12U);
  if (facts.driver_version.empty()) {
    check.add(Grade::kBroken, "nvidia", "the driver of the node's GPUs is not loaded", "run `modprobe nvidia`");
  } else if (is_loaded(facts.nvidia_peermem)) {
    check.summary = "nvidia_peermem";
  } else if (is_loaded(facts.nv_peer_mem)) {
    check.add(Grade::kNote, "nv_peer_mem", "loaded: the name of nvidia_peermem before driver 470; NCCL uses both", "");
  } else if (dma_buf) {
    check.summary = "DMA-BUF (open kernel module), supported by NCCL since 2.14";
  } else {
    check.add(Grade::kWarning, "nvidia_peermem",
              fmt::format("not loaded, and no DMA-BUF ({}): NCCL copies through host memory",
                          open_module ? fmt::format("kernel {} is older than 5.12", printable(facts.kernel))
                                      : "the driver is not the open kernel module"),
              "run `modprobe nvidia_peermem` and add it to /etc/modules-load.d/rdma.conf");
  }
  return check;
}

// ACS on a bridge between a GPU and an HCA redirects their transfers through the root complex, which slows them.
Check check_acs(const GpuFacts& facts, const Inventory& inventory) {
  Check check{"acs", {}, {}};
  const auto bridges = bridges_between(inventory);
  check.summary = bridges.empty() ? "no bridge is between a GPU and an HCA"
                                  : fmt::format("{} bridge{} between GPUs and HCAs redirect{} nothing", bridges.size(),
                                                bridges.size() == 1 ? "" : "s", bridges.size() == 1 ? "s" : "");
  for (const std::string& bridge : bridges) {
    const auto found = facts.acs.find(bridge);
    if (found == facts.acs.end()) continue;
    if (const auto* failed = std::get_if<Unreadable>(&found->second)) {
      check.add(Grade::kWarning, bridge,
                failed->code == EMSGSIZE ? std::string("cannot read its extended PCI configuration space")
                                         : fmt::format("cannot be read: {}", std::strerror(failed->code)),
                "call doctor as root on the node itself");
      continue;
    }
    if ((std::get<unsigned>(found->second) & kRedirects) == 0) continue;
    check.add(Grade::kWarning, bridge, "ACS redirects transfers between GPU and HCA to the root complex",
              fmt::format("disable ACS in the firmware, or at each boot with `setpci -s {} "
                          "ECAP_ACS+0x6.w=0000` (virtual machines with passed-through devices need ACS)",
                          bridge));
  }
  return check;
}

// An IOMMU group that translates addresses ("DMA") slows transfers between GPU and HCA; a group of type "identity" does
// not.
Check check_iommu(const GpuFacts& facts, const Inventory& inventory) {
  Check check{"iommu", {}, {}};
  const bool gpus = inventory.gpus && !inventory.gpus->empty();
  std::vector<std::string> translated;
  for (const auto& [hca, type] : facts.iommu)
    if (type != "identity") translated.push_back(fmt::format("{} ({})", printable(hca), printable(type)));
  check.summary = facts.iommu.empty() ? "off" : "pass-through";
  if (translated.empty()) return check;
  check.summary = "translates; the node has no GPU";
  if (!gpus) return check;
  check.add(Grade::kWarning, "IOMMU",
            fmt::format("translates for {}: it slows each transfer between GPU and HCA", base::join(translated, ", ")),
            "add `iommu=pt` to the kernel's command line");
  return check;
}

}  // namespace

Attr<bool> is_path_there(const std::string& path) {
  struct stat seen {};
  if (::stat(path.c_str(), &seen) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return Unreadable{errno};
}

KernelFacts read_kernel_facts(const std::string& root, const Inventory& inventory) {
  KernelFacts facts;
  // Each of these directories exists as soon as the module is loaded. They are read because /sys/module can lack a
  // module that is built into the kernel.
  facts.uverbs = is_path_there(root + "/sys/class/infiniband_verbs");
  facts.rdma_cm = is_path_there(root + "/sys/class/misc/rdma_cm");
  facts.half_driven = read_half_driven(root, inventory);
  const auto add = [&](const std::string& path, const std::string& number) {
    facts.nodes.push_back({path, number, read_node_facts(root + path)});
  };
  for (const fabric::Hca& hca : inventory.hcas) {
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
  if (root.empty()) facts.privileged_qkey = fabric::netlink::read_privileged_qkey();
  return facts;
}

std::vector<Check> check_kernel(const KernelFacts& facts, const Inventory& inventory, const Config& config) {
  Check nodes{"nodes", fmt::format("{} in /dev/infiniband", facts.nodes.size()), {}};
  for (const ExpectedNode& node : facts.nodes)
    if (auto finding = check_node(node)) nodes.add(std::move(*finding));
  return {check_modules(facts, inventory, config), std::move(nodes), check_qkey(facts)};
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
    const unsigned header = number_at(space, at, 4);
    if ((header & 0xffff) == kAcs) return number_at(space, at + kControl, 2);
    // The header of an extended capability (PCI Express 5.0) has the id in bits 0 to 15 and the offset of the next
    // capability in bits 20 to 31.
    at = header >> 20;
  }
  return 0U;
}

std::vector<std::string> bridges_between(const Inventory& inventory) {
  std::set<std::string> bridges;
  const std::vector<fabric::Gpu> none;
  for (const fabric::Gpu& gpu : inventory.gpus ? *inventory.gpus : none) {
    for (const fabric::Hca& hca : inventory.hcas) {
      if (!gpu.pci_path || !hca.pci_path) continue;
      const auto& left = *gpu.pci_path;
      const auto& right = *hca.pci_path;
      const auto [l, r] = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
      if (l == left.begin()) continue;  // the devices have no common bridge, only the root complex
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
  if (inventory.gpus) {
    facts.has_nvidia = std::ranges::any_of(
        *inventory.gpus, [&](const fabric::Gpu& gpu) { return text(devices + gpu.pci + "/vendor") == kNvidia; });
  }
  facts.nvidia_peermem = is_path_there(root + "/sys/module/nvidia_peermem");
  facts.nv_peer_mem = is_path_there(root + "/sys/module/nv_peer_mem");
  facts.driver_version = text(root + "/proc/driver/nvidia/version");
  facts.kernel = text(root + "/proc/sys/kernel/osrelease");
  for (const std::string& bridge : bridges_between(inventory)) {
    const auto space = base::read_file(devices + bridge + "/config", kConfigurationSpace);
    const auto* failed = std::get_if<Unreadable>(&space);
    facts.acs.emplace(bridge, failed ? Attr<unsigned>(*failed) : acs_control(std::get<std::string>(space)));
  }
  for (const fabric::Hca& hca : inventory.hcas) {
    if (!hca.pci) continue;
    if (const std::string type = text(devices + *hca.pci + "/iommu_group/type"); !type.empty())
      facts.iommu[hca.name] = type;
  }
  return facts;
}

std::vector<Check> check_gpus(const GpuFacts& facts, const Inventory& inventory) {
  return {check_gpudirect(facts, inventory), check_acs(facts, inventory), check_iommu(facts, inventory)};
}

}  // namespace hook
