#include "fabric/pci_sysfs.hpp"

#include <algorithm>

#include "base/file.hpp"
#include "base/text.hpp"

namespace fabric::pci {
namespace {

bool is_hex(std::string_view text) {
  const auto is_digit = [](char c) {
    return static_cast<unsigned>(c - '0') < 10 || static_cast<unsigned>((c | 0x20) - 'a') < 6;
  };
  return !text.empty() && std::ranges::all_of(text, is_digit);
}

// Base classes that GPUs have: 03 display, 12 processing accelerators (PCI Code and ID Assignment Specification 1.15).
// Board management controllers (ASPEED, Matrox) are display devices too, therefore is_gpu() checks the vendor.
bool is_accelerator(std::string_view pci_class) {
  return pci_class.starts_with("0x03") || pci_class.starts_with("0x12");
}

// Returns true for GPUs of NVIDIA, AMD and Intel. Intel's GPUs for servers have class 0380; its graphics for screens
// have class 0300 and are not counted.
bool is_gpu(std::string_view accelerator, std::string_view vendor) {
  return vendor == "0x10de" || vendor == "0x1002" || (vendor == "0x8086" && accelerator.starts_with("0x0380"));
}

// Returns the upstream ports of a function, root first. The ports are the directories in the target of the function's
// link in /sys/bus/pci/devices.
std::optional<std::vector<std::string>> path_of(const base::Directory& devices, const std::string& address) {
  const auto link = devices.read_link(address.c_str());
  if (!link) return std::nullopt;
  auto path = addresses_in_path(*link);
  if (!path.empty()) path.pop_back();  // drops the function itself
  return path;
}

std::string information_path(const std::string& root, std::string_view pci) {
  return fmt::format("{}{}{}/information", root, kNvidiaGpus, pci);
}

}  // namespace

bool is_address(std::string_view text) {
  // BUS:DEVICE.FUNCTION has fixed widths; a domain of Intel VMD has more than four digits.
  if (text.size() < 4 + 8 || text.size() > 8 + 8) return false;
  const std::size_t bus = text.size() - 8;
  if (text[bus] != ':' || text[bus + 3] != ':' || text[bus + 6] != '.') return false;
  return is_hex(text.substr(0, bus)) && is_hex(text.substr(bus + 1, 2)) && is_hex(text.substr(bus + 4, 2)) &&
         is_hex(text.substr(bus + 7, 1));
}

std::string_view slot_of(std::string_view address) {
  return address.substr(0, address.rfind('.'));
}

std::vector<std::string> addresses_in_path(std::string_view path) {
  std::vector<std::string> addresses;
  for (const std::string_view part : split(path, '/'))
    if (is_address(part)) addresses.emplace_back(part);
  return addresses;
}

std::string_view last_address_in_path(std::string_view path) {
  while (!path.empty()) {
    const std::string_view part = base::last_component(path);
    if (is_address(part)) return part;
    path.remove_suffix(std::min(part.size() + 1, path.size()));  // with the slash, if there is one
  }
  return {};
}

std::vector<Gpu> read_gpus(const std::string& root) {
  std::vector<Gpu> gpus;
  const auto devices = base::Directory::open(root + "/sys/bus/pci/devices");
  if (!devices) return gpus;
  for (const std::string& address : devices->list()) {
    // A node may have thousands of PCI functions, because VFs are functions too. So only the class is read for every
    // function, and two more attributes only for accelerators.
    const auto pci_class = devices->read_text((address + "/class").c_str());
    if (!pci_class || !is_accelerator(*pci_class)) continue;
    const auto vendor = devices->read_text((address + "/vendor").c_str());
    if (!vendor || !is_gpu(*pci_class, *vendor)) continue;
    gpus.push_back(Gpu{address, devices->read_int((address + "/numa_node").c_str()), path_of(*devices, address)});
  }
  // Sorted as plain text, because the addresses are hexadecimal: natural order would read 9d as the number 9 and put it
  // before 51.
  std::ranges::sort(gpus, {}, &Gpu::pci);
  return gpus;
}

Attr<std::string> read_information(const std::string& root, std::string_view pci) {
  return base::read_attribute(information_path(root, pci));
}

// "Device Minor: 3" is the N of /dev/nvidiaN. "GPU UUID:" precedes it (open-gpu-kernel-modules 550,
// kernel-open/nvidia/nv-procfs.c, nv_procfs_read_gpu_info()).
Unread read_driver_facts(const std::string& root, Gpu& gpu) {
  constexpr std::string_view kMinor = "Device Minor:";
  constexpr std::string_view kUuid = "GPU UUID:";
  const auto information = read_information(root, gpu.pci);
  const std::string text = base::value_or(information, std::string());
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(kMinor)) gpu.nodes.push_back("nvidia" + std::string(trim(line.substr(kMinor.size()))));
    if (line.starts_with(kUuid)) gpu.uuid = gpu_uuid(trim(line.substr(kUuid.size())));
  }
  return {Unread::Part::kDetail, information_path(root, gpu.pci), error_of(information)};
}

std::optional<std::vector<std::string>> read_path(const std::string& root, const std::string& address) {
  const auto devices = base::Directory::open(root + "/sys/bus/pci/devices");
  return devices ? path_of(*devices, address) : std::nullopt;
}

}  // namespace fabric::pci
