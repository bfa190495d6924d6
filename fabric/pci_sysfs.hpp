// PCI functions as sysfs shows them: addresses in paths, NUMA nodes, upstream ports, GPUs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"

namespace fabric::pci {

// "0000:0c:00.0" (domain of four or more hex digits).
bool is_address(std::string_view text);
// Domain, bus and device without the function: the slot. "0000:0c:00".
std::string_view slot_of(std::string_view address);
// The PCI addresses among the components of a sysfs path, root first.
std::vector<std::string> addresses_in_path(std::string_view path);

// Display controllers (class 0x03) and NVIDIA or AMD 3D/processing accelerators (class 0x12), under root.
// Empty when /sys/bus/pci cannot be read.
std::vector<Gpu> read_gpus(const std::string& root);

// Adds what the driver says of an NVIDIA GPU: its node "nvidiaN", and its UUID. The errno that kept it from being read;
// 0: none.
int read_driver_facts(const std::string& root, Gpu& gpu);
// Upstream ports of a function, root first; nullopt when it is unknown to sysfs.
std::optional<std::vector<std::string>> read_path(const std::string& root, const std::string& address);

}  // namespace fabric::pci
