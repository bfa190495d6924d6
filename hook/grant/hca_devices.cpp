#include "hook/grant/hca_devices.hpp"

#include <algorithm>
#include <optional>

#include "fabric/read_node.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

using fabric::Hca;
using fabric::Inventory;
using fabric::Unread;

bool is_software(const Hca& hca) {
  return hca.class_link && fabric::device_in_link(*hca.class_link) == fabric::kNoDevice;
}

// With '.' for what a file's name has not.
std::string file_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return c != '.' && !is_file_name({&c, 1}, 1);
      },
      '.');
  return name;
}

// nullopt: it goes by its name.
std::optional<std::string> device_of(const Hca& hca) {
  if (is_software(hca)) {
    // Zero in file trees only: rxe and siw make it of a MAC address (addrconf_addr_eui48()), which sets two bytes.
    const bool is_zero = hca.node_guid.find_first_not_of("0:") == std::string::npos;
    return is_zero ? std::nullopt : std::optional("guid." + file_name(hca.node_guid));
  }
  const std::string_view device = fabric::device_in_link(hca.class_link ? *hca.class_link : std::string_view());
  if (device.empty()) return std::nullopt;
  return file_name(std::string(device.substr(0, kLongestHcaName)));
}

// Why its link could not be read; nullptr: it was, or is none.
const Unread* unread_link(const Inventory& inventory, const Hca& hca) {
  const auto hides = [&](const Unread& unread) {
    return unread.hca == hca.name && unread.part == Unread::Part::kView && !hca.class_link;
  };
  const auto found = std::find_if(inventory.unread.begin(), inventory.unread.end(), hides);
  return found == inventory.unread.end() ? nullptr : &*found;
}

// False: of this name there is nothing that could tell.
bool add_device(const std::string& name, const Inventory& inventory, KnownDevices& known) {
  const Hca* hca = find_hca(inventory, name);
  if (!hca) return false;
  auto device = device_of(*hca);
  if (const Unread* unread = unread_link(inventory, *hca)) {
    known.unknown.emplace(name, fabric::sys_error(unread->code, "cannot read `{}`", unread->path).message);
  } else if (device) {
    known.devices.emplace(name, std::move(*device));
  } else if (is_software(*hca) && hca->node_guid.empty()) {
    known.unknown.emplace(name, "its node GUID cannot be read");
  }
  return hca->class_link || known.unknown.contains(name);
}

}  // namespace

KnownDevices devices_of(const std::vector<std::string>& names, const Inventory& inventory, const std::string& root) {
  KnownDevices known;
  std::vector<std::string> others;
  for (const std::string& name : names) {
    if (!add_device(name, inventory, known)) others.push_back(name);
  }
  if (others.size() == names.size()) return known;  // no links are there
  const Inventory found = fabric::read_hcas_elsewhere(root, root + "/sys", others);
  for (const std::string& name : others) {
    if (!add_device(name, found, known) && !find_hca(found, name)) known.unknown.emplace(name, "it is there no longer");
  }
  return known;
}

std::vector<PlannedHca> named_by_now(const std::vector<PlannedHca>& booked, const std::vector<std::string>& names,
                                     const fabric::Inventory& inventory, const std::string& root) {
  const HcaDevices devices = devices_of(names, inventory, root).devices;
  std::vector<PlannedHca> hcas;
  for (const std::string& name : names) {
    const auto device = devices.find(name);
    const std::string& key = device == devices.end() ? name : device->second;
    for (const PlannedHca& hca : booked) {
      if (booked_as(hca) != key) continue;
      hcas.push_back(hca);
      hcas.back().name = name;
    }
  }
  return hcas;
}

}  // namespace hook
