#include "hook/grant/hca_devices.hpp"

#include <algorithm>
#include <optional>

#include "fabric/read_node.hpp"
#include "hook/ledger/ledger_files.hpp"

namespace hook {
namespace {

using fabric::Hca;
using fabric::Inventory;
using fabric::Unread;

// nullopt: there is no link that tells.
std::optional<std::string> device_of(const Hca& hca) {
  // ../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0
  std::string_view place = hca.class_link ? *hca.class_link : std::string_view();
  for (int part = 0; part < 2; ++part)
    place = place.substr(0, std::min(place.rfind('/'), place.size()));
  place.remove_prefix(std::min(place.rfind('/') + 1, place.size()));
  if (place.empty() || place == "virtual") return std::nullopt;
  std::string device(place.substr(0, kLongestHcaName));
  std::replace_if(
      device.begin(), device.end(),
      [](char c) {
        return c != '.' && !is_file_name({&c, 1}, 1);
      },
      '.');
  return device;
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

}  // namespace hook
