#include "hook/doctor/gpu_facts.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/doctor/kernel_facts.hpp"

namespace hook {
namespace {

using fabric::Attr;
using fabric::Inventory;
using fabric::printable;
using fabric::Unreadable;
namespace sysfs = fabric::sysfs;

constexpr std::string_view kNvidia = "0x10de";
constexpr unsigned kRedirects = 0x0004 | 0x0008;  // P2P request redirect, completion redirect

unsigned number_at(std::string_view bytes, std::size_t at, std::size_t count) {
  unsigned number = 0;
  for (std::size_t i = 0; i < count; ++i)
    number |= static_cast<unsigned>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return number;
}

bool is_loaded(const Attr<bool>& module) {
  return fabric::value_or(module, false);
}

Check check_gpudirect(const GpuFacts& facts, const Inventory& inventory) {
  Check check{"gpudirect", {}, {}};
  if (!facts.has_nvidia) {
    const bool any = inventory.gpus && !inventory.gpus->empty();
    check.looked = !any;
    check.summary = any ? "no NVIDIA GPU; of others' drivers nothing is known here" : "no GPU on this node";
    return check;
  }
  const bool open_module = facts.driver_version.find("Open Kernel Module") != std::string::npos;
  const auto kernel = fabric::version_of(facts.kernel);
  const bool dma_buf = open_module && kernel && *kernel >= std::pair(5U, 12U);
  if (facts.driver_version.empty()) {
    check.findings.push_back(
        {Grade::kBroken, "nvidia", "the driver of the node's GPUs is not loaded", "modprobe nvidia"});
  } else if (is_loaded(facts.nvidia_peermem)) {
    check.summary = "nvidia_peermem";
  } else if (is_loaded(facts.nv_peer_mem)) {
    check.findings.push_back(
        {Grade::kNote, "nv_peer_mem", "is loaded, nvidia_peermem's name before driver 470; NCCL takes both", {}});
  } else if (dma_buf) {
    check.summary = "DMA-BUF (open kernel module), which NCCL has since 2.14";
  } else {
    check.findings.push_back(
        {Grade::kWarning, "nvidia_peermem",
         fmt::format("not loaded, and no DMA-BUF ({}): NCCL copies through host memory",
                     open_module ? fmt::format("kernel {} is older than 5.12", printable(facts.kernel))
                                 : "the driver is not the open kernel module"),
         "modprobe nvidia_peermem, and its name into /etc/modules-load.d/rdma.conf"});
  }
  return check;
}

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
      check.findings.push_back({Grade::kWarning, bridge,
                                failed->code == EMSGSIZE
                                    ? std::string("its extended configuration space cannot be seen")
                                    : fmt::format("cannot be read: {}", std::strerror(failed->code)),
                                "call doctor as root on the node itself"});
      continue;
    }
    if ((std::get<unsigned>(found->second) & kRedirects) == 0) continue;
    check.findings.push_back({Grade::kWarning, bridge,
                              "ACS redirects what GPU and HCA send each other up to the root complex",
                              fmt::format("switch ACS off in the firmware, or at each boot `setpci -s {} "
                                          "ECAP_ACS+0x6.w=0000` (virtual machines that are given devices need it)",
                                          bridge)});
  }
  return check;
}

Check check_iommu(const GpuFacts& facts, const Inventory& inventory) {
  Check check{"iommu", {}, {}};
  const bool gpus = inventory.gpus && !inventory.gpus->empty();
  std::vector<std::string> translated;
  for (const auto& [hca, type] : facts.iommu)
    if (type != "identity") translated.push_back(fmt::format("{} ({})", printable(hca), printable(type)));
  check.summary = facts.iommu.empty() ? "off" : "passes through";
  if (translated.empty()) return check;
  check.summary = "translates, and no GPU is on this node";
  if (!gpus) return check;
  check.findings.push_back({Grade::kWarning, "IOMMU",
                            fmt::format("translates for {}: each transfer between GPU and HCA goes through it",
                                        fabric::join(translated, ", ")),
                            "`iommu=pt` on the kernel's command line"});
  return check;
}

}  // namespace

Attr<unsigned> acs_control(std::string_view space) {
  constexpr std::size_t kExtended = 0x100;
  constexpr std::size_t kMostCapabilities = 960;  // of four bytes each: a list that comes round ends
  constexpr unsigned kAcs = 0x000D;
  constexpr std::size_t kControl = 6;
  if (space.size() < kExtended + 4) return Unreadable{EMSGSIZE};
  std::size_t at = kExtended;
  for (std::size_t i = 0; i < kMostCapabilities && at >= kExtended && at + kControl + 2 <= space.size(); ++i) {
    const unsigned header = number_at(space, at, 4);
    if ((header & 0xffff) == kAcs) return number_at(space, at + kControl, 2);
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
      if (l == left.begin()) continue;  // only the root complex is above both
      bridges.insert(l, left.end());
      bridges.insert(r, right.end());
    }
  }
  return {bridges.begin(), bridges.end()};
}

GpuFacts read_gpu_facts(const std::string& root, const Inventory& inventory) {
  constexpr std::size_t kConfigurationSpace = 4096;
  constexpr std::size_t kText = 4096;
  GpuFacts facts;
  const std::string devices = root + "/sys/bus/pci/devices/";
  const auto text = [&](const std::string& path) {
    const auto read = sysfs::read_file(path, kText);
    const auto* found = std::get_if<std::string>(&read);
    return found ? std::string(fabric::trim(*found)) : std::string();
  };
  if (inventory.gpus) {
    facts.has_nvidia = std::any_of(inventory.gpus->begin(), inventory.gpus->end(), [&](const fabric::Gpu& gpu) {
      return text(devices + gpu.pci + "/vendor") == kNvidia;
    });
  }
  facts.nvidia_peermem = is_path_there(root + "/sys/module/nvidia_peermem");
  facts.nv_peer_mem = is_path_there(root + "/sys/module/nv_peer_mem");
  facts.driver_version = text(root + "/proc/driver/nvidia/version");
  facts.kernel = text(root + "/proc/sys/kernel/osrelease");
  for (const std::string& bridge : bridges_between(inventory)) {
    const auto space = sysfs::read_file(devices + bridge + "/config", kConfigurationSpace);
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
