// Reads PCI functions from sysfs: addresses in paths, NUMA nodes, upstream ports, GPUs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric::pci {

// Returns true for a PCI address such as "0000:0c:00.0". The domain has four to eight hex digits.
bool is_address(std::string_view text);
// Returns the slot of an address: domain, bus and device without the function, such as "0000:0c:00".
std::string_view slot_of(std::string_view address);
// Returns the PCI addresses among the components of a sysfs path, root first.
std::vector<std::string> addresses_in_path(std::string_view path);
// Returns the last of these addresses; empty if there is none.
std::string_view last_address_in_path(std::string_view path);

// Reads the GPUs below root: display controllers (class 0x03) and processing accelerators (class 0x12) of NVIDIA and
// AMD, and GPUs for servers of Intel (class 0x0380). Returns an empty list if /sys/bus/pci cannot be read.
std::vector<Gpu> read_gpus(const std::string& root);

// The directory in which the NVIDIA driver has a directory for each GPU, with the name of its PCI address.
inline constexpr const char* kNvidiaGpus = "/proc/driver/nvidia/gpus/";
// Reads the file `information` of a GPU: lines such as "Model: NVIDIA H100" and "Device Minor: 3" (driver 550's README,
// "The /proc Filesystem Interface").
Attr<std::string> read_information(const std::string& root, std::string_view pci);
// Adds the facts of the NVIDIA driver to a GPU: its device node "nvidiaN" and its UUID. Returns the file with the errno
// of a failed read, or with 0.
Unread read_driver_facts(const std::string& root, Gpu& gpu);
// Returns the upstream ports of a function, root first. Returns nullopt if sysfs does not list the function.
std::optional<std::vector<std::string>> read_path(const std::string& root, const std::string& address);

}  // namespace fabric::pci
