#include "hook/grant/hcas.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "fabric/pci_sysfs.hpp"
#include "fabric/read_node.hpp"
#include "hook/grant/node.hpp"
#include "hook/ledger/files.hpp"
#include "hook/plan/parts.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/plan_rails.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

using fabric::Hca;
using fabric::Inventory;
using fabric::Unread;

Result<void> read_inside(const NetnsIdentity& netns, const std::string& root, const std::vector<std::string>& names,
                         Inventory& inventory) {
  base::UniqueFd fd(::open(netns.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) return sys_error(errno, "cannot open the pod's network namespace `{}`", netns.path);
  const auto inside = TRY(open_network_namespace(std::move(fd), {.packet = false, .sysfs = true}));
  // Linux before 5.2 has no fsmount(2), so the HCAs in the namespace cannot be read and stay unknown.
  if (!inside.sysfs.ok()) return {};
  const std::string sys = fmt::format("/proc/self/fd/{}", inside.sysfs.get());
  auto found = fabric::read_hcas_elsewhere(root, sys, names);
  TRY_VOID(was_read(found, fabric::Unread::Part::kHcas));
  std::ranges::move(found.unread, std::back_inserter(inventory.unread));
  std::ranges::move(found.hcas, std::back_inserter(inventory.hcas));
  // Keep the natural order of the names, because `index:N` of a request counts in that order.
  std::ranges::sort(inventory.hcas,
                    [](const Hca& left, const Hca& right) { return base::natural_less(left.name, right.name); });
  return {};
}

// Sets the netdev of the rail's port to the name that the netdev has on the node. If the HCA moved too, the rail's port
// is the port whose netdev has the rail's name in the namespace. If only the netdev moved, the rail's port is a port
// without netdev.
void name_netdev(const RailRecord& rail, Inventory& inventory) {
  Hca* hca = find_hca(inventory, rail.rail.hca);
  if (!hca) return;
  auto port = std::ranges::find_if(hca->ports, [&](const fabric::Port& one) { return one.netdev == rail.rail.name; });
  if (port == hca->ports.end())
    port = std::ranges::find_if(hca->ports, [](const fabric::Port& one) { return !one.netdev; });
  if (port == hca->ports.end()) return;
  port->netdev = rail.host.name;
  fabric::Netdev netdev;
  netdev.name = rail.host.name;
  netdev.mac = fmt::format("{:02x}", fmt::join(rail.host.mac, ":"));
  netdev.pci = hca->pci;
  netdev.in_this_netns = false;
  for (const RailAddress& own : addresses_in(rail.host.records))
    netdev.addresses.push_back({own.address, own.prefix, {}});
  inventory.netdevs.push_back(std::move(netdev));
}

bool is_software(const Hca& hca) {
  return hca.class_link && fabric::device_in_link(*hca.class_link) == fabric::kNoDevice;
}

// Replaces each character that a file name of the ledger must not have by '.'.
std::string file_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return c != '.' && !is_file_name({&c, 1}, 1);
      },
      '.');
  return name;
}

// Returns the name of a hardware device in the ledger.
std::string key_of_device(std::string_view device) {
  return file_name(std::string(device.substr(0, kLongestHcaName)));
}

// Returns the device of an HCA; nullopt: the ledger books it under its name.
std::optional<std::string> device_of(const Hca& hca) {
  if (is_software(hca)) {
    // A GUID of zero occurs only in file trees: rxe and siw derive their GUID by addrconf_addr_eui48(), which always
    // sets two bytes to ff and fe.
    const bool is_zero = hca.node_guid.find_first_not_of("0:") == std::string::npos;
    return is_zero ? std::nullopt : std::optional("guid." + file_name(hca.node_guid));
  }
  const std::string_view device = fabric::device_in_link(hca.class_link ? *hca.class_link : std::string_view());
  return device.empty() ? std::nullopt : std::optional(key_of_device(device));
}

// Returns the device of an HCA of which only some facts were read; nullopt: these facts do not show it.
std::optional<std::string> device_as_read(const Hca& hca) {
  if (hca.class_link) return is_software(hca) && hca.node_guid.empty() ? std::nullopt : device_of(hca);
  // The PCI address does not identify the HCA: that of a sub-function is the address of its parent.
  const bool is_known = !hca.device.empty() && hca.device != fabric::kNoDevice;
  return is_known ? std::optional(key_of_device(hca.device)) : std::nullopt;
}

// Returns the facts of an HCA that is away by which rails are numbered; nullopt: its PCI function no longer exists, or
// the inventory has its HCA. The directory of the function stays in sysfs while its HCA is in another network
// namespace.
std::optional<Hca> away_hca(const PlannedHca& held, const std::string& root, const Inventory& inventory) {
  Hca hca;
  hca.name = held.name;
  constexpr std::string_view kGuid = "guid.";
  if (held.device.starts_with(kGuid)) {
    hca.node_guid = held.device.substr(kGuid.size());
    std::ranges::replace(hca.node_guid, '.', ':');
    return hca;
  }
  hca.pci = pci_of_device(held.device);
  if (!hca.pci) {
    // A sub-function is an auxiliary device below its PCI function.
    const auto devices = base::Directory::open(root + "/sys/bus/auxiliary/devices");
    const auto link = devices ? devices->read_link(held.device.c_str()) : std::nullopt;
    const auto address = link ? fabric::pci::last_address_in_path(*link) : std::string_view();
    if (!address.empty()) hca.pci = address;
    return hca;
  }
  const auto function = base::Directory::open(root + "/sys/bus/pci/devices/" + *hca.pci);
  if (!function && errno == ENOENT) return std::nullopt;
  const auto shown = function ? function->open_at("infiniband") : std::nullopt;
  for (const std::string& name : shown ? shown->list() : std::vector<std::string>())
    if (find_hca(inventory, name)) return std::nullopt;
  if (function) hca.physfn = function->read_link_name("physfn");
  return hca;
}

// Adds the HCAs of the node that are not in the inventory to Inventory::away.
void add_returned_hcas(const std::string& root, Inventory& inventory) {
  const auto all = base::Directory::open(root + "/sys/class/infiniband");
  auto names = all ? all->list() : std::vector<std::string>();
  std::erase_if(names, [&](const std::string& name) { return find_hca(inventory, name) != nullptr; });
  if (!names.empty()) std::ranges::move(fabric::read_identities(root, names).hcas, std::back_inserter(inventory.away));
}

// Returns the error of reading the link of an HCA in /sys/class; nullptr: the link was read, or does not exist.
const Unread* unread_link(const Inventory& inventory, const Hca& hca) {
  const auto hides = [&](const Unread& unread) {
    return unread.hca == hca.name && unread.part == Unread::Part::kView && !hca.class_link;
  };
  const auto found = std::ranges::find_if(inventory.unread, hides);
  return found == inventory.unread.end() ? nullptr : &*found;
}

// Adds the device of an HCA. Returns false if the inventory has neither a link nor an error for this name.
bool add_device_of(const std::string& name, const Inventory& inventory, KnownDevices& known) {
  const Hca* hca = find_hca(inventory, name);
  if (hca) add_device(*hca, inventory, known);
  return hca && (hca->class_link || known.unknown.contains(name));
}

}  // namespace

Result<bool> has_rails(const std::string& ledger_directory, const Owner& owner) {
  if (!owner.netns) return false;
  return TRY(NetworkRecordStore::read_presence(ledger_directory, owner.key)) != Presence::kAbsent;
}

Result<void> add_own_hcas(const std::string& ledger_directory, const Owner& owner, const std::string& root,
                          Inventory& inventory) {
  if (!TRY(has_rails(ledger_directory, owner))) return {};
  const auto store = TRY(NetworkRecordStore::open(ledger_directory));
  auto record = TRY(store.read(owner.key));
  // The kernel reuses the inode number of a namespace, so the record of this key may belong to an earlier namespace.
  if (!record || record->netns.ino != owner.netns->ino || record->netns.dev != owner.netns->dev) return {};
  std::erase_if(record->rails, [](const RailRecord& rail) { return rail.rail.kind != RailKind::kMove; });
  std::vector<std::string> away;
  for (const RailRecord& rail : record->rails)
    if (!find_hca(inventory, rail.rail.hca)) away.push_back(rail.rail.hca);
  if (!away.empty()) TRY_VOID(read_inside(*owner.netns, root, away, inventory));
  for (const RailRecord& rail : record->rails)
    name_netdev(rail, inventory);
  return {};
}

Result<void> add_granted_hcas(const Request& request, const Owner& owner, const std::string& root,
                              Inventory& inventory) {
  std::vector<std::string> away;
  for (const SpecDevice& device : request.granted_nodes) {
    const auto number = device.uverbs() ? device.uverbs() : fabric::uverbs_number(device.path);
    const auto has_it = [&](const Hca& hca) { return hca.uverbs == number; };
    if (!owner.netns || !number || std::ranges::any_of(inventory.hcas, has_it)) continue;
    const auto name = fabric::hca_of_uverbs(root, *number);
    if (name && !find_hca(inventory, *name) && std::ranges::find(away, *name) == away.end()) away.push_back(*name);
  }
  return away.empty() ? Result<void>() : read_inside(*owner.netns, root, away, inventory);
}

const std::string* KnownDevices::booked_under(const std::string& name) const {
  if (unknown.contains(name)) return nullptr;
  const auto device = devices.find(name);
  return device == devices.end() ? &name : &device->second;
}

void add_device(const Hca& hca, const Inventory& inventory, KnownDevices& known) {
  auto device = device_of(hca);
  if (const Unread* unread = unread_link(inventory, hca)) {
    known.unknown.emplace(hca.name, sys_error(unread->code, "cannot read `{}`", unread->path).message);
  } else if (device) {
    known.devices.emplace(hca.name, std::move(*device));
  } else if (is_software(hca) && hca.node_guid.empty()) {
    known.unknown.emplace(hca.name, "its node GUID cannot be read");
  }
}

KnownDevices devices_of(const std::vector<std::string>& names, const Inventory& inventory, const std::string& root) {
  KnownDevices known;
  std::vector<std::string> others;
  for (const std::string& name : names)
    if (!add_device_of(name, inventory, known)) others.push_back(name);
  const auto was_listed = [&](const std::string& name) { return find_hca(inventory, name) != nullptr; };
  // If the inventory has all HCAs and no link, the file tree has no links (--root): read_node() leaves out an HCA with
  // a link that is gone, and records any other failed read.
  const bool is_without_links = others.size() == names.size() && std::ranges::all_of(names, was_listed);
  if (others.empty() || is_without_links) return known;
  const Inventory found = fabric::read_identities(root, others);
  for (const std::string& name : others)
    if (!add_device_of(name, found, known) && !find_hca(found, name))
      known.unknown.emplace(name, "it no longer exists");
  return known;
}

std::optional<std::string> pci_of_device(std::string device) {
  std::size_t at = 0;
  for (int part = 0; part < 2; ++part) {
    at = device.find('.', at);
    if (at == std::string::npos) return std::nullopt;
    device[at] = ':';
  }
  return fabric::pci::is_address(device) ? std::optional(std::move(device)) : std::nullopt;
}

Result<void> note_away_hcas(const NodeSettings& node, const Ledger* ledger, Inventory& inventory) {
  if (node.snapshot) return {};
  std::set<std::string> shown;
  for (const Hca& hca : inventory.hcas)
    shown.insert(device_as_read(hca).value_or(hca.name));
  const auto held = TRY(ledger ? ledger->once_held(shown) : Ledger::once_held_at(ledger_path(node), shown));
  // An HCA that is not held, and was not shown, may have come back to the node since it was read.
  if (held.others) add_returned_hcas(node.root, inventory);
  for (const PlannedHca& hca : held.exclusive) {
    // Only sysfs shows whether an HCA without a name still exists.
    if (hca.name.empty() && !pci_of_device(hca.device)) continue;
    const Hca* const namesake = find_hca(std::as_const(inventory), hca.name);
    const bool is_noted =
        !hca.name.empty() && std::ranges::find(inventory.away, hca.name, &Hca::name) != inventory.away.end();
    if (is_noted || (namesake && !device_as_read(*namesake))) continue;
    if (auto away = away_hca(hca, node.root, inventory)) inventory.away.push_back(*std::move(away));
  }
  return {};
}

const PlannedHca* find_by_node(const std::vector<PlannedHca>& booked, const std::string& root, unsigned number) {
  const auto device = fabric::device_of_uverbs(root, number);
  if (device && *device != fabric::kNoDevice) return find_hca(booked, key_of_device(*device));
  if (!device && device.error().code != EINVAL) return nullptr;  // the recorded name could belong to another HCA by now
  const auto name = fabric::hca_of_uverbs(root, number);
  const auto found = name ? std::ranges::find(booked, *name, &PlannedHca::name) : booked.end();
  return found == booked.end() ? nullptr : &*found;
}

std::vector<PlannedHca> named_by_now(const std::vector<PlannedHca>& booked, const std::vector<std::string>& names,
                                     const fabric::Inventory& inventory, const std::string& root) {
  const KnownDevices known = devices_of(names, inventory, root);
  std::vector<PlannedHca> hcas;
  for (const std::string& name : names) {
    const std::string* const key = known.booked_under(name);
    for (const PlannedHca& hca : booked) {
      if (!key || booked_as(hca) != *key) continue;
      hcas.push_back(hca);
      hcas.back().name = name;
    }
  }
  return hcas;
}

}  // namespace hook
