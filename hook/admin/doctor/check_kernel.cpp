#include "hook/admin/doctor/checks.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.hpp"

namespace hook {
namespace {

using fabric::ExpectedNode;
using fabric::GpuFacts;
using fabric::HalfDriven;
using fabric::Inventory;
using fabric::KernelFacts;
using fabric::SeenNode;

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
  if (function.driver.empty())
    return {Grade::kWarning, function.pci, "no driver is bound to this Mellanox NIC",
            fmt::format("run `modprobe {}`", function.module)};
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

constexpr unsigned kRedirects = 0x0004 | 0x0008;  // P2P request redirect, completion redirect

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

std::vector<Check> check_kernel(const KernelFacts& facts, const Inventory& inventory, const Config& config) {
  Check nodes{"nodes", fmt::format("{} in /dev/infiniband", facts.nodes.size()), {}};
  for (const ExpectedNode& node : facts.nodes)
    if (auto finding = check_node(node)) nodes.add(std::move(*finding));
  return {check_modules(facts, inventory, config), std::move(nodes), check_qkey(facts)};
}

std::vector<Check> check_gpus(const GpuFacts& facts, const Inventory& inventory) {
  return {check_gpudirect(facts, inventory), check_acs(facts, inventory), check_iommu(facts, inventory)};
}

}  // namespace hook
